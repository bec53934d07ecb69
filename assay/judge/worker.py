"""The test worker: runs the data set's checks against a stand-in for the candidate, and reports what became of each.

It holds the tests and their expected values, runs no line of the candidate's, and is walled in too: a data set is code.
"""

from __future__ import annotations

import builtins
import gc
import json
import socket
from typing import Any, NamedTuple

from assay.judge.boundary import CONTROL_FD, LEAF_FD, MIB, Wire
from assay.judge.proxy import Connection, Gone, Proxy

DETAIL = 400


def main() -> None:
    """Judge one program: read the job, run it, write the report."""
    gc.enable()
    control = Wire(socket.socket(fileno=CONTROL_FD), 1 << 31)
    job = json.loads(control.receive())
    wire = Wire(socket.socket(fileno=LEAF_FD), int(job["reply_mb"] * MIB))
    control.send(json.dumps(report(job, Connection(wire))).encode())
    control.stream.recv(1)  # until we are killed: were we to end first, the candidate would see it and end too


class Ended(NamedTuple):
    """How one check ended: `held`, `wrong`, or a way in which the candidate failed."""

    how: str
    detail: str = ""


def report(job: dict[str, Any], connection: Connection) -> dict[str, Any]:
    """`checks`: [how, detail] of each that was run; `broken`: how the candidate ended it; `setup`: an error."""
    ended: list[Ended] = []
    fault = ""
    try:
        connection.load(job["program"], job["entry_point"], job["mutates"], job["handles"])
        namespace = namespace_for(connection)
        fault = set_up(job, namespace, connection)
        for number, source in enumerate([] if fault else job["checks"]):
            ended.append(run(source, f"<check {number}>", namespace, connection))
            if connection.broken or (job["stop_early"] and ended[-1].how != "held"):
                break
        connection.finish()
    except Gone:
        pass  # the connection has noted why
    broken = connection.broken
    if broken and ended and ended[-1].how != "held":
        ended.pop()
    return {
        "checks": [[end.how, end.detail] for end in ended],
        "broken": [broken.how, broken.detail] if broken else None,
        "setup": fault,
    }


class LazyBuiltins(dict[str, Any]):
    """Built-in names, then the candidate's: asked only for what neither the data set nor Python defines."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(__import__=builtins.__import__)  # which the import statement looks up past __missing__
        self._connection = connection

    def __missing__(self, name: str) -> Any:
        if not hasattr(builtins, name):
            return self._connection.name(name)
        self[name] = value = getattr(builtins, name)
        return value


def namespace_for(connection: Connection) -> dict[str, Any]:
    """The globals of setup and checks."""
    return {"__name__": "checks", "__builtins__": LazyBuiltins(connection)}


def set_up(job: dict[str, Any], namespace: dict[str, Any], connection: Connection) -> str:
    """Run the data set's own code, then bind the entry point over whatever that defined; returns the code's error."""
    ended = run(job["setup"], "<setup>", namespace, connection)
    namespace[job["entry_point"]] = Proxy(connection, job["entry_point"])
    return ended.detail if ended.how == "wrong" else ""


def run(source: str, filename: str, namespace: dict[str, Any], connection: Connection) -> Ended:
    """Run one piece of the data set's code. A failure that it swallows still stands in `connection.broken`."""
    try:
        exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    except BaseException as error:  # noqa: BLE001  the data set's code: whatever it raises says that the check does not hold
        if error is connection.raised:
            return Ended("error", str(error.args[0]))
        return Ended("wrong", described(error, source, filename))
    return Ended("held")


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
