"""The candidate process: runs a program and answers calls with data. Knows nothing of tests."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from assay.judge.codec import (
    Json,
    Packer,
    Unpacker,
    dumps,
    exception,
    is_iterator,
    loads,
    raised,
    shown,
)
from assay.judge.codec_types import TooLargeError
from assay.sandbox import script
from assay.sandbox.kernel import MIB
from assay.sandbox.repl import flush
from assay.sandbox.sockets import START, FramedSocket

MODULE = "candidate"
REQUEST_MB = 256


def prepare(_: str, stream: socket.socket) -> Callable[[], None]:
    """The work of a candidate process: to serve a worker until it hangs up."""
    candidate = Candidate(FramedSocket(stream, REQUEST_MB * MIB))
    return partial(serve, candidate)


def serve(candidate: Candidate) -> None:
    """Run one script, or answer a worker's requests one by one; a reply carries its request's
    number.
    """
    gc.enable()
    sock = candidate.sock
    with contextlib.suppress(ConnectionError):
        if sock.stream.recv(len(START), socket.MSG_PEEK) == START:
            _, streams, _, _ = socket.recv_fds(sock.stream, len(START), 2)
            script.serve(sock.stream, *streams)
        else:
            answer_requests(candidate, sock)


def answer_requests(candidate: Candidate, sock: FramedSocket) -> None:
    """Answer until the worker hangs up. Raises ConnectionError then."""
    while True:
        kind, number, *parts = loads(sock.receive())
        reply = candidate.answer(number, kind, parts)
        flush()
        sock.send(reply)


class Candidate:
    """One program, and the objects that it has sent handles of."""

    def __init__(self, sock: FramedSocket) -> None:
        self.sock = sock
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
            # of an object with a handle, by its number
            "get": lambda at, name: self.value(getattr(self.handles[at], name)),
            "iterate": lambda at: self.value(item for item in self.handles[at]),
            "text": lambda at: self.value(str(self.handles[at])),
            "truth": lambda at: self.value(bool(self.handles[at])),
        }
        self.at = 0

    def answer(self, number: int, kind: str, parts: list[Json]) -> bytes:
        """The reply to one request: number, kind, and the parts of that kind."""
        self.at = number
        try:
            return frame(number, *self.requests[kind](*parts))
        except SystemExit as exit_:
            return frame(number, "exit", f"SystemExit({shown(exit_)})")
        except MemoryError:
            return frame(number, "memory", "MemoryError")
        except TooLargeError as error:
            return frame(number, "large", str(error))
        except BaseException as error:  # noqa: BLE001  the program's own code: whatever it raises is its answer
            return frame(number, *raised(error))

    def load(
        self, program: str, entry_point: str, mutates: bool, handles: bool, callbacks: bool
    ) -> list[Json]:
        """Compile and run the program as a module; answers whether it has the entry point."""
        self.mutates = mutates
        if handles:
            self.packer.foreign = self.handle
        try:
            code = compile(program, "<program>", "exec", dont_inherit=True)
        except Exception as error:  # noqa: BLE001  the compiler raises half a dozen kinds
            return ["syntax", f"{type(error).__name__}: {shown(error)}"]
        sys.modules[MODULE] = self.module
        exec(code, self.module.__dict__)
        return ["value", any(hasattr(self.module, name) for name in entry_point.split("()."))]

    def call(self, target: str | int, packed: list[Json], named: dict[str, Json]) -> list[Json]:
        """Call a name of the module or an object by its number; answers the value, the index of the
        argument that it is, and the changed arguments.
        """
        called = self.named(target) if isinstance(target, str) else self.handles[target]
        sent = [dumps(data) for data in packed] if self.mutates else []
        arguments = [self.unpacker.value(data) for data in packed]
        named = {name: self.unpacker.value(data) for name, data in named.items()}
        value = called(*arguments, **named)
        same = next(
            (at for at, it in enumerate(arguments) if it is value and not is_iterator(value)), None
        )
        return ["value", self.packer.pack(value), same, self.mutations(arguments, sent)]

    def named(self, target: str) -> Any:
        """A function of the module. `Solution().f` is a method of a new object, or the function `f`
        of a program without that class.
        """
        kind, _, name = target.rpartition("().")
        made = getattr(self.module, kind)() if hasattr(self.module, kind) else self.module
        return getattr(made, name)

    def mutations(self, arguments: list[Any], sent: list[str]) -> list[Json]:
        """Index and new value of each argument that is no longer what was `sent`."""
        now = [self.packer.pack(argument) for argument, _ in zip(arguments, sent, strict=False)]
        return [
            [at, new]
            for at, (new, old) in enumerate(zip(now, sent, strict=True))
            if dumps(new) != old
        ]

    def name(self, name: str) -> list[Json]:
        """A global of the program: a function by its name, anything else as data."""
        if not hasattr(self.module, name):
            return ["absent"]
        value = getattr(self.module, name)
        return ["function", name] if callable(value) else self.value(value)

    def set(self, number: int, name: str, packed: Json) -> list[Json]:
        """Set an attribute of an object by its number."""
        setattr(self.handles[number], name, self.unpacker.value(packed))
        return self.value(None)

    def value(self, value: object) -> list[Json]:
        """An answer like that to `call`, without arguments."""
        return ["value", self.packer.pack(value), None, []]

    def call_back(self, function: int, /, *arguments: Any, **named: Any) -> Any:
        """Call a function that the check passed. Before it returns, requests may come from it."""
        at = self.at
        self.sock.send(
            frame(
                at, "callback", function, self.packer.pack(list(arguments)), self.packer.pack(named)
            )
        )
        while True:
            kind, number, *parts = loads(self.sock.receive())
            if kind == "returned":
                self.at = at
                return self.unpacker.value(parts[0])
            if kind == "raises":
                self.at = at
                _, names, made_of, name, text = parts
                raise exception(names, made_of, f"{name}: {text}")
            self.sock.send(self.answer(number, kind, parts))

    def opaque(self, value: object) -> Json:
        """What is sent for an object that is no data: the items of an iterator, or the type's name
        and the truth value.
        """
        if is_iterator(value):
            return self.packer.snapshot(cast("Iterator[Any]", value))
        truth = None
        with contextlib.suppress(Exception):  # this may run the program's own code
            truth = bool(value)
        return {"opaque": [type(value).__name__, truth]}

    def handle(self, value: object) -> Json:
        """A handle on an object: its number and its type's name."""
        at = next(
            (at for at, known in enumerate(self.handles) if known is value), len(self.handles)
        )
        if at == len(self.handles):
            self.handles.append(value)
        return {"handle": [at, type(value).__name__]}


def frame(*parts: Json) -> bytes:
    """One reply as a frame."""
    return dumps(list(parts)).encode()
