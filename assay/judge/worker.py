"""The test worker: runs the data set's checks against a proxy of the program, and reports how each
ended.

It holds the tests and their expected values and runs no code of the candidate's. It is in a sandbox
too, because a data set is code.
"""

from __future__ import annotations

import gc
import json
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from assay.judge.calls import Caller
from assay.judge.kinds.pytest_module import make_module
from assay.judge.kinds.test_functions import TestRunner
from assay.judge.pieces import (
    LazyBuiltins,
    Namespace,
    Piece,
    compiled,
    describe,
    require_asked,
    run_piece,
)
from assay.judge.protocol import CheckJob, Outcome, WorkerReport
from assay.judge.proxy import Connection, Proxy
from assay.judge.requests import DETAIL, CandidateFailed
from assay.sandbox.ending import DONE, HUNG_UP, MISTREATED
from assay.sandbox.kernel import MIB
from assay.sandbox.sockets import START, FramedSocket

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
    caller = Caller(connection, job["entry_point"], job["reference"])
    try:
        connection.load(job)
        builtin = LazyBuiltins(connection, {"pytest": make_module()} if job["modules"] else {})
        namespace: Namespace = {"__name__": "checks", "__builtins__": builtin}
        tests = TestRunner(job["modules"], namespace, builtin)
        setup_error = set_up(setup, job["entry_point"], namespace, connection)
        setup_error = setup_error or load_checker(caller, checker)
        for number in [] if setup_error else job["order"]:
            check = job["checks"][number]
            if type(check) is str:
                ended.append(run_check((check, f"<check {number}>"), namespace, builtin))
            elif type(check) is dict:
                ended.append(tests.run(check["module"], check["name"]))
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


def defined_check(source: str, filename: str) -> Callable[..., object]:
    """The `check` that a data set's checker defines, in its own namespace. Raises what its code
    raises.
    """
    namespace: dict[str, Any] = {"__name__": "checker"}
    exec(compiled(source, filename), namespace)
    check: Callable[..., object] = namespace["check"]
    return check


def set_up(setup: Piece, entry_point: str, namespace: Namespace, connection: Connection) -> str:
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


def run_check(piece: Piece, namespace: Namespace, builtin: LazyBuiltins) -> Outcome:
    """Run one check: an assert, say."""
    connection, known = builtin.connection, set(namespace)
    run = partial(run_piece, piece, namespace, connection)
    outcome = require_asked(run, connection, piece[0])
    if outcome.how != "unasked":
        builtin.take_answers(namespace, known)
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
