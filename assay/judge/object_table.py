"""What a candidate process says of objects that are no data: their classes, and what a test does to
them.

It may run the program's code and the program may change all of it; the other side believes nothing.
"""

from __future__ import annotations

import io
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from assay.judge.codec import Json, error_name
from assay.judge.codec_types import COLLAPSE, MUTABLE, collapsed
from assay.judge.operations import OF_OBJECTS, OPERATIONS, REFLECTED


class ClassTable:
    """What the classes of a program are, of whose objects handles are sent. `number` gives an
    object its number; `module` is the program's.
    """

    def __init__(self, module: str, number: Callable[[Any], int]) -> None:
        self._module, self._number = module, number
        self._described: dict[int, Json] = {}

    def describe(self, kind: type) -> Json:
        """What a class is: number, name, own special methods, whether it holds mutable data, bases
        (classes of the program, or names of Python's), names and numbers of an Enum's members.
        """
        number = self._number(kind)
        if number not in self._described:
            names = {name for base in kind.__mro__ if base not in PLAIN for name in vars(base)}
            bases = filter(None, dict.fromkeys(map(self._base, kind.__bases__)))
            members = [] if issubclass(kind, DATA) else getattr(kind, "__members__", {})
            self._described[number] = [
                number, kind.__name__, sorted(names & SPECIAL), issubclass(kind, MUTABLE),
                [self.describe(base) if isinstance(base, type) else base for base in bases],
                [[name, self._number(member)] for name, member in dict(members).items()]
                if issubclass(kind, Enum) else [],
            ]  # fmt: skip
        return self._described[number]

    def _base(self, kind: type) -> type | str:
        """A base of the program's own, or the nearest of Python's that is data or an exception."""
        if kind.__module__ == self._module:
            return kind
        names = (IMMUTABLE.get(base) or error_name(base) for base in kind.__mro__)
        return next(filter(None, names), "")


DATA = tuple(kind for kind, _ in COLLAPSE)
IMMUTABLE = {kind: kind.__name__ for kind in DATA if kind not in MUTABLE}
LOOPS: list[Any] = []
"""The event loop of the program, once it needs one."""
PLAIN = {object, *IMMUTABLE}
"""Classes whose operations the other side has itself."""
SPECIAL = {*OPERATIONS, *OF_OBJECTS, *REFLECTED}


def signature(of: Any) -> list[Json]:
    """Name, kind and [default] of each parameter."""
    import inspect

    parameters = inspect.signature(of).parameters.values()
    return [
        [it.name, int(it.kind), [] if it.default is it.empty else [it.default]] for it in parameters
    ]


def run_to_end(awaitable: Awaitable[Any]) -> Any:
    """What an awaitable gives, in an event loop that lives as long as the program."""
    import asyncio  # many modules, which few programs need

    async def waiting() -> Any:
        return await awaitable

    if not LOOPS:
        LOOPS.append(asyncio.new_event_loop())
    return LOOPS[0].run_until_complete(waiting())


class Stream(io.TextIOBase):
    """A standard stream that the test has replaced: its own functions."""

    def __init__(self, **functions: Any) -> None:
        vars(self).update(functions)


ON_OBJECTS: dict[str, Callable[..., Any]] = {
    **OPERATIONS, "getattr": getattr, "setattr": setattr, "delattr": delattr,
    "await": run_to_end, "seed": random.seed, "signature": signature,
    "plain": lambda of: collapsed(of, type(of)),
}  # fmt: skip
"""By name: what the other side asks for."""
