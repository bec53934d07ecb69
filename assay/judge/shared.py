"""Mutable data that test and program both hold: what one changes in place, the other sees. Each
side tells the other with each request and each reply.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

from assay.judge.codec import Json, Packer, dumps
from assay.judge.codec_types import MUTABLE, CodecError, write_back
from assay.judge.nodes import Nodes

Held = dict[int, tuple[Any, bytes | str]]
"""By number: an object, and what it was when it last crossed."""


def references(held: Held, number: int) -> int:
    """How many references there are to an object; more than UNHELD where this side has one."""
    value, _ = held[number]
    return sys.getrefcount(value)


class _Probe:
    def __call__(self, *arguments: Any, **named: Any) -> list[int]:
        return [*map(sys.getrefcount, arguments), *map(sys.getrefcount, named.values())]


UNHELD = references({0: ([], "")}, 0)
PASSED, PASSED_BY_NAME = _Probe()([], it=[])
"""References to an argument of a call that nothing but the call holds."""


class SharedObjects:
    """Arguments and answers that both sides still hold, by number."""

    def __init__(self, packer: Packer, nodes: Nodes) -> None:
        self.numbers = count(1)
        self._packer, self._nodes = packer, nodes
        self._held: Held = {}

    def keep(self, number: int, value: Any) -> int | None:
        """The number of an object that either side may change from now on; None for another."""
        if type(value) not in MUTABLE and not self._nodes.has(value):
            return None
        self._held[number] = value, self._text(value)
        return number

    def keep_passed(self, arguments: Collection[Any], free: int) -> list[int | None]:
        """Numbers for the arguments of a call that the test holds beyond the call."""
        counts = [*map(sys.getrefcount, arguments)]
        return [
            self.keep(next(self.numbers), value) if references > free else None
            for value, references in zip(arguments, counts, strict=True)
        ]

    def tell(self) -> list[Json]:
        """What this side has changed since it last reported, and what it no longer holds."""
        changed, dropped = list[Json](), list[int]()
        if not self._held:
            return [changed, dropped]
        for number, (value, before) in [*self._held.items()]:
            now = self._text(value)
            if now != before and now:
                changed.append([number, self._packer.pack(value)])
                self._held[number] = value, now
        value = None
        for number in [*self._held]:
            if references(self._held, number) <= UNHELD:
                dropped.append(number)
                del self._held[number]
        return [changed, dropped]

    def take(self, changes: Json, new: Callable[[Json], Any]) -> None:
        """Take over what the other side tells; `new` unpacks what an object is now. Raises
        CodecError.
        """
        try:
            changed, dropped = changes
            for number, packed in changed:
                if number in self._held:
                    old = self._held[number][0]
                    write_back(old, new(packed))
                    self._held[number] = old, self._text(old)
            for number in dropped:
                self._held.pop(number, None)
        except (TypeError, ValueError):
            raise CodecError("a change of nothing that was sent") from None

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
