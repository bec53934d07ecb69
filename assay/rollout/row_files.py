"""Files of rows that an algorithm learns from in place of rollouts, by what it learns from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.rollout.labels import read_labels, tasks_of_labels
from assay.rollout.pairs import read_pairs, tasks_of_pairs
from assay.rollout.prompter import Prompter
from assay.types import Sample, Task


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How files of one kind are read."""

    read: Callable[[Path, Sequence[Task], Prompter], list[list[Sample]]]
    """The samples of each row."""
    tasks: Callable[[Path], list[Task]]
    """What the rows answer."""


ROW_FILES = {
    "pairs": RowFormat(read_pairs, tasks_of_pairs),
    "labels": RowFormat(read_labels, tasks_of_labels),
}
