"""The test worker: runs the data set's checks against a proxy of the program, and reports how each
ended.

It holds the tests and their expected values and runs no code of the candidate's. It is in a sandbox
too, because a data set is code.
"""

from __future__ import annotations

import builtins
import gc
import json
import socket
import time
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from assay.judge.calls import Caller
from assay.judge.protocol import UNASKED, CheckJob, Outcome, WorkerReport
from assay.judge.proxy import Connection, Proxy
from assay.judge.requests import DETAIL, CandidateFailed
from assay.sandbox.ending import DONE, HUNG_UP, MISTREATED
from assay.sandbox.kernel import MIB
from assay.sandbox.sockets import START, FramedSocket

Piece = tuple[str, str]
"""A source of the data set's, and its name in tracebacks."""
HARMLESS_FAILURES = ("", "compile", "no_code", "error")
"""After any other failure of a program, a worker that has read its replies takes no other job."""
NEXT_STEP, STEP_SECONDS = b"", 0.01
"""Tells the sandbox that a call begins, unless it was told so a moment ago."""
CHECKER = "<checker>"
"""The name of a checker in tracebacks."""


def prepare(_: str, control: socket.socket) -> Callable[[], None]:
    """The work of a worker, whose socket to the supervisor is `control`."""
    return partial(serve, control)


def serve(control: socket.socket) -> None:
    """Serve jobs one after another: receive a candidate's socket and a job, write the report."""
    gc.enable()
    jobs, candidate = FramedSocket(control, 1 << 31), None
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, len(START), 1)
        if candidate is not None:
            # only now: closing it would have ended the last program, which must live to pass
            candidate.close()
        if not descriptors:
            return
        job = json.loads(jobs.receive())
        candidate = socket.socket(fileno=descriptors[0])
        sock = FramedSocket(candidate, int(job["reply_mb"] * MIB))
        report = run_checks(job, Connection(sock), partial(jobs.send, NEXT_STEP))
        jobs.send(mark(report) + json.dumps(report._asdict()).encode())


def mark(report: WorkerReport) -> bytes:
    """What the sandbox is told of a report: it reads nothing else of it."""
    how = report.failure.how if report.failure else ""
    return HUNG_UP if how == "hung_up" else DONE if how in HARMLESS_FAILURES else MISTREATED


def run_checks(
    job: CheckJob, connection: Connection, next_step: Callable[[], None] = lambda: None
) -> WorkerReport:
    """Run a job's checks in its order; tells the sandbox by `next_step` when a call begins."""
    step_ends = time.monotonic() + STEP_SECONDS
    ended: list[Outcome] = []
    requests, setup_error = connection.requests, ""
    setup, checker = (job["setup"], "<setup>"), (job["checker"], CHECKER)
    caller = Caller(connection, job["entry_point"])
    try:
        connection.load(job)
        builtin = LazyBuiltins(connection)
        namespace: dict[str, Any] = {"__name__": "checks", "__builtins__": builtin}
        setup_error = set_up(setup, job["entry_point"], namespace, connection)
        setup_error = setup_error or load_checker(caller, checker)
        for number in [] if setup_error else job["order"]:
            check = job["checks"][number]
            if type(check) is str:
                ended.append(run_check((check, f"<check {number}>"), namespace, builtin))
            else:
                if time.monotonic() > step_ends:
                    next_step()
                    step_ends = time.monotonic() + STEP_SECONDS
                ended.append(make_call(check, number, caller, checker))
            if requests.failure or (job["stop_early"] and ended[-1].how != "held"):
                break
        requests.finish()
    except (CandidateFailed, ConnectionError):
        requests.hung_up()
    if requests.failure and ended and ended[-1].how != "held":
        ended.pop()
    return WorkerReport(ended, requests.failure, setup_error, answers=caller.answers)


@lru_cache(maxsize=64)
def compiled(source: str, filename: str) -> CodeType:
    """The code of one piece, cached, since the rollouts of a group share it. Raises SyntaxError."""
    return compile(source, filename, "exec", dont_inherit=True)


def defined_check(source: str, filename: str) -> Callable[..., object]:
    """The `check` that a data set's checker defines, in its own namespace. Raises what its code
    raises.
    """
    namespace: dict[str, Any] = {"__name__": "checker"}
    exec(compiled(source, filename), namespace)
    check: Callable[..., object] = namespace["check"]
    return check


