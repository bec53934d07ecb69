"""The worker's stand-ins for what lives in the candidate: calls are requests, answers are data,
failures stick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from assay.judge.codec import CodecError, Json, Packer, TooLargeError, Unpacker, dumps, loads
from assay.judge.exceptions import exception, raised
from assay.judge.protocol import (
    NOT_REUSABLE,
    REFUSED,
    REUSABLE,
    ClosedError,
    FramedSocket,
    OversizedError,
    UnaskedError,
)

TEST_ITEMS = 5_000_000
"""How many items of an iterator a check may pass."""


class CandidateFailed(BaseException):
    """The candidate failed for good. No Exception, so that few checks catch it; swallowed, the
    failure still stands.
    """


class Failure(NamedTuple):
    """How it failed for good: `gone`, `forbidden`, `output`, `memory`, `compile`, `no_code`,
    `wrong` or `error`.

    Or `wall`, where the check itself passes what cannot cross; or `refused`, where it must be run
    by another process.
    """

    how: str
    detail: str


class Connection:
    """Requests to one candidate, one at a time and numbered."""

    def __init__(self, wire: FramedSocket) -> None:
        self.wire = wire
        self.number = 0
        self.broken: Failure | None = None
        self.raised: BaseException | None = None
        self.shown = ""
        self.absent = ""
        self.loading = False
        self.reusable = False
        self.kept = False
        self.mutates = False
        self.callbacks = False
        self.functions: list[Callable[..., Any]] = []
        self.remotes: dict[int, Remote] = {}
        self.packer = Packer(self._reference, TEST_ITEMS)
        self.unpacker = Unpacker({"opaque": Opaque})

    def load(
        self, program: str, entry_point: str, mutates: bool, handles: bool, callbacks: bool = False
    ) -> None:
        """Send the program; its answer is awaited at the first call, so that both sides prepare at
        once.

        The liberties are held to here as well: the other side may take those that it was not given.
        """
        self.mutates, self.callbacks = mutates, callbacks
        if handles:
            self.unpacker.foreign["handle"] = self._remote
        self._send("load", program, entry_point, mutates, handles, callbacks)
        self.loading = True

    def finish(self) -> None:
        """Make sure that the candidate is loaded, alive, and has said nothing unasked. Raises
        Gone.
        """
        self._loaded()
        self._be_quiet()
        self.kept = self.reusable

    def request(self, kind: str, *parts: Json) -> list[Json]:
        """One request and its answer. Raises Gone for a failure that ends all, or what the
        candidate raised.
        """
        self._loaded()
        self._be_quiet()
        self._send(kind, *parts)
        return self._answer(self.number)

    def call(self, target: str | int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call the candidate. The argument that it returns comes back as the caller's object,
        unless it was changed.
        """
        packed = [self.packer.pack(argument) for argument in arguments]
        named = {name: self.packer.pack(value) for name, value in named.items()}
        value, same, mutated = self._parts(self.request("call", target, packed, named), 3)
        for at, new in self._indexed(mutated, arguments):
            write_back(arguments[at], self.value(new))
            packed[at] = new
        if is_index(same, arguments) and value == packed[same]:
            return arguments[same]
        return self.value(value)

    def ask(self, target: str, arguments: list[Json]) -> Json:
        """Call the candidate with packed arguments that nobody looks at afterwards; its answer,
        packed as it came.
        """
        value, _, mutated = self._parts(self.request("call", target, arguments, {}), 3)
        deque(self._indexed(mutated, arguments), maxlen=0)
        return value

    def name(self, name: str) -> Any:
        """A global of the candidate's. Raises NameError where it has none."""
        answer = self.request("name", name)
        if answer == ["absent"]:
            self.absent = self.absent or name
            raise NameError(f"name {name!r} is not defined")
        if answer == ["function", name]:
            return Proxy(self, name)
        return self.value(self._parts(answer, 3)[0])

    def data(self, kind: str, *parts: Json) -> Any:
        """A request whose answer is a value."""
        return self.value(self._parts(self.request(kind, *parts), 3)[0])

    def value(self, data: Json) -> Any:
        """A value as the candidate packed it. Raises Gone for one that is too large or
        malformed.
        """
        try:
            return self.unpacker.value(data)
        except (TooLargeError, MemoryError) as error:
            raise self.fail("output", str(error)) from None
        except CodecError as error:
            raise self.fail("forbidden", str(error)) from None

    @property
    def asked(self) -> bool:
        """Whether anything was asked of the candidate since it was sent its program."""
        return self.number > 1 or self.broken is not None

    def fail(self, how: str, detail: str) -> CandidateFailed:
        """Note a failure for good; the first one stands."""
        self.broken = self.broken or Failure(how, detail)
        return CandidateFailed(detail)

    def _loaded(self) -> None:
        if self.broken:
            raise CandidateFailed(self.broken.detail)
        if self.loading:
            self.loading = False
            try:
                mark = self.wire.marked()
            except ClosedError:
                raise self.fail("gone", "the candidate is gone") from None
            if mark == REFUSED:
                self._reply(self.number)
                self.kept = True
                raise self.fail("refused", "")
            if mark not in (REUSABLE, NOT_REUSABLE):
                raise self.fail("forbidden", "a malformed reply")
            self.reusable = mark == REUSABLE
            try:
                (has_entry_point,) = self._parts(self._answer(self.number), 1)
            except Exception:  # noqa: BLE001  whatever the program raised while it was loaded ends all
                raise self.fail("error", self.shown) from None
            if has_entry_point is not True:
                raise self.fail("no_code", "the program does not define the entry point")

    def _be_quiet(self) -> None:
        try:
            if not self.wire.quiet():
                raise self.fail("forbidden", "an unasked reply")
        except ClosedError:
            raise self.fail("gone", "the candidate is gone") from None

    def _send(self, kind: str, *parts: Json) -> None:
        self.number += 1
        try:
            self.wire.send(dumps([kind, self.number, *parts]).encode())
        except ClosedError:
            raise self.fail("gone", "the candidate is gone") from None

    def _answer(self, number: int) -> list[Json]:
        """The answer to one request; before it, the candidate may call functions that the check has
        passed.
        """
        while (answer := self._reply(number))[0] == "callback" and self.callbacks:
            self._called_back(answer[1:])
        return self._unless_failed(answer)

    def _called_back(self, parts: list[Json]) -> None:
        if len(parts) != 3 or not is_index(parts[0], self.functions):
            raise self.fail("forbidden", "a call of nothing that was passed")
        at, arguments, named = parts[0], self.value(parts[1]), self.value(parts[2])
        if type(arguments) is not list or type(named) is not dict:
            raise self.fail("forbidden", "a malformed call")
        try:
            self._send("returned", self.packer.pack(self.functions[at](*arguments, **named)))
        except AssertionError as error:
            raise self.fail(
                "wrong", f"AssertionError: {error} in a function that the check passes"
            ) from None
        except Exception as error:  # noqa: BLE001  the check's own function: what it raises goes to its caller
            self._send("raises", *raised(error))

    def _reply(self, number: int) -> list[Json]:
        try:
            frame = loads(self.wire.receive())
        except ClosedError:
            raise self.fail("gone", "the candidate is gone") from None
        except (OversizedError, MemoryError) as error:
            raise self.fail("output", str(error) or "a reply too large to read") from None
        except (UnaskedError, CodecError) as error:
            raise self.fail(
                "forbidden", f"a malformed reply: {error}" if str(error) else "an unasked reply"
            ) from None
        if (
            type(frame) is not list
            or len(frame) < 2
            or type(frame[0]) is not int
            or frame[0] != number
        ):
            raise self.fail("forbidden", "a reply to nothing that was asked")
        return frame[1:]

    def _unless_failed(self, answer: list[Json]) -> list[Json]:
        kind, text = answer[0], str(answer[-1])[:400]
        how = {"exit": "error", "memory": "memory", "large": "output", "syntax": "compile"}.get(
            str(kind)
        )
        if how:
            raise self.fail(how, text)
        if kind == "raised":
            names, arguments, name = answer[1:4] if len(answer) == 5 else ([], [], "Exception")
            self.shown = f"{str(name)[:100]}: {text}"
            self.raised = exception(names, arguments, self.shown)
            raise self.raised
        return answer

    def _parts(self, answer: list[Json], count: int) -> list[Json]:
        if answer[0] != "value" or len(answer) != count + 1:
            raise self.fail("forbidden", "a reply of the wrong shape")
        return answer[1:]

    def _indexed(self, mutated: Json, arguments: Sequence[Any]) -> Iterator[tuple[int, Json]]:
        if mutated != [] and not self.mutates:
            raise self.fail("forbidden", "a mutation that the task does not allow")
        for pair in mutated if type(mutated) is list else ():
            if type(pair) is not list or len(pair) != 2 or not is_index(pair[0], arguments):
                raise self.fail("forbidden", "a mutation of nothing that was sent")
            yield pair[0], pair[1]

    def _reference(self, value: object) -> Json:
        if isinstance(value, Remote):
            return {"handle": place_of(value)[1]}
        if isinstance(value, Proxy):
            return {"function": value.__name__}
        if isinstance(value, Opaque):  # what the candidate returned before: no fault of the check's
            raise CodecError(f"{value!r} cannot be sent back")
        if self.callbacks and callable(value):
            self.functions.append(value)
            return {"callback": len(self.functions) - 1}
        raise self.fail("wall", f"it passes a {type(value).__name__}")

    def _remote(self, parts: Json) -> Remote:
        number, name = parts
        if type(number) is not int or type(name) is not str:
            raise CodecError("malformed handle")
        return self.remotes.setdefault(number, Remote(self, number))


