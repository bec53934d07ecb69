"""The candidate process: runs a program and answers calls with data. Knows nothing of tests."""

from __future__ import annotations

import builtins
import contextlib
import gc
import os
import socket
import sys
import types
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, cast

from assay.judge.aliases import Aliases
from assay.judge.codec import (
    Json,
    Packer,
    Unpacker,
    digest,
    dumps,
    error_name,
    error_text,
    exception,
    is_iterator,
    loads,
    raised,
)
from assay.judge.codec_types import TooLargeError, collapsed, data_of_view
from assay.judge.objects import ON_OBJECTS, ClassTable, Stream, fields_of
from assay.judge.shared_data import SetupInstances, SharedObjects
from assay.judge.shared_files import SharedFiles
from assay.sandbox import script
from assay.sandbox.kernel import MIB
from assay.sandbox.repl import flush
from assay.sandbox.sockets import FramedSocket

MODULE = "candidate"
REQUEST_MB = 256


def prepare(_: str, stream: socket.socket) -> Callable[[], None]:
    """The work of a candidate process: to serve a worker until it hangs up."""
    candidate = Candidate(FramedSocket(stream, REQUEST_MB * MIB))
    return partial(serve, candidate)


def serve(candidate: Candidate) -> None:
    """Run one script, or answer a worker's requests one by one; a reply carries its request's
    number. Raises ConnectionError when the other side hangs up.
    """
    gc.enable()
    sock = candidate.sock
    frame, streams = sock.receive_with_descriptors()
    if streams:
        script.serve(sock, frame, *streams)
    while True:
        respond(candidate, frame)
        frame = sock.receive()


def respond(candidate: Candidate, frame: bytes) -> None:
    """Answer one request."""
    kind, number, *parts = loads(frame)
    reply = candidate.answer(number, kind, parts)
    flush()
    candidate.sock.send(reply)


