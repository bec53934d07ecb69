"""Real data: every reference passes, and every recorded verdict on a real model's completion is
ours.
"""

from __future__ import annotations

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.tasks import load
from assay.types import Verdict
from tests.judge.samples import samples


@pytest.mark.long
@pytest.mark.parametrize(("name", "count"), [("humaneval", 164), ("mbpp:all", 974)])
def test_every_reference_passes(name: str, count: int) -> None:
    try:
        tasks = load(name)
    except DataError as error:
        pytest.skip(str(error))
    executions = judge_all([Job(task, task.reference) for task in tasks])
    failed = [
        (task.id, seen)
        for task, seen in zip(tasks, executions, strict=True)
        if seen.verdict is not Verdict.PASS
    ]
    assert not failed
    assert len(tasks) == count


@pytest.mark.long
def test_every_recorded_verdict_on_a_real_completion_is_ours() -> None:
    recorded = samples()
    executions = judge_all([sample.job for sample in recorded])
    differing = [
        (sample.name, execution)
        for sample, execution in zip(recorded, executions, strict=True)
        if (execution.verdict is Verdict.PASS) != sample.passed
    ]
    assert not differing
    assert len(recorded) == 1492
