"""`compute_score` for verl: `reward.custom_reward_function.path=pkg://assay.integrations.verl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay import extract
from assay.errors import DataError
from assay.integrations.background import score
from assay.integrations.case_rows import task_of
from assay.judge import Job


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any] | list[str],
    extra_info: Mapping[str, Any] | None = None,
    *,
    fraction: bool = False,
    slots: int | None = None,
    **others: object,
) -> float:
    """Returns 1 if the program in `solution_str` passes its tests, and 0 otherwise. With `fraction`
    it returns the share of tests passed.

    `ground_truth` is JSON text or its value. It may be {"inputs", "outputs"} of a program that
    reads stdin, the same with "fn_name" for a function, {"assert_case": [...]} or a list of
    asserts. `data_source` and `extra_info` are verl's and change nothing. Raises DataError for
    anything else and for a task that cannot be judged. Raises SandboxError if the machine failed,
    because verl cannot leave a sample out and would learn from a made-up 0.
    """
    try:
        truth = json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth
    except (ValueError, RecursionError) as error:
        raise DataError(f"{data_source}: the ground truth is not JSON: {error}") from error
    task = task_of(truth, data_source)
    job = Job(task, extract.program(task, solution_str))
    return score(data_source, job, fraction, slots)
