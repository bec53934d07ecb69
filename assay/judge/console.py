"""What a test puts in place of standard input and output, `input`, `print` and the seed of `random`
holds for the program too.
"""

from __future__ import annotations

import builtins
import random
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.judge.proxy import Connection

INPUT, PRINT, SEED = builtins.input, builtins.print, random.seed


class Console:
    """Entered around each request: what the program prints meanwhile goes where the test wants."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stdout, self._stdin = sys.stdout, sys.stdin
        self._sent: list[Any] = [False, None, None, None]
        self._depth = 0

    def seed(self, *arguments: Any, **named: Any) -> None:
        """Seed `random` here and in the program."""
        SEED(*arguments, **named)
        packed = [self._connection.packer.pack(value) for value in (*arguments, *named.values())]
        self._connection.ask("seed", *packed)

    def __enter__(self) -> None:
        self._depth += 1
        if (
            sys.stdout is self._stdout
            and sys.stdin is self._stdin
            and self._sent[0] is False
            and (
                builtins.input is INPUT and builtins.print is PRINT and self._sent[1:] == [None] * 3
            )
        ):
            return
        pack = self._connection.packer.pack
        text = None
        if sys.stdin is not self._stdin:
            at = sys.stdin.tell()
            text = sys.stdin.read()
            sys.stdin.seek(at)
        self._sent = [
            sys.stdout is not self._stdout, text,
            None if builtins.input is INPUT else pack(builtins.input),
            None if builtins.print is PRINT else pack(builtins.print),
        ]  # fmt: skip
        self._connection.ask("console", *self._sent)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth or not (self._sent[0] or self._sent[1] is not None):
            return
        if self._connection.requests.failure:
            return
        printed, read = self._connection.ask("printed")
        if self._sent[0] and type(printed) is str:
            sys.stdout.write(printed)
        if self._sent[1] is not None and type(read) is int:
            sys.stdin.read(read)
