"""HumanEval: 164 functions to complete from a signature and docstring (arXiv:2107.03374)."""

from __future__ import annotations

import random
from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.python_source import around
from assay.tasks.rows import PublicSet, Row
from assay.types import Check, Task

HUMANEVAL = PublicSet(
    "humaneval",
    "humaneval/HumanEval.jsonl.gz",
    "openai/openai_humaneval",
    splits=("test", "train131", "test33"),
)
STOP = ("\nassert ", "\nprint(", "\nif __name__")
"""What no completion needs at the start of a line; `def` or `#` may open a helper, so extract.py
decides on those."""
SPLIT_SEED, TRAIN_SHARE = 42, 0.8


@task_set
def humaneval(split: str = "test") -> Iterator[Task]:
    """HumanEval: 164 functions to complete (arXiv:2107.03374). Splits: test (all), train131 and
    test33 (shuffled).
    """
    tasks = map(task_of, HUMANEVAL.rows(split))
    if split not in ("train131", "test33"):
        return tasks
    shuffled = list(tasks)
    random.Random(SPLIT_SEED).shuffle(shuffled)
    held_out = int(len(shuffled) * TRAIN_SHARE)
    return iter(shuffled[:held_out] if split == "train131" else shuffled[held_out:])


def task_of(row: Row) -> Task:
    """A row in HumanEval's format: task_id, prompt, entry_point, test, canonical_solution.

    Raises DataError when a field is missing or is no Python.
    """
    prompt, entry_point = row.text("prompt"), row.text("entry_point")
    return Task(
        id=row.text("task_id"),
        prompt=prompt,
        checks=(Check(f"{row.text('test')}\n\ncheck({entry_point})"),),
        entry_point=entry_point,
        stub=prompt,
        setup=around(prompt, row, "prompt", entry_point),
        reference=prompt + row.text("canonical_solution"),
        stop=STOP,
    )
