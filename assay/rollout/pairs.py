"""Reads pairs of chosen and rejected completions from a file, for DPO without rollouts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.errors import DataError
from assay.rollout.prompter import Prompter
from assay.tasks.jsonl import task_of, warn_of_unknown
from assay.tasks.rows import Row, file_rows
from assay.types import Sample, Task, Verdict

FIELDS = {"task_id", "id", "prompt", "chosen", "rejected", "tools"}


def read_pairs(file: Path, tasks: Sequence[Task], prompter: Prompter) -> list[list[Sample]]:
    """Groups of samples for one prompt, each with at least one that passed and one that failed.

    A row with `chosen`, `rejected` and either a `prompt` or the `task_id` of one of `tasks` is one
    group. As in TRL, they may be lists of messages, and `chosen` and `rejected` whole conversations
    without a `prompt`. Rows of the samples.jsonl of `assay eval` (`task_id`, `reply`, `verdict`)
    form one group for each task, in which a forgeable pass is none. Raises DataError for any other
    row, and for a file without a pair.
    """
    by_id = {task.id: task for task in tasks}
    groups: dict[str, list[Sample]] = {}
    unknown: dict[str, str] = {}
    for number, row in enumerate(file_rows(file)):
        judged = "reply" in row.fields
        for task, passed in of_evaluation(row, by_id) if judged else _of_pair(row, by_id):
            name = task.id if judged else f"{number}/{task.id}"
            (sample,) = prompter.samples(task, last_only=True)
            groups.setdefault(name, []).append(
                replace(sample, group=name, passed=passed, reward=float(passed))
            )
        unknown |= {name: repr(name) for name in row.fields if name not in FIELDS and not judged}
    warn_of_unknown(unknown, str(file))
    mixed = [group for group in groups.values() if len({sample.passed for sample in group}) == 2]
    if not mixed:
        raise DataError(f"{file} holds no task with a completion that passed and one that failed")
    return mixed


def tasks_of_pairs(file: Path) -> list[Task]:
    """What the pairs of a file answer, which stands for training tasks where there are none. Raises
    DataError.
    """
    return [task for row in file_rows(file) for task, passed in _of_pair(row, {}) if passed]


def of_evaluation(row: Row, by_id: Mapping[str, Task]) -> Iterator[tuple[Task, bool]]:
    """The task with its judged reply as the demonstration, and whether that passed."""
    passed = row.text("verdict") == Verdict.PASS and not row.fields.get("forgeable")
    yield replace(task_named(row, by_id), demonstrations=(row.text("reply"),)), passed


def _of_pair(row: Row, by_id: Mapping[str, Task]) -> Iterator[tuple[Task, bool]]:
    """The task with each answer as its demonstration, and whether that is the chosen one."""
    has_messages = any(
        isinstance(row.fields.get(name), list) for name in ("prompt", "chosen", "rejected")
    )
    for name in ("chosen", "rejected"):
        if has_messages:
            task = task_of(Row({"messages": _conversation(row, name)}, row.where))
        else:
            task = replace(task_named(row, by_id), demonstrations=(row.text(name),))
        if tools := row.tools():
            task = replace(task, tools=tools)
        yield task, name == "chosen"


def _conversation(row: Row, name: str) -> list[Any]:
    """The messages that end with an answer. One that begins with a user's is whole by itself."""
    prompt, answer = row.fields.get("prompt"), row.fields.get(name)
    if not isinstance(answer, list):
        answer = [{"role": "assistant", "content": row.text(name)}]
    elif row.messages(name)[0].role != "assistant":
        return answer
    if not isinstance(prompt, list):
        prompt = [{"role": "user", "content": row.text("prompt")}]
    return [*prompt, *answer]


def task_named(row: Row, by_id: Mapping[str, Task]) -> Task:
    """The task of `by_id` that the row names, or one of its `prompt`."""
    if "task_id" not in row.fields:
        return Task(row.place, row.text("prompt"), (), "")
    if row.text("task_id") not in by_id:
        raise row.wrong(
            f"task {row.text('task_id')!r} is not among the training tasks; fix tasks.train or"
            " the row"
        )
    return by_id[row.text("task_id")]
