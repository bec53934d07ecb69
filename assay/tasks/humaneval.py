"""HumanEval: 164 functions to complete from a signature and docstring (arXiv:2107.03374)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from assay.tasks import is_file, require_split, task_set
from assay.tasks.python_source import parsed, without
from assay.tasks.rows import Origin, Row, file_rows, public_rows
from assay.types import Check, Task

ORIGIN = Origin(file="humaneval/HumanEval.jsonl.gz", hub="openai/openai_humaneval")
STOP = ("\nassert ", "\nprint(", "\nif __name__")
"""What no completion needs at the start of a line; `def` or `#` may open a helper, so extract.py decides on those."""
SPLIT_SEED, TRAIN_SHARE = 42, 0.8


@task_set
def humaneval(split: str = "test") -> Iterator[Task]:
    """HumanEval: 164 functions to complete (arXiv:2107.03374). Splits: test (all), train131 and test33 (shuffled)."""
    if is_file(split):
        yield from map(task_of, file_rows(Path(split)))
        return
    require_split("humaneval", split, ("test", "train131", "test33"))
    tasks = [task_of(row) for row in public_rows(ORIGIN)]
    if split != "test":
        random.Random(SPLIT_SEED).shuffle(tasks)
        held_out = int(len(tasks) * TRAIN_SHARE)
        tasks = tasks[:held_out] if split == "train131" else tasks[held_out:]
    yield from tasks


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
        setup=without(prompt, parsed(prompt, row, "prompt"), entry_point),
        reference=prompt + row.text("canonical_solution"),
        stop=STOP,
    )
