"""The standard streams of a test, which the program gets too."""

from __future__ import annotations

import builtins
import random
import sys
from collections.abc import Callable
from typing import Any

SEED = random.seed


def in_place() -> list[Any]:
    """What stands there now."""
    return [sys.stdout, sys.stderr, sys.stdin, builtins.input, builtins.print]


class Console:
    """Tells the program, before each request, of what the test has replaced: as functions that the
    program calls.
    """

    def __init__(self, pack: Callable[[Any], Any], ask: Callable[..., Any]) -> None:
        self._pack, self._ask = pack, ask
        self._own = self._told = in_place()

    def seed(self, *arguments: Any, **keywords: Any) -> None:
        """Seed `random` here and in the program."""
        SEED(*arguments, **keywords)
        self._ask("operate", "seed", [*map(self._pack, (*arguments, *keywords.values()))])

    def tell(self) -> None:
        """Tell the program of what was replaced since the last request."""
        now = in_place()
        if now == self._told:
            return
        self._told = now
        out, err, in_, ask, show = (
            None if current is before else current
            for current, before in zip(now, self._own, strict=True)
        )
        streams = [out and out.write, err and err.write, in_ and in_.read, in_ and in_.readline]
        self._ask("console", *map(self._pack, [*streams, ask, show]))
