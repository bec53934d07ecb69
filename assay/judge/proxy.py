"""Stands for the program in the worker: a call becomes a request, and the answer is data, or an
object that is reached by further requests.
"""

from __future__ import annotations

import builtins
import random
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from threading import RLock
from types import BuiltinFunctionType, FunctionType, MethodType, TracebackType
from typing import Any

from assay.judge.codec import SHOWN, STEERING, Json, Packer, Unpacker, exception, raised
from assay.judge.codec_types import (
    BUILTINS,
    MUTABLE,
    CodecError,
    Opaque,
    TooLargeError,
    collapsed,
    plain_numpy,
    rebuild_numpy,
)
from assay.judge.files import SharedFiles
from assay.judge.protocol import CheckJob
from assay.judge.remote import (
    Function,
    RemoteClass,
    RemoteRef,
    awaited,
    is_remote,
    items,
    make,
    ref_of,
    take_name,
)
from assay.judge.requests import RemoteProgram, Requests
from assay.judge.shared_data import SetupInstances, SharedObjects
from assay.judge.unpack_objects import Objects
from assay.sandbox.sockets import FramedSocket

SEED = random.seed
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)
OF_NUMPY = "this test uses what the program answers as a value of numpy's"
TEST_ITEMS = 5_000_000
"""How many items of an iterator a check may pass."""


