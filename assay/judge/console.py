"""What a test puts in place of standard streams, `input`, `print` and the seed of `random` holds
for the program too.
"""

from __future__ import annotations

import builtins
import random
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.judge.proxy import Connection

SEED = random.seed


def in_place() -> list[Any]:
    """What stands there now."""
    return [sys.stdout, sys.stderr, sys.stdin, builtins.input, builtins.print]


class Console:
    """Tells the program, before each request, of what the test has replaced: as functions that the
    program calls.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._own = self._told = in_place()

    def seed(self, *arguments: Any, **named: Any) -> None:
        """Seed `random` here and in the program."""
        SEED(*arguments, **named)
        pack = self._connection.packer.pack
        self._connection.ask("operate", "seed", [*map(pack, (*arguments, *named.values()))])

    def tell(self) -> None:
        """Tell the program of what was replaced since the last request."""
        now = in_place()
        if now == self._told:
            return
        self._told = now
        out, err, in_, ask, show = (
            None if one is own else one for one, own in zip(now, self._own, strict=True)
        )
        streams = [out and out.write, err and err.write, in_ and in_.read, in_ and in_.readline]
        self._connection.ask("console", *map(self._connection.packer.pack, [*streams, ask, show]))
