"""The order in which tasks get their turns, and which of them are taken."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from assay.choices import Chance
from assay.errors import UserError
from assay.maths.seeds import derive
from assay.registry import place_of

T = TypeVar("T")


@dataclass(slots=True)
class TaskOrder:
    """Says which task each group is of.

    Tasks get their turns in an order that is shuffled in each epoch. A task whose turn it is is
    taken with the chance of the run's choice; otherwise it is the next one's turn. Where none is
    taken in two epochs, the likeliest is. Only the place and the tasks of open groups
    are state: all chances come from the seed.
    """

    count: int
    """Tasks."""
    seed: int
    chance: Chance
    place: int = 0
    """Turns so far."""
    open: dict[int, int] = field(default_factory=dict)
    """The task of each group that no step has taken, by the group's number."""

    def task_of(self, number: int) -> int:
        """The place in the pool of the task of a group. A group that starts again keeps its
        task.
        """
        if number not in self.open:
            self.open[number] = self._next(number)
        return self.open[number]

    def close(self, numbers: Iterable[int]) -> None:
        """Forget the tasks of groups that a step has taken."""
        for number in numbers:
            del self.open[number]

    def _next(self, number: int) -> int:
        likeliest, highest = 0, -1.0
        for _ in range(2 * self.count):  # wherever they begin, each task has a turn in them
            turn, self.place = self.place, self.place + 1
            task = self._turn(turn)
            chance = self._chance(task, number)
            if chance >= 1:
                return task
            if chance and random.Random(derive(self.seed, "chance", turn)).random() < chance:
                return task
            if chance > highest:
                likeliest, highest = task, chance
        return likeliest

    def _turn(self, turn: int) -> int:
        """Which task's turn it is."""
        return draw(range(self.count), 1, turn, self.seed)[0]

    def _chance(self, task: int, number: int) -> float:
        """What the choice says. Raises UserError where that is no chance."""
        chance = self.chance(task, number)
        if not isinstance(chance, int | float) or not 0 <= chance <= 1:
            raise UserError(
                f"{place_of(self.chance)}the choice of tasks gave {chance!r}; it must give a number"
                " from 0 to 1"
            )
        return chance

    @property
    def position(self) -> dict[str, Any]:
        """The state that a resumed run needs, as JSON types."""
        return {"place": self.place, "open": [[*each] for each in self.open.items()]}

    def resume(self, position: Mapping[str, Any]) -> None:
        """Continue from a `position`."""
        self.place = position["place"]
        self.open = {number: task % self.count for number, task in position["open"]}

    def resume_uniform(self, groups: int, open_groups: Iterable[int]) -> None:
        """Continue where every task was taken in its turn, after so many groups, some still
        open.
        """
        self.place = groups
        self.open = {number: self._turn(number) for number in open_groups}


def draw(items: Sequence[T], count: int, step: int, seed: int) -> list[T]:
    """`count` items for step `step`, from an order of all items that is shuffled in each epoch."""
    places = (divmod(place, len(items)) for place in range(step * count, (step + 1) * count))
    return [items[_order(len(items), seed, epoch)[place]] for epoch, place in places]


@lru_cache(maxsize=8)
def _order(count: int, seed: int, epoch: int) -> list[int]:
    order = list(range(count))
    random.Random(derive(seed, epoch)).shuffle(order)
    return order