class Connection(RemoteProgram):
    """Calls and values of the program of one job."""

    def __init__(self, sock: FramedSocket, job: CheckJob) -> None:
        super().__init__(job)
        self.requests = Requests(sock, self._raised)
        self.requests.expects_exit = "SystemExit" in str(job["checks"])
        self.absent = ""
        """The first name that a check used and the program does not define."""
        self.foreign = ""
        """What the program has answered that does more there than here. Only a test that is about
        more than data is in doubt then: else a program could choose not to be judged."""
        self.packer = Packer(self._reference, TEST_ITEMS)
        self.packer.intercept = self._handle_of
        self.nodes = SetupInstances(0)
        self.shared = SharedObjects(self.packer, self.nodes, 0)
        self.shared.files = SharedFiles() if job["files"] else None
        self.arrivals = Arrivals(self)
        self.console = Console(self.packer.pack, self.ask)
        self.answers: list[Any] = []
        """The last answer of a test that gets only data."""
        self._lock = RLock()  # one thread of a test at a time asks the program
        self._functions: list[Callable[..., Any]] = []
        self.changes = set[str]()
        """What of the test's the program has changed: `arguments`, or a file's name."""

    def load(self) -> None:
        """Send the program."""
        job = self.job
        self.requests.load(
            job["program"], job["entry_point"], job["classes"], job["files"], job["objects"]
        )

    def is_forgeable(self) -> bool:
        """Whether the program has decided anything that the test relies on."""
        return (
            self.forgeable
            or any(ref.decides(tells) for ref, tells in self.doubtful)
            # two of one member that no test names may be compared
            or any(n > 1 and not it.made_by_test for it, n in self.answered.items())
        )

    def call(
        self, target: str | int, arguments: tuple[Any, ...], keywords: dict[str, Any],
        made_by_test: bool = False,
    ) -> Any:  # fmt: skip
        """Call something of the program's."""
        with self._lock:
            self.requests.count += 1  # even where an argument cannot be sent
            passed = (*arguments, *keywords.values())
            plain = [*map(self.packer.pack, passed)] if self.job["identity"] else []
            packed = [*map(self.shared.pack, passed)]
            by_name = dict(zip(keywords, packed[len(arguments) :], strict=True))
            parts = (target, packed[: len(arguments)], by_name)
            packed_answer = self._request("call", parts, type(target) is int)
            self.forgeable |= packed_answer in plain
            answer = self.arrivals.value(packed_answer, made_by_test)
            self.answers = [] if self.arrivals.objects else [answer]
            return answer

    def call_packed(self, target: str, call: list[Json], kind: str = "answer") -> Json:
        """As `call`, with packed arguments; the answer stays packed, and objects are opaque."""
        return self._request(kind, (target, *call))

    def name(self, name: str) -> Any:
        """A global of the program. Raises NameError where it has none of that name."""
        answer = self.ask("name", name)
        if type(answer) is not list or len(answer) > 1:
            raise self.requests.fail("forbidden", "a reply of the wrong shape")
        if not answer:
            self.absent = self.absent or name
            raise NameError(f"name {name!r} is not defined")
        (value,) = answer
        if isinstance(value, Opaque):
            value = self.function(name)
        if type(value).__name__ == "module":
            if name in sys.stdlib_module_names:
                return import_module(name)
            self.forgeable = True
        if isinstance(value, RemoteClass):
            take_name(value, name)
        is_usual = isinstance(value, RemoteClass) or is_function(value)
        self.requests.names += is_usual
        self.requests.gave_data |= not (is_usual and callable(value))
        return value

    def function(self, name: str) -> Any:
        """A global by its name; it is looked up when it is used."""
        return make(Function, RemoteRef(self, name))

    def ask(self, kind: str, *parts: Json) -> Any:
        """The value that answers a request."""
        with self._lock:
            return self.arrivals.value(self._request(kind, parts, True))

    def _request(self, kind: str, parts: tuple[Json, ...], shares: bool = False) -> Json:
        """A request and the packed value that answers it. `shares`: whether the program may change
        the value later.
        """
        self.console.tell()
        self.arrivals.may_stop = parts[0] in ("await", "__next__")
        reply = self.requests.request(
            kind, parts, shares, self.shared.tell(), on_callback=self._call_back
        )
        value, changes = self.requests.parts(reply, 2)
        self._take(changes)
        return value

    def _take(self, changes: Json) -> None:
        """Take over what the program has changed. Raises CandidateFailed."""
        try:
            files = self.shared.take(changes, self.arrivals.value, self._may_change)
        except CodecError as error:
            raise self.requests.fail("forbidden", str(error)) from None
        self.changes.update(f"file {name}" for name in files)

    def _raised(self, changes: Json, *parts: Json) -> BaseException:
        """The exception that answers a request. Raises CandidateFailed."""
        self._take(changes)
        return self.arrivals.value({"error": [*parts]})  # type: ignore[no-any-return]

    def _may_change(self) -> bool:
        """Whether what the program makes of an object of the test's is made here too."""
        self.changes.add("arguments")
        return self.job["mutates"]

    def _call_back(self, parts: list[Json]) -> None:
        """Call a function that the check has passed, and send what it returns or raises."""
        fail = self.requests.fail
        if len(parts) != 3 or not is_index(parts[0], self._functions):
            raise fail("forbidden", "a call of nothing that was passed")
        function = self._functions[parts[0]]
        arguments, keywords = self.arrivals.value(parts[1]), self.arrivals.value(parts[2])
        if type(arguments) is not list or type(keywords) is not dict:
            raise fail("forbidden", "a malformed call")
        try:
            answer = "returned", self.packer.pack(function(*arguments, **keywords))
        except Exception as error:  # noqa: BLE001  the check's own function: its caller gets what it raises
            if isinstance(error, AssertionError) and error is not self.requests.raised:
                detail = f"AssertionError: {error} in a function that the check passes"
                raise fail("wrong", detail) from None
            answer = "raises", self.packer.pack(error)
        self.requests.send(*answer)

    def _reference(self, value: object) -> Json:
        """What is sent for an object that is no data."""
        if handle := self._handle_of(value):
            return handle
        if self.nodes.has(value):
            return self.nodes.pack(value, self.packer)
        if isinstance(value, BaseException):
            return {"error": raised(value)}
        if isinstance(value, TracebackType):
            return None
        if isinstance(value, Opaque):  # the program returned it before: no fault of the check's
            raise CodecError(f"{value!r} cannot be sent back")
        if callable(value):
            at = next((at for at, item in enumerate(self._functions) if item is value), None)
            if at is None:
                at = len(self._functions)
                self._functions.append(value)
            name = getattr(value, "__name__", type(value).__name__)
            return {"callback": [at, str(name), str(value.__doc__ or "")]}
        if self.packer.quiet:
            raise CodecError("no data")
        raise self.cannot(f"this test passes a {type(value).__name__} object to the program")

    def own_function(self, number: Json) -> Any:
        """A function that the check has passed. Raises CodecError."""
        if not is_index(number, self._functions):
            raise CodecError("a function that was never passed")
        function = self._functions[number]
        self.forgeable |= not isinstance(function, FUNCTIONS)  # a Mock holds whatever is asked
        return function

    def _handle_of(self, value: object) -> Json:
        """What is sent for what came from the program, or for a named tuple; None for anything
        else.
        """
        if is_remote(value):
            return ref_of(value).packed
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"named": [type(value).__name__, value._fields, self.packer.pack([*value])]}
        note_copy(value, self.doubts)
        running = self.arrivals.running.get(id(value))
        return running and running[0].packed


def note_copy(value: object, doubts: dict[bool, str]) -> None:
    """Note that the program gets plain data for an instance of a subclass of data, or a function
    for what is more.
    """
    if collapsed(value, type(value)) is not value:
        doubts[isinstance(value, MUTABLE)] = f"this test passes a copy of a {type(value).__name__}"
    elif callable(value) and not isinstance(value, FUNCTIONS):
        doubts[False] = f"this test passes a {type(value).__name__} as a function"


