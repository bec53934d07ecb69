"""Numbered requests to one candidate process and the validation of its replies."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from assay.judge.branches import is_chosen
from assay.judge.codec import Json, Packer, dumps, loads
from assay.judge.codec_types import CodecError
from assay.judge.worker_messages import CheckJob, Outcome
from assay.sandbox.sockets import FramedSocket, OversizedError, UnaskedError

DETAIL = 400
FATAL = {"memory": "memory", "large": "output", "syntax": "compile"}
"""Replies after which nothing more is asked, and the failure that each is."""


class CandidateFailed(BaseException):
    """The program failed for good. No Exception, so that few checks catch it; where one does, the
    failure still counts.
    """


class Requests:
    """One request at a time. The first failure for good is kept in `failure` and ends every later
    request with CandidateFailed.
    """

    def __init__(self, sock: FramedSocket, rebuild: Callable[..., BaseException]) -> None:
        self._rebuild = rebuild
        self.before_first: Callable[[], None] | None = None
        """Called once, before the tests get to know anything of the program."""
        self.failure: Outcome | None = None
        self.raised: BaseException | None = None
        """The program's last exception, rebuilt here, and its description."""
        self.raised_text = ""
        self.count = 0
        """How many requests were made, or tried to be."""
        self.names = 0
        """How many of them were answered by a function or class alone."""
        self.gave_data = False
        """Whether a name of the program's stands for anything else."""
        self.gave_class = False
        """Whether a name of the program's stands for a class of Python's."""
        self.expects_exit = False
        """Whether the tests name SystemExit; else it ends the program."""
        self._sock = sock
        self.number = 0
        self._loading = False

    @property
    def beyond_names(self) -> int:
        """How many requests asked for more than a function or class."""
        return self.count - self.names

    def load(self, *parts: Json) -> None:
        """Send the program. Its answer is awaited by the next request, so that both sides prepare
        at once.
        """
        self.send("load", *parts)
        self._loading = True

    def request(
        self, kind: str, *parts: Json, on_callback: Callable[[list[Json]], None] | None = None
    ) -> list[Json]:
        """One request and its reply, as a list of the reply's kind and its parts.

        Before the reply the program may make calls of its own, which go to `on_callback`. Raises
        CandidateFailed, or the program's exception.
        """
        self.count += 1
        if self.before_first and not self.failure:
            self._tell_first(self.before_first)
        self.finish()
        self.send(kind, *parts)
        number = self.number
        while (reply := self._receive(number))[0] == "callback" and on_callback:
            on_callback(reply[1:])
        return self._checked(reply)

    def _tell_first(self, tell: Callable[[], None]) -> None:
        self.before_first = None
        if self._loading:  # what ends the worker until then is no doing of the program's
            with contextlib.suppress(ConnectionError):
                self._sock.wait()
        tell()

    def may_have_answered(self) -> bool:
        """Whether more was sent than the program itself."""
        return self.number > 1

    def finish(self) -> None:
        """Check that the program is loaded, alive, and has sent nothing unasked. Raises
        CandidateFailed.
        """
        if self.failure:
            raise CandidateFailed(self.failure.detail)
        if self._loading:
            self._await_load()
        try:
            if not self._sock.is_quiet():
                raise self.fail("forbidden", "an unasked reply")
        except ConnectionError:
            raise self.hung_up() from None

    def send(self, kind: str, *parts: Json) -> None:
        """Send a numbered frame without waiting. Raises CandidateFailed."""
        self.number += 1
        try:
            self._sock.send(dumps([kind, self.number, *parts]).encode())
        except ConnectionError:
            raise self.hung_up() from None

    def fail(self, how: str, detail: str) -> CandidateFailed:
        """Record a failure for good, unless there is one. The caller raises the result."""
        self.failure = self.failure or Outcome(how, detail)
        return CandidateFailed(detail)

    def hung_up(self) -> CandidateFailed:
        """As `fail`, for a process that hung up."""
        return self.fail("hung_up", "the candidate is gone")

    def parts(self, reply: list[Json], count: int) -> list[Json]:
        """The parts of a reply that carries a value. Raises CandidateFailed for another shape."""
        if reply[0] != "value" or len(reply) != count + 1:
            raise self.fail("forbidden", "a reply of the wrong shape")
        return reply[1:]

    def _await_load(self) -> None:
        self._loading = False
        try:
            (has_entry_point,) = self.parts(self._checked(self._receive(self.number)), 1)
        except (Exception, SystemExit):  # noqa: BLE001  whatever the program raised while it was loaded
            raise self.fail("error", self.raised_text) from None
        if has_entry_point is not True:
            raise self.fail("no_code", "the program does not define the entry point")

    def _receive(self, number: int) -> list[Json]:
        """The reply to one request, without its number."""
        try:
            frame = loads(self._sock.receive())
        except ConnectionError:
            raise self.hung_up() from None
        except (OversizedError, MemoryError) as error:
            raise self.fail("output", str(error) or "a reply too large to read") from None
        except UnaskedError:
            raise self.fail("forbidden", "an unasked reply") from None
        except CodecError as error:
            raise self.fail("forbidden", f"a malformed reply: {error}") from None
        if not (
            type(frame) is list and frame[:1] == [number] and type(frame[0]) is int and frame[1:]
        ):
            raise self.fail("forbidden", "a reply to nothing that was asked")
        return frame[1:]

    def _checked(self, reply: list[Json]) -> list[Json]:
        """The reply, unless it says that the program failed or raised."""
        kind, text = str(reply[0]), str(reply[-1])[:DETAIL]
        if kind in FATAL:
            raise self.fail(FATAL[kind], text)
        if kind == "raised":
            if len(reply) != 11:
                raise self.fail("forbidden", "a reply of the wrong shape")
            text = str(reply[5])[:DETAIL]
            self.raised_text = f"{str(reply[4])[:100]}: {text}"
            self.raised = self._rebuild(*reply[1:])
            if isinstance(self.raised, SystemExit) and not self.expects_exit:
                raise self.fail("error", self.raised_text)
            raise self.raised
        return reply


