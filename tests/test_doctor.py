"""`assay doctor` describes the machine, and imports nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

from rich.console import Console

from assay import doctor


def test_the_examination_names_tier_cores_versions_and_tools() -> None:
    machine = doctor.examine()
    plain = json.loads(json.dumps(doctor.as_dict(machine)))
    assert plain["isolation"]["tier"] in "ABCDE"
    assert plain["sound"] == machine.isolation.sound
    assert plain["cores"] >= 1
    assert plain["packages"]["torch"] == doctor.version("torch")
    assert plain["tools"].keys() == set(doctor.TOOLS)


def test_what_is_absent_is_shown_as_absent() -> None:
    assert doctor.version("no-such-package") is None
    console = Console(width=100)
    with console.capture() as shown:
        console.print(doctor.render(doctor.examine()))
    assert "isolation" in shown.get()


def test_it_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from assay import doctor; doctor.examine(); print({'torch', 'transformers'} &"
        " set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
