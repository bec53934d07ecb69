"""The test worker: runs the data set's checks against a stand-in for the candidate, and reports
what became of each.

It holds the tests and their expected values, runs no line of the candidate's, and is walled in too:
a data set is code.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import socket
from itertools import starmap
from typing import Any, NamedTuple

from assay.judge import exchange_worker
from assay.judge.calls import Caller
from assay.judge.protocol import MIB, START, ClosedError, FramedSocket
from assay.judge.proxy import CandidateFailed, Connection, Failure, Proxy
from assay.judge.reuse import CHECKER, compiled, defined_check, is_reusable_source
from assay.sandbox.zygote import ROLE_FD

DETAIL = 400
Piece = tuple[str, str]
"""Source of the data set's, and the name it has in tracebacks."""
HARMLESS_ENDS = ("gone", "compile", "no_code", "error", "refused")
"""After any other failure of the candidate's, a worker that has read its replies is not used
again."""


def main() -> None:
    """Judge programs, one after another: take a candidate's socket and a job, run it, write the
    report.
    """
    gc.enable()
    control = socket.socket(fileno=ROLE_FD)
    orders, held = FramedSocket(control, 1 << 31), None
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, len(START), 2)
        if held is not None:
            # only now: its end would have ended the last candidate, which must live to pass
            held.close()
        if not descriptors:
            return
        job = json.loads(orders.receive())
        held = socket.socket(fileno=descriptors[0])
        wire = FramedSocket(held, int(job["reply_mb"] * MIB))
        if len(descriptors) > 1:
            found = exchange_worker.report(job, wire, descriptors[1])
            os.close(descriptors[1])
        else:
            found = report(job, Connection(wire))
        orders.send(json.dumps(found).encode())


class CheckResult(NamedTuple):
    """How one check ended: `held`, `wrong`, or a way in which the candidate failed."""

    how: str
    detail: str = ""


def report(job: dict[str, Any], connection: Connection) -> dict[str, Any]:
    """`checks`: [how, detail] of each that ran; `broken`: how the candidate ended it; `setup`: an
    error; `clean`.

    `answers`: those to the calls whose right value is sought; `kept`: whether the candidate may be
    given another.
    """
    ended: list[CheckResult] = []
    fault = ""
    setup, checker = (job["setup"], "<setup>"), (job["checker"], CHECKER)
    caller = Caller(connection, job["entry_point"])
    try:
        connection.load(
            job["program"], job["entry_point"], job["mutates"], job["handles"], job["callbacks"]
        )
        namespace = {"__name__": "checks", "__builtins__": LazyBuiltins(connection)}
        fault = set_up(setup, job["entry_point"], namespace, connection) or equip(caller, checker)
        for number in [] if fault else job["order"]:
            check = job["checks"][number]
            if type(check) is str:
                ended.append(run((check, f"<check {number}>"), namespace, connection))
            else:
                ended.append(call(check, number, caller, checker))
            if connection.broken or (job["stop_early"] and ended[-1].how != "held"):
                break
        connection.finish()
    except (CandidateFailed, ClosedError):
        connection.broken = connection.broken or Failure("gone", "the candidate is gone")
    broken = connection.broken
    checks = [
        (check, f"<check {number}>")
        for number, check in enumerate(job["checks"])
        if type(check) is str
    ]
    if broken and ended and ended[-1].how != "held":
        ended.pop()
    return {
        "checks": [[end.how, end.detail] for end in ended],
        "broken": [broken.how, broken.detail] if broken else None,
        "setup": fault,
        "exits": False,
        "answers": caller.answers,
        "kept": connection.kept,
        "clean": (
            (broken is None or broken.how in HARMLESS_ENDS)
            and all(starmap(is_reusable_source, [setup, checker, *checks]))
        ),
    }


class LazyBuiltins(dict[str, Any]):
    """Built-in names, then the candidate's: asked only for what neither the data set nor Python
    defines.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(
            __import__=builtins.__import__
        )  # which the import statement looks up past __missing__
        self._connection = connection

    def __missing__(self, name: str) -> Any:
        if not hasattr(builtins, name):
            return self._connection.name(name)
        self[name] = value = getattr(builtins, name)
        return value


def set_up(
    setup: Piece, entry_point: str, namespace: dict[str, Any], connection: Connection
) -> str:
    """Run the data set's own code, then bind the entry point over whatever that defined; returns
    the code's error.

    Raises Gone where the code fails after it has asked the candidate for something: that is no
    fault of the code's.
    """
    ended = run(setup, namespace, connection)
    if ended.how != "held" and connection.asked:
        raise connection.fail("no_code" if connection.absent else ended.how, ended.detail)
    namespace[entry_point] = Proxy(connection, entry_point)
    return ended.detail


def run(piece: Piece, namespace: dict[str, Any], connection: Connection) -> CheckResult:
    """Run one piece of the data set's code. A failure that it swallows still stands in
    `connection.broken`.
    """
    try:
        exec(compiled(*piece), namespace)
    except BaseException as error:  # noqa: BLE001  the data set's code: whatever it raises says that the check does not hold
        if error is connection.raised:
            return CheckResult("error", connection.shown)
        return CheckResult("wrong", described(error, *piece))
    return CheckResult("held")


def equip(caller: Caller, checker: Piece) -> str:
    """Give the caller the data set's own `check`, if any; returns its code's error."""
    try:
        caller.checker = defined_check(*checker) if checker[0] else None
    except Exception as error:  # noqa: BLE001  the data set's code
        return described(error, *checker)
    return ""


def call(made: list[Any], number: int, caller: Caller, checker: Piece) -> CheckResult:
    """Make one call: [arguments, [expected] or None, tolerance]. An answer that the checker cannot
    take is wrong.
    """
    try:
        fault = caller.fault(*made)
    except BaseException as error:  # noqa: BLE001  the program's error, or the data set's checker's
        raised = error is caller.connection.raised
        fault = caller.connection.shown if raised else described(error, *checker)
        return CheckResult(
            "error" if raised else "wrong",
            f"{fault} at {caller.described(number, made[0])}"[:DETAIL],
        )
    return (
        CheckResult("wrong", f"{caller.described(number, made[0])} {fault}"[:DETAIL])
        if fault
        else CheckResult("held")
    )


def described(error: BaseException, source: str, filename: str) -> str:
    """One line: the exception and the line of the check that raised it."""
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