class RemoteProgram:
    """The program of one job as its objects reach it, and what of a verdict rests on them."""

    packer: Packer
    requests: Requests
    ask: Callable[..., Any]
    """The value that answers a request: its kind and parts."""
    call: Callable[..., Any]
    """Call something of the program's."""
    is_shared: Callable[[object], bool]
    """Whether the program may have answered with this object of the test's."""
    close: Callable[..., Any]
    """End a generator of the program's."""
    expected: Any
    """The objects/expected.ExpectedObjects of the job."""

    def __init__(self, job: CheckJob) -> None:
        self.job = job
        self.sources: dict[str, str] = {}
        """The pieces of the data set's code that have run, by their names in tracebacks."""
        self.doubts = {True: job["doubt"], False: ""}
        """Why a failure may be no fault of the program's: any, or of a value that is misused."""
        self.foreign = set[str]()
        """The names of the classes of libraries of which the program has answered objects. Only a
        test that has such a class too is in doubt then: else a program could choose not to be
        judged."""
        self.doubtful = set[tuple[Any, bool]]()
        """Operations that a test also has for data: the object's RemoteRef, and whether they got
        data of the test."""
        self.informed = set[Any]()
        """The RemoteRefs of objects that came of data of the test, or got some by a method, and
        that the test has read or called as no data can be."""
        self.answered = Counter[Any]()
        """How often the program has sent each class, other than by its name, and each member of an
        Enum: what stays the same object, whatever the test has done with it before."""
        self.epoch = 0
        """Increases with each request that may change an object of the program's."""
        self.by_name = -1
        """The number of the last request that called something by its name."""
        self.dropped: list[int] = []
        """Numbers of objects that the test has had and has no more, once for each time."""
        self.changes = set[str]()
        """What of the test's the program has changed, or a file's name, and what the test had in
        place of objects (worker_messages.py)."""
        self.made_plain = False
        """Whether a value of numpy's has become one of Python's."""
        self.forgeable = False
        """Whether the program decided something that a test relies on."""
        self.raised_by_test: BaseException | None = None
        """What ended the last check, in the test or in the program."""
        self.made_by_test = False
        """Whether the test constructs the value that is being rebuilt."""

    def cannot(self, what: str) -> CandidateFailed:
        """The failure of a test that cannot be judged. Where an answer may have led the test to it,
        the program is wrong.
        """
        if self.requests.may_have_answered() and is_chosen(
            sys._getframe(), self.sources, self.job["entry_point"]
        ):
            return self.requests.fail("wrong", f"{what}, after what the program has answered")
        return self.requests.fail("unsendable", what)
