"""Mutable data that test and program both hold: what one changes in place, the other sees."""

from __future__ import annotations

import sys
from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING, Any

from assay.judge.codec import Json, dumps
from assay.judge.codec_types import MUTABLE, CodecError, write_back

if TYPE_CHECKING:
    from assay.judge.proxy import Connection

Held = dict[int, tuple[Any, str]]
"""By number: an object, and what it was when it last crossed."""


def references(held: Held, number: int) -> int:
    """How many references there are to an object; more than UNHELD where the test has one."""
    value, _ = held[number]
    return sys.getrefcount(value)


class _Probe:
    def __call__(self, *arguments: Any, **named: Any) -> list[int]:
        return [*map(sys.getrefcount, arguments), *map(sys.getrefcount, named.values())]


UNHELD = references({0: ([], "")}, 0)
PASSED, PASSED_BY_NAME = _Probe()([], it=[])
"""References to an argument of a call that nothing but the call holds."""


class SharedObjects:
    """Arguments and answers that the test still holds, by number.

    A change that the program makes is written back where `mutates`, and is noted in any case.
    """

    def __init__(self, connection: Connection) -> None:
        self.mutates = False
        self.numbers = count(1)
        self._connection = connection
        self._held: Held = {}
        self._changed: list[Json] = []
        self._dropped: list[int] = []

    def look(self) -> None:
        """Note what the test has changed since the last request, and what it no longer holds."""
        for number in list(self._held):
            value, before = self._held[number]
            now = self._text(value)
            if now != before and now is not None:
                self._changed.append([number, self._connection.packer.pack(value)])
            self._held[number] = value, now or before
            value = None
            if references(self._held, number) <= UNHELD:
                self._dropped.append(number)
                del self._held[number]

    def take(self) -> list[Json]:
        """What to tell the program: what the test has changed, and what it no longer holds."""
        (changed, self._changed), (dropped, self._dropped) = (
            (self._changed, []),
            (self._dropped, []),
        )
        return [changed, dropped]

    def arguments(
        self, arguments: Collection[Any], packed: Collection[Json], free: int
    ) -> list[int | None]:
        """Numbers for the arguments of a call that the test holds beyond the call."""
        counts = list(map(sys.getrefcount, arguments))
        return [
            self.add(value, data) if references > free else None
            for value, data, references in zip(arguments, packed, counts, strict=True)
        ]

    def add(self, value: Any, packed: Json, number: int = 0) -> int | None:
        """The number of an object that either side may change from now on; None for another."""
        if type(value) not in MUTABLE and not self._connection.nodes.has(value):
            return None
        number = number or next(self.numbers)
        self._held[number] = value, dumps(packed)
        return number

    def write_back(self, changes: Json) -> None:
        """Take over what the program has changed."""
        for pair in changes if type(changes) is list else ():
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not int:
                raise self._connection.requests.fail(
                    "forbidden", "a change of nothing that was sent"
                )
            if pair[0] not in self._held:  # dropped meanwhile
                continue
            self._connection.trust("mutation")
            if self.mutates:
                old = self._held[pair[0]][0]
                write_back(old, self._connection.arrivals.value(pair[1]))
                self._held[pair[0]] = old, self._text(old) or ""

    def _text(self, value: Any) -> str | None:
        """What a shared object is now; None where it holds what cannot be sent."""
        self._connection.quiet = True
        try:
            return dumps(self._connection.packer.pack(value))
        except CodecError:
            return None
        finally:
            self._connection.quiet = False
