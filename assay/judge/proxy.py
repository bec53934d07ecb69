"""Stands for the program in the worker: a call becomes a request, and the answer is data, or an
object that is reached by further requests.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, MethodType, TracebackType
from typing import Any

from assay.judge.aliases import Aliases
from assay.judge.codec import SHOWN, STEERING, Json, Packer, Unpacker, exception, raised
from assay.judge.codec_types import (
    BUILTINS,
    MUTABLE,
    CodecError,
    Opaque,
    TooLargeError,
    class_name,
    collapsed,
    is_mutable,
    plain_numpy,
    rebuild_numpy,
)
from assay.judge.console import Console
from assay.judge.objects import (
    COMPARISONS,
    ExpectedObjects,
    Objects,
    RemoteClass,
    RemoteRef,
    awaited,
    function,
    is_function,
    is_remote,
    items,
    ref_of,
    take_name,
)
from assay.judge.one_at_a_time import OneAtATime
from assay.judge.requests import RemoteProgram, Requests
from assay.judge.shared_data import SetupInstances, SharedObjects
from assay.judge.shared_files import SharedFiles
from assay.judge.task_code import LIBRARY
from assay.judge.worker_messages import ALIASES, ARGUMENTS, OBJECTS, SUBCLASSES, CheckJob
from assay.sandbox.sockets import FramedSocket

FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)
PURE_OPERATIONS = (*COMPARISONS, "__hash__", "getattr", "isinstance", "issubclass", "plain")
"""Operations that change no object of the program's, or only in a way that no test could mean."""
CLOSE = {"close": 0}
"""What is thrown into a generator to end it."""
GROUP_DEPTH, PARTS_OF_ERROR = 50, 20
"""How deep groups of exceptions may be nested, and for how many parts of a value one counts."""
SCALARS = (type(None), bool, int, float, complex, str, bytes)
TEST_ITEMS = 5_000_000
"""How many items of an iterator a check may pass."""


