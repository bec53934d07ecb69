"""Reads pairs of chosen and rejected completions from a file, for DPO without rollouts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from assay.errors import DataError
from assay.rollout.prompter import Prompter
from assay.tasks.rows import Row, file_rows
from assay.types import Sample, Task, Verdict


def read_pairs(file: Path, tasks: Sequence[Task], prompter: Prompter) -> list[list[Sample]]:
    """Groups of samples for one prompt, each with at least one that passed and one that failed.

    A row with `chosen`, `rejected` and either a `prompt` or the `task_id` of one of `tasks` is one
    group. Rows of the samples.jsonl of `assay eval` (`task_id`, `reply`, `verdict`) form one group
    for each task, in which a forgeable pass is none. Raises DataError for any other row, and for a
    file without a pair.
    """
    by_id = {task.id: task for task in tasks}
    groups: dict[str, list[Sample]] = {}
    for number, row in enumerate(file_rows(file)):
        task = _task(row, by_id)
        judged = "reply" in row.fields
        name = task.id if judged else f"{number}/{task.id}"
        for answer, passed in _answers(row):
            answered = replace(task, demonstrations=(answer,))
            (sample,) = prompter.samples(answered, last_only=True)
            groups.setdefault(name, []).append(
                replace(sample, group=name, passed=passed, reward=float(passed))
            )
    mixed = [group for group in groups.values() if len({sample.passed for sample in group}) == 2]
    if not mixed:
        raise DataError(f"{file} holds no task with a completion that passed and one that failed")
    return mixed


def _answers(row: Row) -> Iterator[tuple[str, bool]]:
    if "reply" in row.fields:
        forgeable = bool(row.fields.get("forgeable"))
        yield row.text("reply"), row.text("verdict") == Verdict.PASS and not forgeable
    else:
        yield row.text("chosen"), True
        yield row.text("rejected"), False


def _task(row: Row, by_id: dict[str, Task]) -> Task:
    if "task_id" not in row.fields:
        return Task(row.place, row.text("prompt"), (), "")
    if row.text("task_id") not in by_id:
        raise row.wrong(
            f"task {row.text('task_id')!r} is not among the training tasks; fix tasks.train or"
            " the row"
        )
    return by_id[row.text("task_id")]
