"""Stands for the program in the worker: a call becomes a request, and the answer is data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from assay.judge.codec import Json, Packer, Unpacker, raised
from assay.judge.codec_types import CodecError, TooLargeError, plain_numpy, rebuild_numpy
from assay.judge.protocol import UNSENDABLE, CheckJob
from assay.judge.requests import Requests
from assay.sandbox.sockets import FramedSocket

TEST_ITEMS = 5_000_000
"""How many items of an iterator a check may pass."""


class Connection:
    """Calls and values of one program, within the features that its task was given."""

    def __init__(self, sock: FramedSocket) -> None:
        self.requests = Requests(sock)
        self.absent = ""
        """The first name that a check used and the program does not define."""
        self.packer = Packer(self._reference, TEST_ITEMS)
        self._unpacker = Unpacker({"opaque": Opaque})
        self._mutates = self._callbacks = False
        self._functions: list[Callable[..., Any]] = []
        self._remotes: dict[int, Remote] = {}

    def load(self, job: CheckJob) -> None:
        """Send the program.

        The features are enforced here as well: the program may use some that it was not given.
        """
        self._mutates, handles, self._callbacks = job["features"]
        if handles:
            self._unpacker.foreign["handle"] = self._remote
        if not job["numpy"]:
            self._unpacker.foreign["numpy"] = lambda parts: plain_numpy(rebuild_numpy(parts))
        self.requests.load(job["program"], job["entry_point"], *job["features"])

    def call(self, target: str | int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function of the program's. An argument that it returns comes back as the caller's
        object, unless it was changed.
        """
        self.requests.asked += 1  # even where an argument cannot be sent
        packed = [self.packer.pack(argument) for argument in arguments]
        named = {name: self.packer.pack(value) for name, value in named.items()}
        value, same, mutated = self._request("call", target, packed, named)
        for at, new in self._mutations(mutated, arguments):
            write_back(arguments[at], self.value(new))
            packed[at] = new
        if is_index(same, arguments) and value == packed[same]:
            return arguments[same]
        return self.value(value)

    def call_packed(self, target: str, arguments: list[Json]) -> Json:
        """Call with packed arguments that nobody uses afterwards; the answer stays packed."""
        value, _, mutated = self._request("call", target, arguments, {})
        deque(self._mutations(mutated, arguments), maxlen=0)
        return value

    def name(self, name: str) -> Any:
        """A global of the program. Raises NameError where it has none of that name."""
        reply = self.requests.request("name", name, on_callback=self._on_callback())
        if reply == ["absent"]:
            self.absent = self.absent or name
            raise NameError(f"name {name!r} is not defined")
        if reply == ["function", name]:
            self.requests.named += 1
            return Proxy(self, name)
        return self.value(self.requests.parts(reply, 3)[0])

    def data(self, kind: str, *parts: Json) -> Any:
        """The value that answers a request."""
        return self.value(self._request(kind, *parts)[0])

    def value(self, data: Json) -> Any:
        """A value as the program packed it. Raises CandidateFailed where it is too large or
        malformed.
        """
        try:
            return self._unpacker.value(data)
        except (TooLargeError, MemoryError) as error:
            raise self.requests.fail("output", str(error)) from None
        except CodecError as error:
            raise self.requests.fail("forbidden", str(error)) from None

    def _request(self, kind: str, *parts: Json) -> list[Json]:
        reply = self.requests.request(kind, *parts, on_callback=self._on_callback())
        return self.requests.parts(reply, 3)

    def _on_callback(self) -> Callable[[list[Json]], None] | None:
        return self._call_back if self._callbacks else None

    def _call_back(self, parts: list[Json]) -> None:
        """Call a function that the check has passed, and send what it returns or raises."""
        fail = self.requests.fail
        if len(parts) != 3 or not is_index(parts[0], self._functions):
            raise fail("forbidden", "a call of nothing that was passed")
        function = self._functions[parts[0]]
        arguments, named = self.value(parts[1]), self.value(parts[2])
        if type(arguments) is not list or type(named) is not dict:
            raise fail("forbidden", "a malformed call")
        try:
            self.requests.send("returned", self.packer.pack(function(*arguments, **named)))
        except AssertionError as error:
            detail = f"AssertionError: {error} in a function that the check passes"
            raise fail("wrong", detail) from None
        except Exception as error:  # noqa: BLE001  the check's own function: its caller gets what it raises
            self.requests.send("raises", *raised(error))

    def _mutations(self, mutated: Json, arguments: Sequence[Any]) -> Iterator[tuple[int, Json]]:
        """Index and new value of each argument that the call has changed."""
        fail = self.requests.fail
        if mutated != [] and not self._mutates:
            raise fail("forbidden", "a mutation that the task does not allow")
        for pair in mutated if type(mutated) is list else ():
            if type(pair) is not list or len(pair) != 2 or not is_index(pair[0], arguments):
                raise fail("forbidden", "a mutation of nothing that was sent")
            yield pair[0], pair[1]

    def _reference(self, value: object) -> Json:
        """What is sent for an object that is no data."""
        if isinstance(value, Remote):
            return {"handle": place_of(value)[1]}
        if isinstance(value, Proxy):
            return {"function": value.__name__}
        if isinstance(value, Opaque):  # the program returned it before: no fault of the check's
            raise CodecError(f"{value!r} cannot be sent back")
        if self._callbacks and callable(value):
            self._functions.append(value)
            return {"callback": len(self._functions) - 1}
        what = f"{UNSENDABLE}{type(value).__name__} object to the program"
        raise self.requests.fail("unsendable", f"{what}; the sandbox can only send plain data")

    def _remote(self, parts: Json) -> Remote:
        number, name = parts
        if type(number) is not int or type(name) is not str:
            raise CodecError("malformed handle")
        return self._remotes.setdefault(number, Remote(self, number))


