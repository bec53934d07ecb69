"""What test and program both hold: mutable data, and instances of the data set's classes. What one
changes in place, the other sees. Each side tells the other with each request and each reply.

Mutable data crosses as its number. What it holds stands beside, in a table of the objects that
are new or have changed, in which other shared objects are numbers too: so one object with two
names is one object on the other side. Instances of classes that the data set's setup defines
(TreeNode, ListNode) travel by class name and attributes, never as code.
"""

from __future__ import annotations

import contextlib
import marshal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from assay.judge.codec import Json, Packer, Shared, Unpacker, dumps
from assay.judge.codec_types import (
    BARE_OR_FLOAT,
    CodecError,
    TooLargeError,
    is_mutable,
    with_parts,
    write_back,
)
from assay.judge.shared_files import SharedFiles

Held = dict[int, tuple[Any, bytes | str]]
"""By number: an object, and what it was when it last crossed."""


def references(holder: Held, number: int) -> int:
    """How many references there are to an object; more than UNHELD where this side has one."""
    value, _ = holder[number]
    return sys.getrefcount(value)


UNHELD = references({0: ([], "")}, 0)


class SharedObjects:
    """Arguments and answers that both sides still hold, by number. `first`: 0 on one side and 1 on
    the other, whose numbers then differ.
    """

    def __init__(self, packer: Packer, nodes: SetupInstances, first: int) -> None:
        self._packer, self._nodes = packer, nodes
        self._numbers = count(first, 2)
        self._held: Held = {}
        self._number_of: dict[int, int] = {}
        """By id."""
        self._table: list[Json] = []
        """Number and content of each object that the other side has not got yet."""
        self.new = set[int]()
        """Objects that the other side sent with its last message."""
        self._open = set[int]()
        """Objects whose content is being packed."""
        self.files: SharedFiles | None = None
        """Where test and program share files."""

    def pack(self, value: Any) -> Json:
        """A value, whose mutable objects are shared from now on. Raises CodecError."""
        if type(value) in BARE_OR_FLOAT:
            return self._packer.pack(value)
        whole = Shared(self._share(value)) if self._nodes.has(value) else self._with_numbers(value)
        return self._packer.pack(whole)

    def has(self, value: Any) -> bool:
        """Whether both sides hold this object."""
        return bool(self._number_of) and id(value) in self._number_of

    def rebuild(self, parts: Json) -> Any:
        """The object of a number. Raises KeyError, TypeError, ValueError."""
        (number,) = parts
        return self._held[number][0]

    def tell(self) -> list[Json]:
        """The objects that are new, or that this side has changed since it last reported; those
        that it no longer holds; and changed files.
        """
        if not (self._held or self._table or self.files):
            return [[], [], self._packer.pack([])]
        new = {number for number, _ in self._table}
        for number, (value, before) in reversed([*self._held.items()]):  # parts come first
            if number not in new and (now := self._text(value)) != before:
                self._held[number] = value, now
                lost = {"opaque": ["list that cannot be sent", None, 2]}
                self._table.append([number, self._content(value) if now else lost])
        table, self._table, dropped = self._table, [], list[int]()
        value = None
        for number in [*self._held]:
            if references(self._held, number) <= UNHELD:
                dropped.append(number)
                self._drop(number)
        return [table, dropped, self._packer.pack(self.files.tell() if self.files else [])]

    def take(
        self,
        changes: Json,
        unpack: Callable[[Json], Any],
        may_change: Callable[[], bool] = lambda: True,
    ) -> set[str]:
        """Take over what the other side tells. What this side has is changed where it `may_change`;
        else a changed object is a new one, which has the number from now on. Returns the files of
        this side's own that the other has changed. Raises CodecError.
        """
        try:
            table, dropped, files = changes
            if not (table or dropped or self.files):
                self.new = set()
                return set()
            self.new = {number for number, _ in table if number not in self._held}
            for number, packed in table:
                value = unpack(packed)
                if type(packed) is dict and "opaque" in packed:
                    continue  # it holds what cannot be sent
                if number in self._held and may_change():
                    write_back(self._held[number][0], value)
                else:
                    self._drop(number)
                    self._hold(number, value)
            for number in self._held.keys() & {number for number, _ in table}:
                self._held[number] = self._held[number][0], self._text(self._held[number][0])
            for number in dropped:
                self._drop(number)
            return self.files.take(Unpacker().value(files)) if self.files else set()
        except (TypeError, ValueError, KeyError):
            raise CodecError("a change of nothing that was sent") from None

    def _with_numbers(self, value: Any) -> Any:
        """The value, with numbers in place of the mutable objects in it."""
        if is_mutable(value):
            return Shared(self._share(value))
        return with_parts(value, self._with_numbers) if type(value) is tuple else value

    def _share(self, value: Any) -> int:
        """The number of an object, which goes into the table where it is new."""
        number = self._number_of.get(id(value))
        if number in self._open:
            raise TooLargeError("a value contains itself")
        if number is None:
            number = next(self._numbers)
            self._hold(number, value)
            self._open.add(number)
            try:
                self._table.append([number, self._content(value)])
            except BaseException:
                self._drop(number)  # the other side does not get it
                raise
            finally:
                self._open.discard(number)
            self._held[number] = value, self._text(value)
        return number

    def _content(self, value: Any) -> Json:
        """What an object holds, with numbers for the mutable objects in it."""
        return self._packer.pack(with_parts(value, self._with_numbers))

    def _hold(self, number: int, value: Any) -> None:
        if type(number) is not int or not (is_mutable(value) or self._nodes.has(value)):
            raise CodecError("a shared object that cannot change")
        self._held[number] = value, ""
        self._number_of[id(value)] = number

    def _drop(self, number: int) -> None:
        value, _ = self._held.pop(number, (None, ""))
        self._number_of.pop(id(value), None)

    def _text(self, value: Any) -> bytes | str:
        """What an object is now; nothing where it holds what cannot be sent."""
        try:
            return marshal.dumps(value, 2)
        except ValueError:  # it holds more than plain data
            quiet, self._packer.quiet = self._packer.quiet, True
        try:
            return dumps(self._packer.pack(value))
        except CodecError:
            return ""
        finally:
            self._packer.quiet = quiet


class SetupInstances:
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
        numbers = new.keys() & self._known.keys()
        instances = new | {number: self._known[number] for number in numbers}
        fields = self._fields(rows, instances, unpacker)
        if any(fields[number] != attributes(instances[number]) for number in numbers):
            on_change()
            if not in_place:
                instances, fields = new, self._fields(rows, new, unpacker)
        for number, instance in instances.items():
            fill(instance, fields[number])
            if number not in self._known:
                self._known[number], self._numbers[id(instance)] = instance, number
        return instances[rows[0][0]]

    def _fields(
        self, rows: Json, instances: dict[int, Any], unpacker: Unpacker
    ) -> dict[int, dict[str, Any]]:
        """The attributes of each instance, with others in their places."""
        unpacker.foreign["node"] = instances.__getitem__
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
    fields, slots = state if isinstance(state, tuple) else (state, None)
    return {**(fields or {}), **(slots or {})}


def fill(instance: Any, fields: dict[str, Any]) -> None:
    """Give an instance these attributes, without running its methods."""
    with contextlib.suppress(AttributeError):
        state = object.__getattribute__(instance, "__dict__")
        state.clear()
        state.update(fields)
        return
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
