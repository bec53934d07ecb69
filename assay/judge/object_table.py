"""What a candidate process sends for objects that are no data: handles, and what their classes are.

It may run the program's code and the program may change all of it; the other side believes nothing.
"""

from __future__ import annotations

import contextlib
import io
import random
import types
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import Any, cast

from assay.judge.codec import Json, Packer, error_name, is_iterator, raised
from assay.judge.codec_types import COLLAPSE, MUTABLE, collapsed
from assay.judge.operations import OF_OBJECTS, OPERATIONS, REFLECTED
from assay.judge.shared_data import SetupInstances


class Exports:
    """The objects of a program that have been sent, by number."""

    def __init__(self, module: str) -> None:
        self.objects: list[Any] = []
        self.callbacks: dict[int, Callable[..., Any]] = {}
        """By number: the functions that stand for those that a test passed."""
        self.sends_objects = True
        """Whether objects are sent that are no data; else they are opaque."""
        self.nodes = SetupInstances(1)
        self.packer = Packer(self._foreign)
        self.packer.intercept = self._unusual
        self._module = module
        self._numbers: dict[int, int] = {}
        self._described: dict[int, Json] = {}

    def number(self, value: Any) -> int:
        """The number of an object; it is kept from now on."""
        at = self._numbers.setdefault(id(value), len(self.objects))
        if at == len(self.objects):
            self.objects.append(value)
        return at

    def raised(self, error: BaseException, caused: bool = False) -> list[Json]:
        """What is sent for an exception: as `codec.raised`, then its number and class where that is
        the program's own, then the same of its cause. `caused`: it is a cause itself.
        """
        parts, own, cause = raised(error), None, None
        with contextlib.suppress(Exception):  # this may run the program's own code
            own_class = isinstance(error, Exception) and not error_name(type(error))
            if own_class and self.sends_objects:
                own = [self.number(error), self._describe(type(error))]
        if error.__cause__ and not caused:
            cause = self.raised(error.__cause__, caused=True)
        return [*parts, own, cause]

    def _foreign(self, value: Any) -> Json:
        """What is sent for an object that is no data."""
        if isinstance(value, type) and self.sends_objects:
            return {"class": self._describe(value)}
        if self.nodes.name_of(value):
            return self.nodes.pack(value, self.packer)
        for number, function in self.callbacks.items():
            if function is value:
                return {"callback": number}
        if isinstance(value, BaseException):
            return {"error": self.raised(value)}
        if type(value) is types.CoroutineType:
            return {"coroutine": self.number(value)}
        if not self.sends_objects:
            return opaque(value)
        return {"handle": [self.number(value), self._describe(type(value))]}

    def _unusual(self, value: Any) -> Json:
        """What is sent for an iterator of Python's, and for data of a class of its own."""
        kind = type(value)
        of_python = kind.__module__ in ("builtins", "itertools") or not self.sends_objects
        if of_python and is_iterator(value):
            if hasattr(kind, "__await__"):
                return self._foreign(value)
            return {"lazy": self.number(value)}
        plain = collapsed(value, kind)
        if plain is value or not self.sends_objects:
            return None
        return {"subclass": [self.number(value), self._describe(kind), self.packer.pack(plain)]}

    def _describe(self, kind: type) -> Json:
        """What a class is: number, name, own special methods, whether it holds mutable data, bases
        (classes of the program, or names of Python's), names and numbers of an Enum's members.
        """
        number = self.number(kind)
        if number not in self._described:
            own = {name for base in kind.__mro__ if base not in PLAIN for name in vars(base)}
            bases = filter(None, dict.fromkeys(map(self._base, kind.__bases__)))
            members = [] if issubclass(kind, DATA) else getattr(kind, "__members__", {})
            self._described[number] = [
                number, kind.__name__, sorted(own & SPECIAL), issubclass(kind, MUTABLE),
                [self._describe(base) if isinstance(base, type) else base for base in bases],
                [[name, self.number(member)] for name, member in dict(members).items()]
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


def opaque(value: object) -> Json:
    """What is sent for an object that is no data where only data is read: the items of an iterator,
    or the type's name and the truth value.
    """
    if is_iterator(value):
        return Packer(opaque).snapshot(cast("Iterator[Any]", value))
    truth = None
    with contextlib.suppress(Exception):  # this may run the program's own code
        truth = bool(value)
    return {"opaque": [type(value).__name__, truth]}


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
