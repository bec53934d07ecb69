"""Objects that a test constructs and gives to nothing: what it expects. A program that
answers after that had them at hand, so an answer that is one of them, or reads like one, is its
word.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from assay.judge.codec_types import CodecError
from assay.judge.objects.committed import plain_copy

UNKNOWN = object()
"""Stands for a value that is no small plain data: it may equal any other."""


class ObjectReading(NamedTuple):
    """An attribute of an object, when a test has read it."""

    value: Any
    """Plain data, or UNKNOWN."""
    number: int
    """The request by which the test has constructed the object, or which the program has answered
    with it."""

    def is_alike(self, other: ObjectReading) -> bool:
        """Whether the two may be equal."""
        return UNKNOWN in (self.value, other.value) or bool(self.value == other.value)


class ExpectedObjects:
    """Those of one job, by number."""

    def __init__(self) -> None:
        self._constructed: dict[int | str, int] = {}
        """The request by which the test has constructed each."""
        self._groups: dict[int | str, set[int | str]] = {}
        """Of each, and of what was read of it: itself, with those of which it was constructed and
        those that were constructed of it."""
        self._known: set[int | str] = set()
        """All that ever were in a group, or were read of one: none of them is an answer."""
        self._arguments: list[set[int | str]] = []
        """The objects of which the test is constructing others, the last one's last."""
        self._readings: dict[str, tuple[list[ObjectReading], list[ObjectReading]]]
        self._readings = defaultdict(lambda: ([], []))
        """By attribute: what was read of expected objects and of answers since the program was last
        asked for more than that."""
        self._epoch = 0
        self._has_alike = False
        """Whether two were read alike. Then the pass is marked, and nothing is left to find out."""
        self.owner: int | str = ""
        """The object of which the test is reading an attribute."""

    def begin(self) -> None:
        """Note that the test is about to construct an object."""
        self._arguments.append(set())

    def end(self, target: int | str | None, request: int, has_data: bool) -> None:
        """Note the object that the test has constructed, or None. It is expected where
        it was made of data or of expected objects, which then still are.
        """
        parts = self._arguments.pop() & self._groups.keys()
        if target is not None and (has_data or parts):
            self._constructed[target] = request
            self._link({target, *parts})
        else:
            for part in parts:
                self.give(part)

    def put(self, part: int | str, target: int | str) -> None:
        """Note that the test sets an attribute of `target` to an object."""
        if self._constructed.keys() >= {part, target}:
            self._link({part, target})
        else:
            self.give(part)

    def _link(self, members: set[int | str]) -> None:
        self._known |= members
        largest, *others = sorted((self._groups.get(it, {it}) for it in members), key=len)[::-1]
        for group in others:
            if group is largest:
                continue
            largest |= group
            self._groups |= dict.fromkeys(group, largest)
        self._groups |= dict.fromkeys(members, largest)

    def give(self, target: int | str) -> None:
        """Note that the program gets an object, and so may answer with it and with its parts."""
        if self._arguments:
            self._arguments[-1].add(target)
            return
        for member in self._groups.get(target, set()):
            del self._groups[member]
            self._constructed.pop(member, None)

    def arrives(self, target: int | str) -> bool:
        """Whether the program answers with an object that the test expects. What the test reads of
        an expected object belongs to that.
        """
        group = self._groups.get(self.owner, set())
        is_expected = target in self._constructed and target not in group
        if group and not is_expected:
            self._link({target, self.owner})
        elif self.owner in self._known:
            self._known.add(target)
        return is_expected

    def reads_alike(
        self, target: int | str, arrived: int, epoch: int, name: str, value: Any
    ) -> bool:
        """Whether an attribute that is read may be the same of an object that the test expects, and
        of another that the program has answered after that was constructed.
        """
        if epoch != self._epoch:
            self._readings.clear()
            self._epoch = epoch
        constructed = self._constructed.get(target, 0)
        if self._has_alike or (target in self._known and not constructed):
            return False
        try:
            data = plain_copy(value)
        except CodecError:
            data = UNKNOWN
        now = ObjectReading(data, constructed or arrived)
        of_expected, of_answers = self._readings[name]
        if constructed:
            of_expected.append(now)
            alike = (constructed < it.number and it.is_alike(now) for it in of_answers)
        else:
            of_answers.append(now)
            alike = (it.number < arrived and it.is_alike(now) for it in of_expected)
        self._has_alike = any(alike)
        return self._has_alike
