"""Real data: every reference passes, and every recorded verdict on a real model's completion is
ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.judge import Job, judge_all
from assay.tasks import load, task_from_dict
from assay.types import TestFunctions, Verdict
from tests.judge.samples import samples


@pytest.mark.long
@pytest.mark.data("humaneval", "mbpp")
@pytest.mark.parametrize(("name", "count"), [("humaneval", 164), ("mbpp:all", 974)])
def test_every_reference_passes(name: str, count: int) -> None:
    tasks = load(name)
    executions = judge_all([Job(task, task.reference) for task in tasks])
    failed = [
        (task.id, seen)
        for task, seen in zip(tasks, executions, strict=True)
        if seen.verdict is not Verdict.PASS
    ]
    assert not failed
    assert len(tasks) == count


@pytest.mark.long
@pytest.mark.data("llm_samples", "humaneval", "mbpp")
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


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.data("bigcodebench")
def test_the_unittests_of_real_rows_tell_their_solutions_from_programs_that_do_nothing(
    public_data: Path,
) -> None:
    found = rows(public_data / "bigcodebench/rows.jsonl")
    tasks = [
        task_from_dict({"prompt": "", "test": row["test"], "entry_point": row["entry_point"]})
        for row in found
    ]
    right = [row["complete_prompt"] + row["canonical_solution"] for row in found]
    idle = [f"{row['code_prompt']}    return None" for row in found]
    jobs = [Job(task, program) for task, program in zip(tasks * 2, right + idle, strict=True)]
    verdicts = [execution.verdict for execution in judge_all(jobs, stop_early=False)]
    assert all(isinstance(task.checks[0], TestFunctions) for task in tasks)
    assert verdicts[: len(found)].count(Verdict.PASS) >= 4
    assert Verdict.PASS not in verdicts[len(found) :]


@pytest.mark.long
@pytest.mark.data("rllm")
def test_a_real_module_of_test_functions_passes_its_solution_alone(public_data: Path) -> None:
    every = rows(public_data / "rllm/reward_test_rows.jsonl")
    (row,) = [row for row in every if row["data_source"] == "kodcode"]
    name = "longest_subsequence"
    task = task_from_dict({"prompt": "", "test": row["ground_truth"], "entry_point": name})
    solution = row["model_response"].split("```python")[1].split("```")[0]
    right, wrong = judge_all(
        [Job(task, solution), Job(task, f"def {name}(x): return 5")], stop_early=False
    )
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 6, 6)
    assert (wrong.verdict, wrong.passed, wrong.total) == (Verdict.WRONG, 2, 6)
