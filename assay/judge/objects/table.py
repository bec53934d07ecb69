"""What a candidate process says of objects that are no data: their classes, and what a test does to
them.

It may run the program's code and the program may change all of it; the other side believes nothing.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Awaitable, Callable
from enum import Enum, EnumMeta
from types import CodeType
from typing import Any

from assay.judge.codec import Json, Packer, error_name
from assay.judge.codec_types import (
    COLLAPSE,
    MUTABLE,
    VIEWS,
    CodecError,
    collapsed,
    data_of_view,
    is_numpy,
)
from assay.judge.objects.committed import plain_copy
from assay.judge.objects.operations import OF_OBJECTS, OPERATIONS, REFLECTED
from assay.judge.shared_data import attributes


class ClassTable:
    """What the classes of a program are, of whose objects handles are sent. `number` gives an
    object its number; `module` is the program's.
    """

    def __init__(self, module: str, number: Callable[[Any], int]) -> None:
        self._module, self._number = module, number
        self._described: dict[int, Json] = {}

    def describe(self, kind: type) -> Json:
        """What a class is: number, name, own special methods, of what mutable data it is, bases
        (classes of the program, or names of Python's), an Enum's members, whether the class says
        itself what is an instance of it, its abstract bases of Python's, and its parameters.
        """
        number = self._number(kind)
        if number not in self._described:
            names = {name for base in kind.__mro__ if base not in PLAIN for name in vars(base)}
            bases = filter(None, dict.fromkeys(map(self._base, kind.__bases__)))
            members = getattr(kind, "__members__", {}) if issubclass(kind, Enum) else {}
            of_data = next((base for base in (*MUTABLE, *VIEWS) if issubclass(kind, base)), None)
            self._described[number] = [
                number, kind.__name__, sorted(names & SPECIAL), of_data and of_data.__name__,
                [self.describe(base) if isinstance(base, type) else base for base in bases],
                [[name, *self._member(member)] for name, member in dict(members).items()],
                type(kind).__instancecheck__ is not type.__instancecheck__,
                [base.__name__ for base in kind.__mro__ if base.__module__ in ABSTRACT],
                parameters(kind),
            ]  # fmt: skip
        return self._described[number]

    def state(self, value: Any) -> list[Json]:
        """What an object holds, by the parameters of its class."""
        _, *rows = self.describe(type(value))[-1] or [0]
        return state_of(value, [name.lstrip("_") for name, _ in rows]) if rows else []

    def _member(self, member: Any) -> list[Json]:
        """Number, data and value of a member of an Enum; no value where that is no plain data, or
        where the class may answer otherwise for it.
        """
        value = []
        if type(type(member)) is EnumMeta:
            with contextlib.suppress(CodecError):
                value = [Packer().pack(member.value)]
        plain = collapsed(member, type(member))
        return [self._number(member), None if plain is member else Packer().pack(plain), value]

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
TASKS: dict[int, tuple[Any, Any]] = {}
"""By the id of an awaitable: the task that waits for it, and itself."""
ABSTRACT = ("collections.abc", "numbers")
"""Modules of abstract bases."""
VARIADIC = 0x04 | 0x08
"""Flags of code that takes any number of arguments, as in `inspect`, which loads slowly."""
PLAIN = {object, *IMMUTABLE}
"""Classes whose operations the other side has itself."""
SPECIAL = {*OPERATIONS, *OF_OBJECTS, *REFLECTED}


def parameters(kind: type) -> list[Any]:
    """Of a class whose constructor has a fixed number of parameters: how many may be positional,
    then name and [default] of each, the default where it is plain data.
    """
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        defaults = getattr(kind, "_field_defaults", {})
        return [len(kind._fields), *([name, default(defaults, name)] for name in kind._fields)]
    code = getattr(kind.__init__, "__code__", None)  # type: ignore[misc]
    if type(code) is not CodeType or code.co_flags & VARIADIC:
        return []
    positional = code.co_varnames[1 : code.co_argcount]
    by_keyword = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    of_last = kind.__init__.__defaults__ or ()  # type: ignore[misc]
    defaults = dict(zip(reversed(positional), reversed(of_last), strict=False))
    defaults |= kind.__init__.__kwdefaults__ or {}  # type: ignore[misc]
    names = (*positional, *by_keyword)
    return [len(positional), *([name, default(defaults, name)] for name in names)]


def default(defaults: dict[str, Any], name: str) -> list[Json]:
    """The default of a parameter, if it is plain data."""
    with contextlib.suppress(KeyError, CodecError):
        return [Packer().pack(plain_copy(defaults[name]))]
    return []


def state_of(value: Any, names: list[str]) -> list[Json]:
    """The attributes by these names, or by the same with an underscore, where there are no others
    and they hold small plain data.
    """
    with contextlib.suppress(Exception):  # whatever the program has made of its objects
        fields = {name.removeprefix(f"_{type(value).__name__}").lstrip("_"): part
                  for name, part in attributes(value).items()}  # fmt: skip
        if fields.keys() == set(names):
            return [Packer().pack(plain_copy(fields[name])) for name in names]
    return []


def fields_of(error: BaseException) -> list[Json]:
    """Name and value of each attribute of an exception that is small plain data."""
    fields = []
    for name, value in vars(error).items():
        with contextlib.suppress(CodecError):
            fields.append([name, Packer().pack(plain_copy(value))])
    return fields


def as_array(of: Any) -> Any:
    """An object as an array of numpy's, where that is data; else None."""
    with contextlib.suppress(Exception):  # it may run the program's own code
        import numpy

        array = numpy.asarray(of)
        if is_numpy(array):
            return array
    return None


def signature(of: Any) -> list[Json]:
    """Name, kind and [default] of each parameter."""
    import inspect

    parameters = inspect.signature(of).parameters.values()
    return [
        [it.name, int(it.kind), [] if it.default is it.empty else [it.default]] for it in parameters
    ]


def wait(awaitable: Awaitable[Any], seconds: float | None, cancel: bool) -> tuple[bool | None, Any]:
    """Run an awaitable for a while, or to its end, in an event loop that lives as long as the
    program: whether it has ended, and what it gives. None in place of True: it was cancelled.
    """
    import asyncio  # many modules, which few programs need

    async def waiting() -> Any:
        return await awaitable

    if not LOOPS:
        LOOPS.append(asyncio.new_event_loop())
    loop, key = LOOPS[0], id(awaitable)
    if key not in TASKS:
        TASKS[key] = loop.create_task(waiting()), awaitable
    task, _ = TASKS[key]
    if cancel:
        task.cancel()
    loop.run_until_complete(asyncio.wait({task}, timeout=seconds))
    if not task.done():
        return False, None
    del TASKS[key]
    return (None, None) if task.cancelled() else (True, task.result())


class Stream(io.TextIOBase):
    """A standard stream that the test has replaced: its own functions."""

    def __init__(self, **functions: Any) -> None:
        vars(self).update(functions)


ON_OBJECTS: dict[str, Callable[..., Any]] = {
    **OPERATIONS, "getattr": getattr, "setattr": setattr, "delattr": delattr,
    "await": wait, "seed": random.seed, "signature": signature,
    "isinstance": lambda kind, value: isinstance(value, kind),
    "issubclass": lambda kind, value: issubclass(value, kind),
    "array": as_array, "plain": lambda of: data_of_view(collapsed(of, type(of))),
}  # fmt: skip
"""By name: what the other side asks for."""
