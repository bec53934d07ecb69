"""The doctor says what the machine is, and imports nothing heavy to find out."""

from __future__ import annotations

import json
import subprocess
import sys

from rich.console import Console

from assay import doctor


def test_the_report_names_tier_cores_versions_and_tools() -> None:
    found = doctor.report()
    plain = json.loads(json.dumps(doctor.as_dict(found)))
    assert plain["isolation"]["tier"] in "ABCDE"
    assert plain["sound"] == found.isolation.sound
    assert plain["cores"] >= 1
    assert plain["packages"]["torch"] == doctor.version("torch")
    assert plain["tools"].keys() == set(doctor.TOOLS)


def test_what_is_absent_is_shown_as_absent() -> None:
    assert doctor.version("no-such-package") is None
    console = Console(width=100)
    with console.capture() as shown:
        console.print(doctor.render(doctor.report()))
    assert "isolation" in shown.get()


def test_it_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from assay import doctor; doctor.report(); print({'torch', 'transformers'} &"
        " set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