PROGRAM = ("candidate", "solution", "main", "__main__", "submission", "program", "your_module")
"""Names by which tests import the program."""
CODE = (ModuleType, FunctionType, type, Proxy)


class LazyBuiltins(dict[str, Any]):
    """Python's built-in names, then the program's: asked for what the data set does not define."""

    def __init__(self, connection: Connection) -> None:
        # the import statement looks __import__ up without __missing__
        super().__init__(__import__=self._import)
        self.connection = connection
        self.answers: dict[str, Any] = {}
        """What checks have bound that asked the program; a use of it counts as asking."""

    def __missing__(self, name: str) -> Any:
        if name in self.answers:
            self.connection.requests.asked += 1
            return self.answers[name]
        if not hasattr(builtins, name):
            return self.connection.name(name)
        self[name] = value = getattr(builtins, name)
        return value

    def _import(self, name: str, *parts: Any, **named: Any) -> Any:
        """As `__import__`; the program is a module too."""
        if name in PROGRAM:
            return ProgramModule(self.connection)
        return builtins.__import__(name, *parts, **named)


class ProgramModule:
    """The program, as a test imports it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._connection.name(name)
        except NameError:
            raise AttributeError(f"the program does not define {name!r}") from None


def set_up(
    setup: Piece, entry_point: str, namespace: dict[str, Any], connection: Connection
) -> str:
    """Run the data set's setup, then bind the entry point over what that defined. Returns the
    setup's error.

    Raises CandidateFailed where the setup fails after a request to the program: that may be the
    program's fault.
    """
    ended = run_piece(setup, namespace, connection)
    if ended.how != "held" and connection.requests.asked:
        how = "no_code" if connection.absent else ended.how
        raise connection.requests.fail(how, ended.detail)
    name = entry_point if entry_point.isidentifier() else "candidate"
    namespace[name] = Proxy(connection, entry_point)
    return ended.detail


def run_piece(piece: Piece, namespace: dict[str, Any], connection: Connection) -> Outcome:
    """Run one piece of the data set's code. A failure that it swallows stays in the requests'
    `failure`.
    """
    try:
        exec(compiled(*piece), namespace)
    except BaseException as error:  # noqa: BLE001  the data set's code: the check does not hold, whatever it raises
        if error is connection.requests.raised:
            return Outcome("error", connection.requests.shown)
        return Outcome("wrong", describe(error, *piece))
    return Outcome("held")


def run_check(piece: Piece, namespace: dict[str, Any], builtin: LazyBuiltins) -> Outcome:
    """Run one check: `unasked` where it neither asks the program nor uses what an earlier check got
    of it.
    """
    connection, known = builtin.connection, set(namespace)
    asked = connection.requests.asked
    outcome = run_piece(piece, namespace, connection)
    if connection.requests.asked == asked:
        return Outcome("unasked", f"{UNASKED}: {outcome.detail or piece[0].strip()}"[:DETAIL])
    for name in namespace.keys() - known:
        if not isinstance(namespace[name], CODE):
            builtin.answers[name] = namespace.pop(name)
    return outcome


def load_checker(caller: Caller, checker: Piece) -> str:
    """Give the caller the data set's own `check`, if there is one. Returns its code's error."""
    try:
        caller.checker = defined_check(*checker) if checker[0] else None
    except BaseException as error:  # noqa: BLE001  the data set's code
        return describe(error, *checker)
    return ""


def make_call(call: list[Any], number: int, caller: Caller, checker: Piece) -> Outcome:
    """Make one call: [arguments, [expected] or None, tolerance]. An answer on which the checker
    raises is wrong.
    """
    requests = caller.connection.requests
    try:
        fault = caller.fault(*call)
    except BaseException as error:  # noqa: BLE001  the program's error, or the data set's checker's
        by_program = error is requests.raised
        shown = requests.shown if by_program else describe(error, *checker)
        detail = f"{shown} at {caller.describe(number, call[0])}"
        return Outcome("error" if by_program else "wrong", detail[:DETAIL])
    if fault:
        return Outcome("wrong", f"{caller.describe(number, call[0])} {fault}"[:DETAIL])
    return Outcome("held")


def describe(error: BaseException, source: str, filename: str) -> str:
    """One line: the exception, and the line of the source that raised it."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"[:DETAIL]
    number, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            number = trace.tb_lineno
        trace = trace.tb_next
    lines = source.splitlines()
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    text = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    return f"{text} at `{line}`"[:DETAIL] if line else text[:DETAIL]