class Arrivals:
    """Rebuilds values and exceptions of one program."""

    def __init__(self, connection: Connection) -> None:
        self.may_stop = False
        """Whether the last request may raise StopIteration without saying more than it should."""
        self.running: dict[int, tuple[RemoteRef, Any]] = {}
        """By id: generators and coroutines that stand for the program's."""
        self._connection = connection
        objects = Objects(connection, self.opaque, lambda data: self.unpacker.inner(data))
        self.objects = objects if connection.job["objects"] else None
        """Where there may be classes of the program's, and so objects."""
        data: dict[str, Callable[[Json], Any]] = {"opaque": self.opaque, "numpy": self._numpy}
        self.unpacker = Unpacker({
            **data, "graph": self._graph, "error": self.error, "builtin": self._builtin,
            "lazy": partial(self._run, items), "callback": connection.own_function,
            "coroutine": partial(self._run, awaited), "shared": self._shared,
            **(self.objects.tags if self.objects else {}),
        })  # fmt: skip
        self._data_unpacker = Unpacker(data)

    def value(self, data: Json, made_by_test: bool = False, only_data: bool = False) -> Any:
        """A value as the program packed it, which the test constructs if `made_by_test`; with
        `only_data` an object in it is opaque. Raises CandidateFailed where it is too large or
        malformed.
        """
        program = self._connection
        before, program.made_by_test = program.made_by_test, made_by_test
        try:
            return (self._data_unpacker if only_data else self.unpacker).value(data)
        except (TooLargeError, MemoryError) as error:
            raise program.requests.fail("output", str(error)) from None
        except CodecError as error:
            raise program.requests.fail("forbidden", str(error)) from None
        finally:
            program.made_by_test = before

    def error(self, parts: list[Json]) -> BaseException:
        """An exception of the program's, rebuilt. Raises CodecError."""
        names, arguments, name, text, described, cause = parts
        text = str(text)[:SHOWN]
        error = exception(names, arguments, f"{str(name)[:100]}: {text}")
        ends = self.may_stop and isinstance(error, StopIteration | StopAsyncIteration)
        if isinstance(error, STEERING) and not ends:
            self._connection.forgeable = True
        if described is not None:
            if self.objects is None:
                raise CodecError("malformed exception")
            error = self.objects.error(described, error, text)
        error.__cause__ = self.error(cause) if cause else None
        return error

    def _numpy(self, parts: Json) -> Any:
        """A value of numpy's; as Python's where the test takes no other."""
        value, keep = rebuild_numpy(parts), self._connection.job["numpy"]
        if value.size == 0:  # broadcast over a test's array, it leaves nothing to compare
            self._connection.forgeable = True
        if keep:
            return value
        self._connection.foreign = OF_NUMPY
        return plain_numpy(value)

    def opaque(self, parts: Json) -> Opaque:
        """An object that may do more there than its stand-in does here, if it is a library's."""
        opaque = Opaque(parts)
        if parts[2:] in ([1], [2]):
            self._connection.foreign = f"this test gets {opaque!r}, which stays"
        return opaque

    def _shared(self, parts: Json) -> Any:
        shared = self._connection.shared
        if self._connection.job["identity"] and shared.new.isdisjoint(parts):
            self._connection.forgeable = True
        return shared.rebuild(parts)

    def _builtin(self, name: Json) -> Any:
        """A function or class of Python's; an `except` of some catches the test's own assertion."""
        value = BUILTINS[name]
        if value is type and not self.objects:
            return Opaque(name)  # it makes classes, which may do more than data does
        if isinstance(value, type) and issubclass(AssertionError, value) and value is not object:
            self._connection.forgeable = True
        return value

    def _run(self, kind: Callable[[RemoteRef], Any], number: Json) -> Any:
        """A generator or coroutine that stands for one of the program's."""
        ref = RemoteRef(self._connection, number)
        instance = kind(ref)
        self.running[id(instance)] = ref, instance
        return instance

    def _graph(self, rows: Json) -> Any:
        connection, on_change = self._connection, partial(self._connection.changes.add, "arguments")
        return connection.nodes.unpack(rows, self.unpacker, connection.job["mutates"], on_change)


def is_function(value: object) -> bool:
    """Whether it is a function of the program's."""
    return isinstance(value, Function) or type(value).__name__ == "function"


def is_index(number: Json, of: list[Any]) -> bool:
    """Whether `number` is an index into `of`."""
    return type(number) is int and 0 <= number < len(of)


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