def is_index(number: Json, of: Sequence[object]) -> bool:
    """Whether something stands there."""
    return type(number) is int and 0 <= number < len(of)


def write_back(old: Any, new: Any) -> None:
    """Make a caller's mutable object equal to `new`, in place."""
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
    """A function of the candidate's."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.__name__ = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it."""
        return self._connection.call(self.__name__, arguments, named)


class Opaque:
    """An object of the candidate's that is no data: equal to nothing but itself, and true or false
    as it said.
    """

    def __init__(self, told: Json) -> None:
        name, truth = told if type(told) is list and len(told) == 2 else (told, None)
        self._name = str(name)[:100]
        self._truth = truth if type(truth) is bool else None

    def __repr__(self) -> str:
        return f"<a {self._name} of the candidate's>"

    def __bool__(self) -> bool:
        if self._truth is None:
            raise TypeError(f"{self!r} is no data")
        return self._truth


class Remote:
    """An object of the candidate's that a task's tests may reach into, because its reference needs
    that.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        object.__setattr__(self, "_at", (connection, number))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return asked(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        connection, _ = place_of(self)
        asked(self, "set", name, connection.packer.pack(value))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the object."""
        connection, number = place_of(self)
        return connection.call(number, arguments, named)

    def __iter__(self) -> Iterator[Any]:
        items: Iterator[Any] = asked(self, "iterate")
        return items

    def __str__(self) -> str:
        return str(asked(self, "text"))

    def __bool__(self) -> bool:
        return bool(asked(self, "truth"))


def place_of(remote: Remote) -> tuple[Connection, int]:
    """Through whom the object is reached, and the number by which the candidate knows it."""
    place: tuple[Connection, int] = object.__getattribute__(remote, "_at")
    return place


def asked(remote: Remote, kind: str, *parts: Json) -> Any:
    """The answer to one request about the object."""
    connection, number = place_of(remote)
    return connection.data(kind, number, *parts)