class Candidate:
    """One program, and the objects that it has sent handles of."""

    def __init__(self, sock: FramedSocket) -> None:
        self.sock = sock
        self.module = types.ModuleType(MODULE)
        self.exports = Exports()
        self.shared = SharedObjects(self.exports.packer, self.exports.nodes, 1)
        self.aliases = Aliases(self.shared.has)
        self.late: dict[int, BaseException] = {}
        """By iterator: what it raised after items that had to be sent first."""
        self.data_packer = Packer(opaque)
        operations: dict[str, Callable[[Any], Any]] = {
            "handle": self.exports.objects.__getitem__,
            "function": self.object,
            "callback": self.callback,
            "opaque": str,
            "shared": self.shared.rebuild,
            "named": self.named_tuple,
            "error": lambda parts: exception(parts[0], parts[1], parts[3], parts[3]),
            "close": lambda _: GeneratorExit(),
            "graph": lambda rows: self.exports.nodes.unpack(rows, self.unpacker, True, list),
        }
        # requests come from the trusted side
        self.unpacker = Unpacker(operations, nodes=sys.maxsize)
        self.own_console = sys.stdout, sys.stderr, sys.stdin, builtins.input, builtins.print
        self.requests: dict[str, Callable[..., Any]] = {
            "call": self.call, "items": self.items, "console": self.replace_console,
            "operate": lambda name, packed: ON_OBJECTS[name](*map(self.unpacker.value, packed)),
            "name": lambda name: [getattr(self.module, name)] if hasattr(self.module, name) else [],
        }  # fmt: skip
        self.at = 0

    def answer(self, number: int, kind: str, parts: list[Json]) -> bytes:
        """The reply to one request: number, kind, and the parts of that kind."""
        self.at = number
        try:
            return frame(number, *self.reply(kind, parts))
        except MemoryError:
            return frame(number, "memory", "MemoryError")
        except TooLargeError as error:
            return frame(number, "large", str(error))
        except BaseException as error:  # noqa: BLE001  the program's own code: whatever it raises is its answer
            return frame(number, "raised", self.shared.tell(), *self.exports.raised(error))

    def reply(self, kind: str, parts: list[Json]) -> list[Json]:
        """The reply's kind and parts: of all but `load`, a value, and which objects have changed
        that the test holds.
        """
        if kind == "load":
            return self.load(*parts)
        request, shares, changes, dropped = parts
        self.exports.drop(dropped)
        self.shared.take(changes, self.unpacker.value)
        if kind in ("answer", "digest"):
            value = self.call(*request)
            packed = self.data_packer.pack(digest(value) if kind == "digest" else value)
        else:
            value = self.requests[kind](*request)
            if shares or self.shared.has(value):
                packed = self.shared.pack(value)
            else:
                repeated = kind == "call" and self.aliases.add(value)
                packed = self.exports.packer.pack(value)
                packed = {"alias": packed} if repeated else packed
        return ["value", packed, self.shared.tell()]

    def load(
        self, program: str, entry_point: str, classes: list[list[str]], files: bool, objects: bool
    ) -> list[Json]:
        """Define the data set's classes, compile and run the program as a module; answers whether
        it has the entry point. `objects`: objects that are no data are sent too.
        """
        self.exports.classes = ClassTable(MODULE, self.exports.number) if objects else None
        self.shared.files = SharedFiles() if files else None
        self.module.__file__ = os.path.abspath("program.py")  # noqa: PTH100  pathlib loads slowly
        for _, source in classes:
            with contextlib.suppress(Exception):  # it may need what only the data set's setup has
                exec(source, self.module.__dict__)
        try:
            code = compile(program, "<program>", "exec", dont_inherit=True)
        except Exception as error:  # noqa: BLE001  the compiler raises half a dozen kinds
            return ["syntax", f"{type(error).__name__}: {error_text(error)}"]
        sys.modules[MODULE] = self.module
        exec(code, self.module.__dict__)
        members = ((name, getattr(self.module, name, None)) for name, _ in classes)
        self.exports.nodes.classes = {name: it for name, it in members if isinstance(it, type)}
        return ["value", any(hasattr(self.module, name) for name in entry_point.split("()."))]

    def object(self, at: int | str) -> Any:
        """An object by its number, or a global of the program by its name. `Solution().f` is a
        method of a new object, or the function `f` of a program without that class.
        """
        if not isinstance(at, str):
            return self.exports.objects[at]
        kind, _, name = at.rpartition("().")
        instance = getattr(self.module, kind)() if hasattr(self.module, kind) else self.module
        return getattr(instance, name)

    def call(self, target: int | str, packed: list[Json], keywords: dict[str, Json]) -> Any:
        """Call an object."""
        function, value = self.object(target), self.unpacker.value
        return function(
            *map(value, packed), **{name: value(data) for name, data in keywords.items()}
        )

    def named_tuple(self, parts: Json) -> Any:
        """A named tuple of the test's."""
        name, fields, packed = parts
        return named_type(name, tuple(fields))(*self.unpacker.inner(packed))

    def items(self, at: int, many: int, sent: Json) -> tuple[list[Any], bool | None, Any]:
        """The next items of an iterator, whether it has ended, and what it returned then. None in
        place of True: it was closed.
        """
        if error := self.late.pop(at, None):
            raise error
        iterator, values, sent = self.exports.objects[at], [], self.unpacker.value(sent)
        try:
            for _ in range(many):
                if isinstance(sent, BaseException):
                    if not hasattr(iterator, "throw"):  # no generator: it has nothing to end
                        raise sent
                    values.append(iterator.throw(sent))
                else:
                    values.append(next(iterator) if sent is None else iterator.send(sent))
        except StopIteration as end:
            return values, True, end.value
        except GeneratorExit:
            return values, None, None
        except Exception as error:
            if not values:
                raise
            self.late[at] = error
        return values, False, None

    def callback(self, parts: Json) -> Callable[..., Any]:
        """A function that stands for one that the check passed. One that functools.partial has made
        is made here too.
        """
        number, name, doc, made_of = parts
        if number not in self.exports.callbacks and (whole := self.unpacker.inner(made_of)):
            wrapped, arguments, keywords = whole
            self.exports.callbacks[number] = partial(wrapped, *arguments, **keywords)
        if number not in self.exports.callbacks:

            def function(*arguments: Any, **keywords: Any) -> Any:
                return self.call_back(number, arguments, keywords)

            function.__name__ = function.__qualname__ = name
            function.__doc__, function.__module__ = doc, "checks"
            self.exports.callbacks[number] = function
        return self.exports.callbacks[number]

    def call_back(self, function: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a function that the check passed. Before it returns, requests may come from it."""
        at, pack = self.at, self.exports.packer.pack
        self.sock.send(frame(at, "callback", function, pack(list(arguments)), pack(keywords)))
        while True:
            kind, number, *parts = loads(self.sock.receive())
            if kind in ("returned", "raises"):
                self.at = at
                value = self.unpacker.value(parts[0])
                if kind == "raises":
                    raise value
                return value
            self.sock.send(self.answer(number, kind, parts))

    def replace_console(self, *packed: Json) -> None:
        """Put the test's own in place of standard streams, `input` and `print`."""
        write, write_error, read, readline, ask, show = map(self.unpacker.value, packed)
        out, err, in_, own_ask, own_show = self.own_console
        sys.stdout = Stream(write=write) if write else out
        sys.stderr = Stream(write=write_error) if write_error else err
        sys.stdin = Stream(read=read, readline=readline) if read else in_
        builtins.input, builtins.print = ask or own_ask, show or own_show


class Exports:
    """The objects of a program that have been sent, by number."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.callbacks: dict[int, Callable[..., Any]] = {}
        """By number: the functions that stand for those that a test passed."""
        self.classes: ClassTable | None = None
        """Where objects are sent that are no data; else they are opaque."""
        self.nodes = SetupInstances(1)
        self.packer = Packer(self._foreign)
        self.packer.intercept = self._unusual
        self.said_bare = False
        """Whether the test knows that an object has become plain data."""
        self._numbers: dict[int, int] = {}
        self._handles = Counter[int]()
        """How many handles of each object may have been sent."""

    def drop(self, numbers: list[int]) -> None:
        """Let objects go of which the test has dropped a handle, and has no other."""
        for number in numbers:
            self._handles[number] -= 1
            if not self._handles[number]:
                self._numbers.pop(id(self.objects[number]))
                self.objects[number] = None

    def number(self, value: Any) -> int:
        """The number of an object; it is kept from now on."""
        at = self._numbers.setdefault(id(value), len(self.objects))
        if at == len(self.objects):
            self.objects.append(value)
        return at

    def raised(self, error: BaseException, caused: bool = False) -> list[Json]:
        """What is sent for an exception: as `codec.raised`, then its number and class where that is
        the program's own, the same of its cause, its notes, of a group the message and the same
        of its parts, and the attributes of one of Python's. `caused`: it is a cause itself.
        """
        parts, described, cause = raised(error), None, None
        with contextlib.suppress(Exception):  # this may run the program's own code
            own_class = isinstance(error, Exception) and not error_name(type(error))
            if own_class and self.classes:
                described = [self.number(error), self.classes.describe(type(error))]
        if error.__cause__ and not caused:
            cause = self.raised(error.__cause__, caused=True)
        notes = [note for note in vars(error).get("__notes__", ()) if type(note) is str]
        group: list[Json] = []
        if isinstance(error, ExceptionGroup):
            message, errors = ExceptionGroup.message, ExceptionGroup.exceptions
            group = [
                str(message.__get__(error)),
                [self.raised(part, caused) for part in errors.__get__(error)],
            ]
        fields = [] if described else fields_of(error)
        return [*parts, described, cause, notes, group, fields]

    def _foreign(self, value: Any) -> Json:
        """What is sent for an object that is no data."""
        if isinstance(value, type) and self.classes:
            return {"class": self.classes.describe(value)}
        if self.nodes.name_of(value):
            return self.nodes.pack(value, self.packer)
        for number, function in self.callbacks.items():
            if function is value:
                return {"callback": number}
        if isinstance(value, BaseException):
            return {"error": self.raised(value)}
        if type(value) is types.CoroutineType:
            return {"coroutine": self.number(value)}
        if not self.classes:
            plain = data_of_view(value)
            return opaque(value) if plain is value else self._bare(self.packer.pack(plain))
        described, number = self.classes.describe(type(value)), self.number(value)
        self._handles[number] += 1
        return {"handle": [number, described, foreign(value), self.classes.state(value)]}

    def _unusual(self, value: Any) -> Json:
        """What is sent for an iterator of Python's, and for data of a class of its own."""
        kind = type(value)
        of_python = kind.__module__ in ("builtins", "itertools")
        if is_iterator(value) and (of_python or not self.classes):
            if hasattr(kind, "__await__"):
                return self._foreign(value)
            lazy: Json = {"lazy": self.number(value)}
            return lazy if of_python else self._bare(lazy)
        plain = collapsed(value, kind)
        if plain is value:
            return None
        if self.classes:
            parts = [self.number(value), self.classes.describe(kind), self.packer.pack(plain)]
            return {"subclass": parts}
        return None if self.said_bare else self._bare(self.packer.pack(plain))

    def _bare(self, packed: Json) -> Json:
        """Data that was of a class with methods of its own; the first in a job says so."""
        first, self.said_bare = not self.said_bare, True
        return {"bare": packed} if first else packed


def opaque(value: object) -> Json:
    """What is sent for an object that is no data where only data is read: the items of an iterator,
    what a view of data shows, or the type's name, the truth value and whether it is `foreign`.
    """
    if is_iterator(value):
        return Packer(opaque).snapshot(cast("Iterator[Any]", value))
    if (plain := data_of_view(value)) is not value:
        return Packer(opaque).pack(plain)
    truth = None
    with contextlib.suppress(Exception):  # this may run the program's own code
        truth = bool(value)
    return {"opaque": [type(value).__name__, truth, foreign(value)]}


def foreign(value: object) -> int:
    """1 for an object of a class that the program has not made, and no function; 2 where that class
    has its own `==`; else 0.
    """
    kind = type(value)
    if kind.__module__ == MODULE or callable(value):
        return 0
    return 1 + (kind.__eq__ is not object.__eq__)


named_type = cache(namedtuple)
"""The class of the test's named tuples of that name; making one takes long."""


def frame(*parts: Json) -> bytes:
    """One reply as a frame."""
    return dumps(list(parts)).encode()