class Connection(RemoteProgram):
    """Calls and values of the program of one job."""

    def __init__(self, sock: FramedSocket, job: CheckJob) -> None:
        super().__init__(job)
        self.requests = Requests(sock, self._raised)
        self.expected = ExpectedObjects()
        self.requests.expects_exit = "SystemExit" in str(job["checks"])
        self.absent = ""
        """The first name that a check used and the program does not define."""
        self.packer = Packer(self._reference, TEST_ITEMS)
        self.packer.intercept = self._handle_of
        self.nodes = SetupInstances(0)
        self.shared = SharedObjects(self.packer, self.nodes, 0)
        self.shared.files = SharedFiles() if job["files"] else None
        self.arrivals = Arrivals(self)
        self.console = Console(self.packer.pack, self.ask)
        self._aliases = Aliases()
        self.answers: list[Any] = []
        """The last answer, where that is surely data."""
        self._turn = OneAtATime()
        self._unclosed: list[RemoteRef] = []
        """Generators to close with the next request."""
        self.is_over = False
        """Whether the tests have ended, so that nothing is asked any more."""
        self._functions: list[Callable[..., Any]] = []

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
            or any(not (ref.made_by_test or ref.kind.made_by_test) for ref in self.informed)
            # two of one member that no test names may be compared
            or any(n > 1 and not it.made_by_test for it, n in self.answered.items())
        )

    def call(
        self, target: str | int, arguments: tuple[Any, ...], keywords: dict[str, Any],
        made_by_test: bool = False, constructs: bool = False,
    ) -> Any:  # fmt: skip
        """Call something of the program's."""
        with self._turn:
            self.requests.count += 1  # even where an argument cannot be sent
            passed = (*arguments, *keywords.values())
            if any(map(self._aliases.has, passed)):
                self.changes.add(ALIASES)
            plain = [*map(self.packer.pack, passed)] if self.job["identity"] else []
            packed = [*map(self.shared.pack, passed)]
            by_name = dict(zip(keywords, packed[len(arguments) :], strict=True))
            parts = (target, packed[: len(arguments)], by_name)
            shares = type(target) is int or self.job["aliases"]
            packed_answer = self._request("call", parts, shares, constructs)
            if type(target) is str:
                self.by_name = self.requests.number
            self.forgeable |= packed_answer in plain
            answer = self.arrivals.value(packed_answer, made_by_test)
            if not shares:
                self._aliases.add(answer)
            is_data = not self.arrivals.objects or type(answer) in SCALARS
            self.answers = [answer] if is_data else []
            return answer

    def call_packed(self, target: str, call: list[Json], kind: str = "answer") -> Json:
        """As `call`, with packed arguments; the answer stays packed, and objects are opaque."""
        return self._request(kind, (target, *call))

    def name(self, name: str) -> Any:
        """A global of the program. Raises NameError where it has none of that name."""
        had_objects = OBJECTS in self.changes
        answer = self.ask("name", name)
        if type(answer) is not list or len(answer) > 1:
            raise self.requests.fail("forbidden", "a reply of the wrong shape")
        if not answer:
            self.absent = self.absent or name
            raise NameError(f"name {name!r} is not defined")
        (value,) = answer
        if isinstance(value, Opaque):
            if class_name(value) == "function" and not had_objects:
                self.changes.discard(OBJECTS)  # a function can be called without its object
            value = self.function(name)
        if type(value).__name__ == "module":
            if name in sys.stdlib_module_names:
                return import_module(name)
            self.forgeable = True
        self.forgeable |= self._is_word(name, value)
        if isinstance(value, RemoteClass):
            take_name(value, name)
        is_usual = isinstance(value, RemoteClass) or is_function(value)
        self.requests.names += is_usual
        self.requests.gave_data |= not (is_usual and callable(value))
        return value

    def _is_word(self, name: str, value: Any) -> bool:
        """Whether a test that uses a name of the program's takes its word for what that means:
        nobody has asked it for that name, or it gives a class of Python's for one of its own.
        """
        classes = [it for it in (value if type(value) is tuple else (value,)) if is_pythons(it)]
        if any(it.__name__ != name for it in classes):
            self.requests.gave_class = True
            return True
        requested = self.job["requested_names"]
        if requested is None:
            is_code = isinstance(value, RemoteClass) or is_function(value)
            return name != self.job["entry_point"] and not (is_code and name not in LIBRARY)
        return name not in requested and not classes

    def function(self, name: str) -> Any:
        """A global by its name; it is looked up when it is used."""
        return function(self, name)

    def is_shared(self, value: object) -> bool:
        """Whether it is of a kind of which the program may have answered with the test's own."""
        is_data = is_mutable(value) or self.nodes.has(value)
        return is_data or any(value is it for it in self._functions)

    def ask(self, kind: str, *parts: Json) -> Any:
        """The value that answers a request."""
        with self._turn:
            return self.arrivals.value(self._request(kind, parts, True))

    def close(self, ref: RemoteRef) -> Any:
        """End a generator as `close` does: what `items` answers. None where nothing can be asked:
        a generator may be collected while the program answers, and is closed afterwards.
        """
        if self.is_over or self._turn.is_mine():
            self._unclosed.append(ref)
            return None
        return self.ask("items", ref.target, 1, CLOSE)

    def _close_late(self, ref: RemoteRef) -> None:
        """As `close`, of a generator that nobody has any more, so what it raises is lost."""
        with contextlib.suppress(Exception):
            self._request("items", (ref.target, 1, CLOSE), True)

    def _request(
        self, kind: str, parts: tuple[Json, ...], shares: bool = False, constructs: bool = False
    ) -> Json:
        """A request and the packed value that answers it. `shares`: whether the program may change
        the value later. `constructs`: it is an object that the test makes of plain data.
        """
        while self._unclosed and not self.is_over:
            self._close_late(self._unclosed.pop())
        self.console.tell()
        self.arrivals.may_stop = parts[0] in ("await", "__next__")
        is_pure = kind == "name" or (kind == "operate" and parts[0] in PURE_OPERATIONS)
        self.epoch += not (is_pure or constructs)
        dropped, self.dropped = self.dropped, []
        changes = self.shared.tell()
        reply = self.requests.request(
            kind, parts, shares, changes, dropped, on_callback=self._call_back
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
        self.changes.add(ARGUMENTS)
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
            with self._turn.passed_on():
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
            parts = partial_parts(value)
            return {"callback": [at, str(name), str(value.__doc__ or ""), self.packer.pack(parts)]}
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
            self.expected.give(ref_of(value).target)
            return ref_of(value).packed
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"named": [type(value).__name__, value._fields, self.packer.pack([*value])]}
        note_copy(value, self.doubts)
        running = self.arrivals.running(value)
        return running and running.packed


def partial_parts(value: object) -> list[Any]:
    """What functools.partial has made of a function and data that cannot change: both. Of anything
    else nothing, for what is done to a copy would be lost.
    """
    if type(value) is not partial or not isinstance(value.func, FUNCTIONS):
        return []
    parts = [*value.args, *value.keywords.values()]
    fixed = all(type(it) in SCALARS for it in parts)
    return [value.func, [*value.args], value.keywords] if fixed else []


def note_copy(value: object, doubts: dict[bool, str]) -> None:
    """Note that the program gets plain data for an instance of a subclass of data, or a function
    for what is more.
    """
    if collapsed(value, type(value)) is not value:
        doubts[isinstance(value, MUTABLE)] = f"this test passes a copy of a {type(value).__name__}"
    elif callable(value) and not (isinstance(value, FUNCTIONS) or partial_parts(value)):
        doubts[False] = f"this test passes a {type(value).__name__} as a function"


