"""Instances of classes that the data set's setup defines (TreeNode, ListNode), which exist on both
sides: they travel by class name and attributes, never as code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import count
from typing import Any

from assay.judge.codec import Json, Packer, Unpacker
from assay.judge.codec_types import CodecError, TooLargeError


class Nodes:
    """The instances that have crossed, by number. `first`: 0 on one side and 1 on the other, whose
    numbers then differ.
    """

    def __init__(self, first: int) -> None:
        self.classes: dict[str, type] = {}
        self._known: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._next = count(first, 2)
        self._pending: list[Any] | None = None

    def name_of(self, value: object) -> str:
        """The name of its class, where that is one of these; else nothing."""
        return next((it.__name__ for it in type(value).__mro__ if it.__name__ in self.classes), "")

    def has(self, value: object) -> bool:
        """Whether it is an instance of exactly one of the classes here."""
        return type(value) in self.classes.values()

    def pack(self, value: Any, packer: Packer) -> Json:
        """A graph: a row [number, class name, attributes] for each instance that can be reached."""
        if self._pending is not None:  # inside a graph
            self._pending.append(value)
            return {"node": self._number(value)}
        self._pending, rows, visited = [value], [], set()
        try:
            while self._pending:
                value = self._pending.pop()
                if (number := self._number(value)) not in visited:
                    visited.add(number)
                    fields = {name: packer.pack(part) for name, part in attributes(value).items()}
                    rows.append([number, self.name_of(value), fields])
        finally:
            self._pending = None
        return {"graph": rows}

    def unpack(
        self, rows: Json, unpacker: Unpacker, in_place: bool, on_change: Callable[[], object]
    ) -> Any:
        """The first instance of a graph. Raises CodecError.

        An instance that has crossed before is changed in place, with `in_place`; else a changed one
        is a new one, and so is the rest of its graph.
        """
        unpacker.left -= len(rows)
        if unpacker.left < 0:
            raise TooLargeError("too many instances")
        new: dict[int, Any] = {
            number: object.__new__(self.classes[name]) for number, name, _ in rows
        }
        known = new.keys() & self._known.keys()
        made = new | {number: self._known[number] for number in known}
        fields = self._fields(rows, made, unpacker)
        if any(fields[number] != attributes(made[number]) for number in known):
            on_change()
            if not in_place:
                made, fields = new, self._fields(rows, new, unpacker)
        for number, instance in made.items():
            fill(instance, fields[number])
            if number not in self._known:
                self._known[number], self._numbers[id(instance)] = instance, number
        return made[rows[0][0]]

    def _fields(
        self, rows: Json, made: dict[int, Any], unpacker: Unpacker
    ) -> dict[int, dict[str, Any]]:
        """The attributes of each instance, with others in their places."""
        unpacker.foreign["node"] = made.__getitem__
        for number, name, packed in rows:
            kind = self.classes[name]
            if type(number) is not int or any(callable(getattr(kind, at, None)) for at in packed):
                raise CodecError("a malformed instance")
        return {
            number: {at: unpacker.inner(part) for at, part in packed.items()}
            for number, _, packed in rows
        }

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), next(self._next))
        self._known[number] = value
        return number


def attributes(value: Any) -> dict[str, Any]:
    """Its attributes with their values, those in slots too."""
    state = object.__getstate__(value)
    own, slots = state if isinstance(state, tuple) else (state, None)
    return {**(own or {}), **(slots or {})}


def fill(instance: Any, fields: dict[str, Any]) -> None:
    """Give an instance these attributes, without running its methods."""
    with contextlib.suppress(AttributeError):
        own = object.__getattribute__(instance, "__dict__")
        own.clear()
        own.update(fields)
        return
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
