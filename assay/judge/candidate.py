"""The candidate's side: a walled leaf that runs the program and answers calls with data; it knows
nothing of tests.
"""

from __future__ import annotations

import contextlib
import gc
import re
import socket
import sys
import types
import typing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from assay.judge import script
from assay.judge.codec import Json, Packer, TooLargeError, Unpacker, dumps, is_iterator, loads
from assay.judge.exceptions import exception, raised, shown
from assay.judge.protocol import (
    MIB,
    NOT_REUSABLE,
    REFUSED,
    REUSABLE,
    START,
    ClosedError,
    FramedSocket,
)
from assay.judge.reuse import is_reusable
from assay.sandbox.zygote import ROLE_FD

MODULE = "candidate"
REQUEST_MB = 256


def main() -> None:
    """Serve workers until they hang up: as one module after another, or, given standard streams, as
    a script.
    """
    gc.enable()
    stream = socket.socket(fileno=ROLE_FD)
    with contextlib.suppress(ClosedError):
        if stream.recv(len(START), socket.MSG_PEEK) == START:
            _, streams, _, _ = socket.recv_fds(stream, len(START), 2)
            script.serve(stream, *streams)
        else:
            serve(FramedSocket(stream, REQUEST_MB * MIB))


def serve(wire: FramedSocket) -> None:
    """Answer requests one by one; every reply carries its request's number. Ends with
    ClosedError.
    """
    candidate: Candidate | None = None
    while True:
        kind, number, *parts = loads(wire.receive())
        if candidate is None or kind == "load":
            used, candidate = candidate is not None, None
            if used:
                forget()
            candidate = Candidate(wire, used)
        reply = candidate.answered(number, kind, parts)
        flush()
        wire.send(reply)


def forget() -> None:
    """Let go of the program before: of its objects, and of what caches keep of it, which others
    could ask for.
    """
    sys.modules.pop(MODULE, None)
    re.purge()
    for clear in typing._cleanups:  # type: ignore[attr-defined]
        clear()
    gc.collect()


