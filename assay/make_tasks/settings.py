"""How tasks are made of each package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

BugOrigin = Literal["operators", "edits", "rewrites", "commits"]
"""Where bugs come from."""
REGRESSION_TESTS = 50
"""Tests of a task that must go on passing. Each is a process whenever a change is judged: with
hundreds of them that takes many times what the bug's own tests take.
"""


@dataclass(frozen=True, slots=True)
class MakeSettings:
    """How tasks are made of each package."""

    output: Path
    """The new folder for tasks.jsonl and the trees."""
    count: int
    seed: int
    seconds: float
    """Most wall time of all tests of a package."""
    environment: Path | None
    """A virtual environment; without it assay's own pytest runs the tests."""
    pytest_arguments: tuple[str, ...] = ()
    reference_runs: int = 2
    """How often the tests run without a bug; those that do not always pass are left out."""
    regression_tests: int = REGRESSION_TESTS
    """Most tests of a task that must go on passing."""
    bugs: BugOrigin = "operators"
    """Where the bugs come from."""
    reword: bool = True
    """Whether the model, if there is one, words statements."""