def is_index(number: Json, of: Sequence[object]) -> bool:
    """Whether `number` is an index into `of`."""
    return type(number) is int and 0 <= number < len(of)


def write_back(old: Any, new: Any) -> None:
    """Give a caller's mutable object the value `new`, in place."""
    if type(old) is not type(new):
        return
    if isinstance(old, list | bytearray):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif isinstance(old, deque):
        old.clear()
        old.extend(new)


class Proxy:
    """A function of the program."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.__name__ = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        return self._connection.call(self.__name__, arguments, named)


class Opaque:
    """An object of the program that is no data: equal only to itself; its truth value is what the
    program sent.
    """

    def __init__(self, parts: Json) -> None:
        name, truth = parts if type(parts) is list and len(parts) == 2 else (parts, None)
        self._name = str(name)[:100]
        self._truth = truth if type(truth) is bool else None

    def __repr__(self) -> str:
        return f"<a {self._name} of the candidate's>"

    def __bool__(self) -> bool:
        if self._truth is None:
            raise TypeError(f"{self!r} is no data")
        return self._truth


class Remote:
    """A handle on an object of the program, for tasks whose reference needs handles."""

    def __init__(self, connection: Connection, number: int) -> None:
        object.__setattr__(self, "_at", (connection, number))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ask(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        connection, _ = place_of(self)
        ask(self, "set", name, connection.packer.pack(value))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the object."""
        connection, number = place_of(self)
        return connection.call(number, arguments, named)

    def __iter__(self) -> Iterator[Any]:
        items: Iterator[Any] = ask(self, "iterate")
        return items

    def __str__(self) -> str:
        return str(ask(self, "text"))

    def __bool__(self) -> bool:
        return bool(ask(self, "truth"))


def place_of(remote: Remote) -> tuple[Connection, int]:
    """The connection to the object's process, and its number there."""
    place: tuple[Connection, int] = object.__getattribute__(remote, "_at")
    return place


def ask(remote: Remote, kind: str, *parts: Json) -> Any:
    """The answer to one request about an object."""
    connection, number = place_of(remote)
    return connection.data(kind, number, *parts)
