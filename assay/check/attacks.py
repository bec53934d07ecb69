"""Programs that must fail: an empty one, one that only raises, and attacks that fooled graders."""

from __future__ import annotations

import tomllib
from pathlib import Path

from assay.judge.kinds.find import kind_of
from assay.languages import language_named
from assay.types import Task

RAISE = "ANSWER raise RuntimeError('no answer')"
EMPTY = "ANSWER pass"
ECHO = "ANSWER return args[0]"
ECHO_STDIN = "import sys\nANSWER sys.stdout.write(sys.stdin.read())"
ATTACKS: dict[str, str] = {
    attack["name"]: attack["source"]
    for attack in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["attack"]
}
"""Attacks by name, as programs for any task: attacks.toml has them."""


def attacks_on(task: Task) -> dict[str, str]:
    """The attacks by name, written for one task."""
    if task.language != "python":
        every = (kind_of(check).cheats(check, task) for check in task.checks)
        return {name: source for some in every for name, source in some.items()}
    return {name: program_for(task, source) for name, source in ATTACKS.items()}


def lazy_programs(task: Task) -> dict[str, str]:
    """Programs that do no work: `empty`, `echo`, and `constant` if the first answer is known."""
    if task.language != "python":
        return dict(language_named(task.language).lazy)
    lazy = {
        "empty": program_for(task, EMPTY),
        "echo": program_for(task, ECHO if task.entry_point else ECHO_STDIN),
    }
    constants = (kind_of(check).answer(check, task) for check in task.checks)
    constant = next((program for program in constants if program is not None), None)
    return lazy if constant is None else {**lazy, "constant": constant}


def program_for(task: Task, source: str) -> str:
    """`source` as a program for this task: in its entry point, or run at once without one."""
    name = task.function or "main"
    program = source.replace("ANSWER", f"def {name}(*args, **kwargs):")
    return program if task.entry_point else f"{program}\n{name}()"
