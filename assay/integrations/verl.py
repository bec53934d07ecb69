"""`compute_score` for verl: `reward.custom_reward_function.path=pkg://assay.integrations.verl`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.errors import DataError, SandboxError
from assay.integrations.background import score, shared
from assay.integrations.cases import assert_task, completed, cut, function_task, stdio_task
from assay.judge import Job
from assay.types import Task


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
    """1 where the program in `solution_str` passes its tests, else 0, or with `fraction` the share of tests passed.

    `ground_truth` is JSON, or what it stands for: {"inputs", "outputs"} of a program that reads and prints, the same
    with "fn_name" for a function, {"assert_case": [...]} or a list of asserts. `data_source` and `extra_info` are
    verl's and change nothing. Raises DataError for anything else, and SandboxError where the machine failed: verl
    has no way to leave a sample out, and a made-up 0 would be learned from.
    """
    task = task_of(ground_truth)
    (execution,) = shared(slots=slots).run([Job(task, completed(task, cut(task, solution_str)))])
    value = score(execution, fraction)
    if value is None:
        raise SandboxError(f"{data_source}: the machine could not judge a sample: {execution.detail}")
    return value


def task_of(ground_truth: str | Mapping[str, Any] | list[str]) -> Task:
    """The task that a ground truth stands for. Raises DataError."""
    try:
        found = json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth
    except (ValueError, RecursionError) as error:
        raise DataError(f"the ground truth is no JSON: {error}") from error
    asserts = found.get("assert_case") if isinstance(found, Mapping) else found
    if isinstance(asserts, list) and all(isinstance(one, str) for one in asserts):
        return assert_task(asserts)
    if not isinstance(found, Mapping) or not all(isinstance(found.get(key), list) for key in ("inputs", "outputs")):
        raise DataError('the ground truth has neither "inputs" and "outputs" nor "assert_case"; see compute_score')
    if found.get("fn_name"):
        return function_task(str(found["fn_name"]), found["inputs"], found["outputs"])
    return stdio_task(found["inputs"], found["outputs"])
