"""Finds mutable data that is one object in two places: in one answer, in two answers, in an answer
and what a test passed, or in what it passes and an answer. Where values alone cross that is lost.

Candidate processes import this file, so it imports little.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from typing import Any

from assay.judge.codec_types import BARE_OR_FLOAT, is_mutable

MOST = 100_000
"""Items and characters of the answers that are remembered, and so kept alive."""
ITEMS = (list, tuple, deque)
VALUES = (dict, OrderedDict, defaultdict)


class Aliases:
    """The mutable objects of a program's answers. is_shared: whether the test has passed one."""

    def __init__(self, is_shared: Callable[[Any], bool] = lambda _: False) -> None:
        self._is_shared = is_shared
        self._answered: dict[int, Any] = {}
        """By id. Each stays alive, so that no other object gets its id."""
        self._left = MOST

    def has(self, value: Any) -> bool:
        """Whether a value is an object of an answer."""
        # where the audit hook listens, it hears of each `id`
        return bool(self._answered) and id(value) in self._answered

    def add(self, answer: Any) -> bool:
        """Remember the objects of an answer. Returns whether the test or an answer had one."""
        if type(answer) in BARE_OR_FLOAT:
            return False
        repeated, left = False, [answer]
        while left and self._left > 0:
            value = left.pop()
            if is_mutable(value):
                if self.has(value) or self._is_shared(value):
                    repeated = True
                    continue
                self._answered[id(value)] = value
            parts = parts_of(value)
            self._left -= len(parts) + sum(len(part) for part in parts if type(part) is str)
            if not set(map(type, parts)) <= BARE_OR_FLOAT:
                left += parts
        return repeated


def parts_of(value: Any) -> Collection[Any]:
    """What may hold mutable data in it; nothing of an instance of a subclass, whose methods are the
    program's.
    """
    kind = type(value)
    return value if kind in ITEMS else value.values() if kind in VALUES else ()