class Candidate:
    """One program and the objects it has handed out. `used`: the process has run another program
    before.
    """

    def __init__(self, wire: FramedSocket, used: bool = False) -> None:
        self.wire = wire
        self.used = used
        self.module = types.ModuleType(MODULE)
        self.handles: list[Any] = []
        self.mutates = False
        self.packer = Packer(self.opaque)
        known = {
            "handle": self.handles.__getitem__,
            "function": lambda name: getattr(self.module, name),
            "callback": lambda number: partial(self.call_back, number),
        }
        self.unpacker = Unpacker(known, nodes=sys.maxsize)  # requests come from the trusted side
        self.requests: dict[str, Callable[..., list[Json]]] = {
            "load": self.load,
            "call": self.call,
            "name": self.name,
            "set": self.set,
            # of a handed out object, by its number
            "get": lambda at, name: self.value(getattr(self.handles[at], name)),
            "iterate": lambda at: self.value(item for item in self.handles[at]),
            "text": lambda at: self.value(str(self.handles[at])),
            "truth": lambda at: self.value(bool(self.handles[at])),
        }
        self.at = 0

    def answered(self, number: int, kind: str, parts: list[Json]) -> bytes:
        """The reply to one request: its number, its kind, and what belongs to that."""
        self.at = number
        try:
            return frame(number, *self.requests[kind](*parts))
        except SystemExit as exit_:
            return frame(number, "exit", f"SystemExit({shown(exit_)})")
        except MemoryError:
            return frame(number, "memory", "MemoryError")
        except TooLargeError as error:
            return frame(number, "large", str(error))
        except BaseException as error:  # noqa: BLE001  the program's own code ran: whatever it raises is its answer
            return frame(number, *raised(error))

    def load(
        self, program: str, entry_point: str, mutates: bool, handles: bool, callbacks: bool
    ) -> list[Json]:
        """Compile and run the program as a module; answers whether it has the entry point.

        Before that comes the mark. Who is handed objects of ours, or hands out its own, leaves
        traces.
        """
        self.mutates = mutates
        if handles:
            self.packer.foreign = self.handle
        try:
            code = compile(program, "<program>", "exec", dont_inherit=True)
        except Exception as error:  # noqa: BLE001  the compiler raises half a dozen kinds
            self.wire.mark(REUSABLE)
            return ["syntax", f"{type(error).__name__}: {shown(error)}"]
        try:
            reusable = not (handles or callbacks) and is_reusable(code)
        except Exception:  # noqa: BLE001  whatever becomes of the question, the answer is then no
            reusable = False
        if self.used and not reusable:
            self.wire.mark(REFUSED)
            return ["refused"]
        self.wire.mark(REUSABLE if reusable else NOT_REUSABLE)
        sys.modules[MODULE] = self.module
        exec(code, self.module.__dict__)
        return ["value", hasattr(self.module, entry_point)]

    def call(self, target: str | int, packed: list[Json], named: dict[str, Json]) -> list[Json]:
        """Call a name of the module, or an object by its number; answers value, which argument it
        is, mutations.
        """
        called: Any = (
            getattr(self.module, target) if isinstance(target, str) else self.handles[target]
        )
        sent = [dumps(data) for data in packed] if self.mutates else []
        arguments = [self.unpacker.value(data) for data in packed]
        named = {name: self.unpacker.value(data) for name, data in named.items()}
        value = called(*arguments, **named)
        same = next(
            (at for at, it in enumerate(arguments) if it is value and not is_iterator(value)), None
        )
        return ["value", self.packer.pack(value), same, self.mutations(arguments, sent)]

    def mutations(self, arguments: list[Any], sent: list[str]) -> list[Json]:
        """The new value of each argument that is no longer what was `sent`, by its index."""
        now = [self.packer.pack(argument) for argument, _ in zip(arguments, sent, strict=False)]
        return [
            [at, new]
            for at, (new, old) in enumerate(zip(now, sent, strict=True))
            if dumps(new) != old
        ]

    def name(self, name: str) -> list[Json]:
        """A global of the program: data as data, what can be called as a function of that name."""
        if not hasattr(self.module, name):
            return ["absent"]
        value = getattr(self.module, name)
        return ["function", name] if callable(value) else self.value(value)

    def set(self, number: int, name: str, packed: Json) -> list[Json]:
        """Set an attribute of a handed out object."""
        setattr(self.handles[number], name, self.unpacker.value(packed))
        return self.value(None)

    def value(self, value: object) -> list[Json]:
        """An answer as to `call`, which changes no argument and returns none."""
        return ["value", self.packer.pack(value), None, []]

    def call_back(self, function: int, /, *arguments: Any, **named: Any) -> Any:
        """Call a function that the check passed; until it returns, it may ask for more itself."""
        at = self.at
        self.wire.send(
            frame(
                at, "callback", function, self.packer.pack(list(arguments)), self.packer.pack(named)
            )
        )
        while True:
            kind, number, *parts = loads(self.wire.receive())
            if kind == "returned":
                self.at = at
                return self.unpacker.value(parts[0])
            if kind == "raises":
                self.at = at
                _, names, made_of, name, text = parts
                raise exception(names, made_of, f"{name}: {text}")
            self.wire.send(self.answered(number, kind, parts))

    def opaque(self, value: object) -> Json:
        """Stands for an object that is no data: what it yields crosses, or its type's name and its
        truth.
        """
        if is_iterator(value):
            return self.packer.snapshot(cast("Iterator[Any]", value))
        truth = None
        with contextlib.suppress(Exception):  # the program's own code may say so
            truth = bool(value)
        return {"opaque": [type(value).__name__, truth]}

    def handle(self, value: object) -> Json:
        """The number of an object that tests may reach into, and its type's name."""
        at = next(
            (at for at, known in enumerate(self.handles) if known is value), len(self.handles)
        )
        if at == len(self.handles):
            self.handles.append(value)
        return {"handle": [at, type(value).__name__]}


def frame(*parts: Json) -> bytes:
    """One reply on the wire."""
    return dumps(list(parts)).encode()


def flush() -> None:
    """Hand on what the program printed; it may have closed or replaced its streams."""
    with contextlib.suppress(Exception):  # a stream may be any object by now
        sys.stdout.flush()
        sys.stderr.flush()
