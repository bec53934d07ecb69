"""`assay doctor` describes the machine, and imports nothing heavy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from assay import doctor
from assay.languages import language_named


def test_the_examination_names_tier_cores_versions_and_tools() -> None:
    machine = doctor.examine()
    plain = json.loads(json.dumps(doctor.as_dict(machine)))
    assert plain["isolation"]["tier"] in "ABCDE"
    assert plain["sound"] == machine.isolation.sound
    assert plain["cores"] >= 1
    assert plain["packages"]["torch"] == doctor.version("torch")
    assert plain["tools"].keys() == set(doctor.TOOLS)
    assert plain["languages"]["python"].startswith("Python 3.")


def test_what_replies_are_read_as_but_never_run_is_no_language_of_the_machine() -> None:
    """A final answer or a diff is text: that `cat` is installed says nothing of its judge."""
    shown = doctor.examine().languages
    assert "python" in shown
    assert not {"answer", "diff", "shell_script"} & shown.keys()


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


def test_a_self_test_says_how_each_language_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(language_named("c"), run=("no-such-tool",), compile=(), package="some-package")
    monkeypatch.setattr("assay.doctor.languages", {"python": None, "c": None})
    known = {"python": language_named("python"), "c": absent}
    for module in ("doctor", "judge.prepared_task", "judge.judge"):
        monkeypatch.setattr(f"assay.{module}.language_named", known.__getitem__)
    found = doctor.examine(self_test=True).languages
    assert re.fullmatch(r"Python 3.*; hello in \d+ ms of CPU time", found["python"])
    why = "no-such-tool is not installed; on Debian and Ubuntu: apt install some-package"
    assert found["c"].startswith(f"{why}; unjudged: ")
