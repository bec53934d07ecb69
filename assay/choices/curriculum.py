"""Easy tasks first, then harder ones too."""

from math import ceil

from assay.choices import Chance, TaskPool, choice, require_shares
from assay.errors import DataError
from assay.types import Task


@choice
def curriculum(
    pool: TaskPool, *, by: str = "prompt_length", order: tuple[str, ...] = (), start: float = 0.2,
    epochs: float = 1.0,
) -> Chance:  # fmt: skip
    """Begin with the first share `start` of the tasks, and let in the others over so many `epochs`:
    by their `prompt_length` in tokens, or by a tag, such as `level`, whose values are numbers or
    stand in `order`.
    """
    require_shares("curriculum", start=start)
    levels = [
        len(prompted.prompt) if by == "prompt_length" else _level(prompted.task, by, order)
        for prompted in pool.tasks
    ]
    ascending = sorted(levels)

    def chance(place: int, number: int) -> float:
        done = min(1.0, number / (epochs * len(levels))) if epochs > 0 else 1.0
        count = ceil((start + (1 - start) * done) * len(levels))
        return float(levels[place] <= ascending[max(1, count) - 1])

    return chance


def _level(task: Task, tag: str, order: tuple[str, ...]) -> float:
    """The place of the task's tag in `order`, or its number. Raises DataError."""
    value = task.tags.get(tag)
    if value is None:
        raise DataError(
            f"task {task.id!r} has no tag {tag!r}, by which tasks.choice orders the tasks; give it"
            " one, or set tasks.choice.by"
        )
    try:
        return float(order.index(value) if order else value)
    except ValueError:
        why = "is not in tasks.choice.order" if order else "is no number; set tasks.choice.order"
        raise DataError(f"the tag {tag!r} of task {task.id!r}, {value!r}, {why}") from None
