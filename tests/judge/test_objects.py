"""Objects of the program across the wall: what is carried, what is forgeable, what is not judged.

objects.txt holds programs, and after each the tests of it: name | entry point | verdict |
`forgeable` where it is (`*`: either).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.tasks import task_from_dict
from assay.types import Execution, Verdict
from tests.judge.jobs import programs_run, task
from tests.test_architecture import FILES, PACKAGE

TEXT = Path(__file__).with_name("objects.txt").read_text()


def test_the_rest_of_the_judge_comes_to_objects_by_one_door() -> None:
    folder = PACKAGE / "judge" / "objects"
    inside = re.compile(r"^\s*(?:from|import) assay\.judge\.objects\.", re.MULTILINE)
    for file in FILES:
        assert folder in file.parents or not inside.search(file.read_text()), file


def read_cases() -> dict[str, tuple[Job, str, str]]:
    found, program = {}, ""
    for block in re.split(r"^##### ", TEXT, flags=re.MULTILINE)[1:]:
        head, _, body = block.partition("\n")
        if head == "program":
            program = body
            continue
        name, entry, verdict, forgeable = head.split("|")
        job = Job(task(entry.strip(), body), program)
        found[name.strip()] = job, verdict.strip(), forgeable.strip()
    return found


CASES = read_cases()


@pytest.fixture(scope="module")
def executions() -> dict[str, Execution]:
    jobs = [job for job, _, _ in CASES.values()]
    return dict(zip(CASES, judge_all(jobs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_an_object_is_carried_or_forgeable_or_not_judged(
    name: str, executions: dict[str, Execution]
) -> None:
    _, verdict, forgeable = CASES[name]
    execution = executions[name]
    assert str(execution.verdict) == verdict, execution
    assert forgeable == "*" or execution.forgeable is bool(forgeable), execution


def test_a_task_that_needs_objects_is_not_tried_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "class P:\n    def __len__(self): return 3\ndef f(x): return P()"
    needs_none = task("f", "assert len(f(1)) == 3")
    needing = replace(needs_none, needs="objects")
    with_reference = replace(needing, reference=program)
    programs = programs_run(monkeypatch)
    jobs = [Job(needing, program), Job(with_reference, program), Job(needs_none, program)]
    verdicts = [execution.verdict for execution in judge_all(jobs)]
    assert verdicts == [Verdict.PASS, Verdict.PASS, Verdict.PASS]
    assert sum(b'"objects": false' in (it.companion or b"") for it in programs) == 1


def test_a_row_says_that_it_needs_objects_and_nothing_else() -> None:
    tests = ["assert len(f(1)) == 3"]
    row = {"prompt": "p", "tests": tests, "entry_point": "f", "needs": "objects"}
    assert task_from_dict(row).needs == "objects"
    with pytest.raises(DataError, match="objects"):
        task_from_dict({**row, "needs": "object"})
