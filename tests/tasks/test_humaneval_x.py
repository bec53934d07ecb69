"""HumanEval-X: tests in six languages, which run in the program's own process."""

from __future__ import annotations

import shutil

import pytest

from assay.errors import DataError
from assay.judge import Job
from assay.languages import language_named
from assay.tasks import load
from assay.tasks.humaneval_x import task_of
from assay.tasks.rows import Row
from assay.types import Verdict
from tests.judge.opened import judge_all

WRONG_REFERENCES = ("JavaScript/112", "JavaScript/155", "Go/95")
"""A comma where a list is meant; [0, 0] for the digits of 0; the first key of a map, which has no
order."""
HUMANEVAL_X = {
    "task_id": "JavaScript/0",
    "prompt": "/* Adds. */\nconst addTwo = (a, b) => {\n",
    "declaration": "\nconst addTwo = (a, b) => {\n",
    "canonical_solution": "  return a + b\n}\n",
    "test": "const testAddTwo = () => {\n  console.assert(addTwo(1, 2) === 3)\n}\n\ntestAddTwo()\n",
}


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_humaneval_xs_tests_run_after_the_program_and_an_assertion_counts() -> None:
    task = task_of(Row(HUMANEVAL_X, "the row"), "javascript")
    assert (task.entry_point, task.language) == ("addTwo", "javascript")
    jobs = [Job(task, task.reference), Job(task, f"{task.stub}return a - b }}")]
    right, wrong = judge_all(jobs)
    assert (right.verdict, right.forgeable) == (Verdict.PASS, True)
    assert wrong.verdict is Verdict.ERROR


@pytest.mark.long
@pytest.mark.data("humaneval_x")
@pytest.mark.parametrize("language", ["python", "cpp", "go", "java", "javascript", "rust"])
def test_humaneval_xs_own_solutions_pass(language: str) -> None:
    try:
        language_named(language).versions()
    except DataError as error:
        pytest.skip(str(error))
    every = load(f"humaneval_x:{language}")
    assert len(every) == {"rust": 158}.get(language, 164)
    tasks = [task for task in every[::8] if task.id not in WRONG_REFERENCES]
    executions = judge_all([Job(task, task.reference) for task in tasks])
    failing = [(task.id, one.detail) for task, one in zip(tasks, executions, strict=True)
               if one.verdict is not Verdict.PASS]  # fmt: skip
    assert failing == []
