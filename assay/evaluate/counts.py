"""Samples and passes: of each task, and of groups of tasks (a difficulty, a language, a month)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assay.maths.estimates import Interval, mean_pass_at_k, pass_interval
from assay.types import Task


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task."""

    id: str
    passed: int
    samples: int
    """Judged completions."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of the tasks that share a label, such as `difficulty: hard`."""

    tasks: int
    """Tasks with a judged completion."""
    pass_at_1: float
    """Mean over these tasks, in [0, 1]."""
    interval: Interval
    """95 % confidence interval of `pass_at_1`, over tasks."""
    lost: int = 0
    """Completions of tasks with the label that the machine lost."""


Labels = Mapping[str, str]
"""The labels of a task by kind: {"difficulty": "hard", "topic": "graphs, strings"}."""


def by_task(judged: Iterable[tuple[str, bool]]) -> tuple[TaskResult, ...]:
    """Sum up completions, each given as its task's id and whether it passed."""
    samples, passed = Counter[str](), Counter[str]()
    for task, one_passed in judged:
        samples[task] += 1
        passed[task] += one_passed
    return tuple(TaskResult(task, passed[task], samples[task]) for task in samples)


def counts_of(tasks: Iterable[TaskResult]) -> list[tuple[int, int]]:
    """Samples and passes of each task."""
    return [(task.samples, task.passed) for task in tasks]


def pass_at(counts: Sequence[tuple[int, int]]) -> dict[int, float]:
    """pass@k for k = 1, 2, 4, ... up to the fewest samples of a task."""
    fewest = min(samples for samples, _ in counts)
    powers = (1 << exponent for exponent in range(fewest.bit_length()))
    return {k: mean_pass_at_k(counts, k) for k in powers}


def labels_of(task: Task) -> Labels:
    """The language of a task and its tags; of a date, the month."""
    labels = {"language": task.language, **task.tags}
    date = labels.pop("date", "")
    return labels | ({"month": date[:7]} if date else {})


def by_label(
    tasks: Iterable[TaskResult], labels: Mapping[str, Labels], lost: Mapping[str, int]
) -> dict[str, dict[str, GroupResult]]:
    """The tasks by each kind of label that tells groups of them apart; `labels` are by task id, and
    so are the completions that were `lost`.
    """
    lost_by_label = Counter[tuple[str, str]]()
    for id, count in lost.items():
        for kind, texts in labels.get(id, {}).items():
            lost_by_label.update({(kind, text): count for text in texts.split(", ")})
    groups = defaultdict[str, defaultdict[str, list[TaskResult]]](lambda: defaultdict(list))
    for task in tasks:
        for kind, texts in labels.get(task.id, {}).items():
            for text in texts.split(", "):
                groups[kind][text].append(task)
    return {
        kind: {text: _group(group[text], lost_by_label[kind, text]) for text in sorted(group)}
        for kind, group in groups.items()
        if 1 < len(group) < sum(map(len, group.values()))
    }


def _group(tasks: Sequence[TaskResult], lost: int) -> GroupResult:
    counts = counts_of(tasks)
    return GroupResult(len(counts), mean_pass_at_k(counts, 1), pass_interval(counts), lost)
