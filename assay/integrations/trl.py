"""A reward function for TRL's trainers: the data set's columns hold the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.extract import program
from assay.integrations.background import shared
from assay.judge import Job
from assay.rewards.tests import score_execution
from assay.sandbox.limits import Limits
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Verdict

Reward = Callable[..., list[float | None]]
Messages = Sequence[Mapping[str, Any]]


def code_reward(
    fraction: bool = False,
    limits: Limits | None = None,
    slots: int | None = None,
    allow_weak: bool = False,
) -> Reward:
    """Returns a `reward_funcs` entry of GRPOTrainer or RLOOTrainer. It pays 1 if a completion's
    program passes its tests, and 0 otherwise.

    The columns are the fields of assay's task files: `tests` and `entry_point`, or `test_list` and
    `code`, and so on. With `fraction` the reward is the share of tests passed. Where the machine
    failed, or the row cannot be judged, it is None, which TRL leaves out. The metrics
    `machine_failures` and `unjudged` count those. Raises DataError for a row without usable tests,
    SandboxError for a broken judge.
    """

    def passes_tests(
        prompts: Sequence[str | Messages], completions: Sequence[str | Messages], **columns: Any
    ) -> list[float | None]:
        jobs = []
        for number, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            fields = {
                name: column[number] for name, column in columns.items() if isinstance(column, list)
            }
            text = prompt if isinstance(prompt, str) else ""
            row = {"task_id": number, "prompt": text} | {
                k: v for k, v in fields.items() if v is not None
            }
            task = task_of(Row(row, f"row {number} of the batch"))
            jobs.append(Job(task, program(task, text_of(completion))))
        executions = shared(limits, slots, allow_weak).run(jobs)
        if "log_metric" in columns:
            verdicts = Counter(execution.verdict for execution in executions)
            columns["log_metric"]("machine_failures", verdicts[Verdict.INFRA])
            columns["log_metric"]("unjudged", verdicts[Verdict.UNJUDGED])
        return [score_execution(execution, fraction=fraction) for execution in executions]

    return passes_tests


def text_of(completion: str | Messages) -> str:
    """Returns the completion's text, or the content of its last message."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"] if completion else ""
    return (
        content
        if isinstance(content, str)
        else "".join(part.get("text", "") for part in content or ())
    )