class Arrivals:
    """Rebuilds values and exceptions of one program."""

    def __init__(self, connection: Connection) -> None:
        self.may_stop = False
        """Whether the last request may raise StopIteration without saying more than it should."""
        self._running: dict[int, tuple[RemoteRef, weakref.ref[Any]]] = {}
        """By id: generators and coroutines that stand for the program's. A test that drops one
        closes it."""
        self._connection = connection
        self.objects = (
            Objects(connection, self.opaque, lambda data: self.unpacker.inner(data))
            if connection.job["objects"]
            else None
        )
        """Where there may be classes of the program's, and so objects."""
        data: dict[str, Callable[[Json], Any]] = {"opaque": self.opaque, "numpy": self._numpy}
        self.unpacker = Unpacker({
            **data, "opaque": self._object, "graph": self._graph, "error": self.error,
            "builtin": self._builtin,
            "lazy": partial(self._run, items), "callback": connection.own_function,
            "coroutine": partial(self._run, awaited), "shared": self._shared, "bare": self._bare,
            "alias": self._alias,
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

    def error(self, parts: list[Json], depth: int = GROUP_DEPTH) -> BaseException:
        """An exception of the program's, rebuilt, of which groups are nested at most so deep.
        Raises CodecError.
        """
        names, arguments, name, text, described, cause, notes, group, fields = parts
        text = str(text)[:SHOWN]
        error = exception(names, arguments, text, f"{str(name)[:100]}: {text}")
        if group:
            message, errors = group
            error = self._group(message, errors, depth)
        ends = self.may_stop and isinstance(error, StopIteration | StopAsyncIteration)
        if isinstance(error, STEERING) and not ends:
            self._connection.forgeable = True
        if described is not None:
            if self.objects is None:
                raise CodecError("malformed exception")
            error = self.objects.error(described, error, text)
        elif name not in names:
            self._connection.changes.add(SUBCLASSES)
        error.__cause__ = self.error(cause, depth) if cause else None
        for field, value in [] if described else fields:
            if not str(field).startswith("__"):
                vars(error)[str(field)] = self._data_unpacker.value(value)
        if notes:
            object.__setattr__(error, "__notes__", [*map(str, notes)])
        return error

    def _group(self, message: Json, parts: list[Json], depth: int) -> ExceptionGroup[Exception]:
        self.unpacker.left -= PARTS_OF_ERROR * len(parts)
        if self.unpacker.left < 0 or depth == 0:
            raise TooLargeError("a group of too many exceptions")
        errors = [self.error(part, depth - 1) for part in parts]
        errors_alone = [it for it in errors if isinstance(it, Exception)]  # no SystemExit
        return ExceptionGroup(str(message)[:SHOWN], errors_alone)

    def _numpy(self, parts: Json) -> Any:
        """A value of numpy's; as Python's where the test takes no other."""
        value = rebuild_numpy(parts)
        if value.size == 0:  # broadcast over a test's array, it leaves nothing to compare
            self._connection.forgeable = True
        if self._connection.job["numpy"]:
            return value
        self._connection.made_plain = True
        return plain_numpy(value)

    def opaque(self, parts: Json) -> Opaque:
        """An object that may do more there than its stand-in does here, if it is a library's."""
        opaque = Opaque(parts)
        if parts[2:] in ([1], [2]):
            self._connection.foreign.add(str(parts[0]))
        return opaque

    def _object(self, parts: Json) -> Opaque:
        """As `opaque`, where a job with objects has more than a stand-in, which can do nothing: a
        test may pass for that alone, or fail.
        """
        if self.objects is None:
            self._connection.changes.add(OBJECTS)
        return self.opaque(parts)

    def _bare(self, packed: Json) -> Any:
        """Data of an object that has more than data."""
        self._connection.changes.add(SUBCLASSES)
        return self.unpacker.inner(packed)

    def _alias(self, packed: Json) -> Any:
        """Data of which a part is an object that the test has in another place too."""
        self._connection.changes.add(ALIASES)
        return self.unpacker.inner(packed)

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
        at = id(instance)
        self._running[at] = ref, weakref.ref(instance, lambda _: self._running.pop(at, None))
        return instance

    def running(self, value: object) -> RemoteRef | None:
        """The program's generator or coroutine for which this stands."""
        ref, instance = self._running.get(id(value), (None, None))
        return ref if instance and instance() is value else None

    def _graph(self, rows: Json) -> Any:
        connection, on_change = self._connection, partial(self._connection.changes.add, ARGUMENTS)
        return connection.nodes.unpack(rows, self.unpacker, connection.job["mutates"], on_change)


def is_pythons(value: object) -> bool:
    """Whether it is a class of Python's."""
    return isinstance(value, type) and not isinstance(value, RemoteClass)


def is_index(number: Json, of: list[Any]) -> bool:
    """Whether `number` is an index into `of`."""
    return type(number) is int and 0 <= number < len(of)
