"""The test worker: runs the data set's checks against a proxy of the program, and reports how each
ended.

It holds the tests and their expected values and runs no code of the candidate's. It is in a sandbox
too, because a data set is code.
"""

from __future__ import annotations

import builtins
import errno
import gc
import json
import os
import random
import re
import socket
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from assay.judge import kinds
from assay.judge.codec_types import COLLAPSE
from assay.judge.kinds.calls import Bench, Caller
from assay.judge.kinds.kind import Part
from assay.judge.kinds.pytest_module import make_module
from assay.judge.protocol import CheckJob, Outcome, WorkerReport
from assay.judge.proxy import Connection
from assay.judge.requests import DETAIL, CandidateFailed
from assay.judge.test_code import LazyBuiltins, Namespace, run_piece
from assay.sandbox.ending import DONE, HUNG_UP, MISTREATED
from assay.sandbox.kernel import MIB
from assay.sandbox.sockets import FramedSocket

HARMLESS_FAILURES = ("", "compile", "no_code", "error")
"""After any other failure of a program, a worker that has read its replies takes no other job."""
MISUSED = re.compile(r"(?:\S+: )?(?:AttributeError|TypeError)\b")
"""Starts the detail of a test that takes a value for one of another type."""
ATTRIBUTE = re.compile(r"has no attribute '(\w+)'")
LIBRARY = re.compile(
    r"^[ \t]*(?:import|from) (?!(?:math|random|string|typing|itertools|functools|pytest)\b)"
    r"|\b(?:all|any)\((?![^\n]{0,300}\bfor\b)[^\n]{0,300}[<>=]",
    re.MULTILINE,
)
"""In a test that makes objects of a library's, or asks for all of one comparison, as of arrays."""
OF_DATA = {name for kind, _ in COLLAPSE for name in dir(kind)}
NEXT_STEP = b""
"""Tells the sandbox that a call begins."""
OPEN = open
PYTEST = make_module()
RUN: dict[str, Callable[[Any, int, Bench], list[Part]]] = {}
"""How a check is run, by the module of its kind."""
for _file in os.scandir(kinds.__path__[0]):
    if _file.name.endswith(".py"):
        with OPEN(_file.path, encoding="utf-8") as _source:
            if "in_worker = " in _source.read():  # the others import much
                _name = f"{kinds.__name__}.{_file.name[:-3]}"
                RUN[_name] = import_module(_name).run


def prepare(_: str, control: socket.socket) -> Callable[[], None]:
    """The work of a worker, whose socket to the supervisor is `control`."""
    return partial(serve, control)


def serve(control: socket.socket) -> None:
    """Serve jobs one after another: receive a candidate's socket and a job, write the report.
    Raises ConnectionError when the supervisor hangs up.
    """
    gc.enable()
    builtins.open = open_by_name
    jobs, candidate = FramedSocket(control, 1 << 31), None
    while True:
        frame, (descriptor,) = jobs.receive_with_descriptors()
        if candidate is not None:
            # only now: closing it would have ended the last program, which must live to pass
            candidate.close()
        job = json.loads(frame)
        candidate = socket.socket(fileno=descriptor)
        connection = Connection(FramedSocket(candidate, int(job["reply_mb"] * MIB)), job)
        random.seed = connection.console.seed
        report = run_checks(connection, partial(jobs.send, NEXT_STEP))
        jobs.send(mark(report) + json.dumps(report._asdict()).encode())
        del job, connection, report
        gc.collect()  # a test may have filled the memory that the next one needs


def open_by_name(file: Any, *arguments: Any, **keywords: Any) -> Any:
    """As open, but not for descriptors: a program may have chosen what a test opens. Raises
    OSError.
    """
    if isinstance(file, int):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return OPEN(file, *arguments, **keywords)


def mark(report: WorkerReport) -> bytes:
    """What the sandbox gets to know of a report: it reads nothing else of it."""
    how = report.failed_by
    return HUNG_UP if how == "hung_up" else DONE if how in HARMLESS_FAILURES else MISTREATED


def wants_objects(job: CheckJob, detail: str) -> bool:
    """Whether a test that failed asks for what no data has, or imports what may make objects."""
    match = ATTRIBUTE.search(detail)
    text = "\n".join([job["setup"], *(str(check) for _, check in job["checks"])])
    return bool((match and match[1] not in OF_DATA) or LIBRARY.search(text))


def run_checks(
    connection: Connection, next_step: Callable[[], None] = lambda: None
) -> WorkerReport:
    """Run a job's checks; tells the sandbox by `next_step` when a call begins."""
    ended: list[Outcome] = []
    job, requests, setup_error = connection.job, connection.requests, ""
    caller = Caller(connection, next_step)
    builtin = LazyBuiltins(connection)
    builtin.modules["pytest"] = PYTEST
    namespace: Namespace = {"__name__": "checks", "__builtins__": builtin}
    bench, parts = Bench(connection, builtin, namespace, caller), list[Part]()
    try:
        connection.load()
        setup_error = set_up(bench)
        classes: dict[str, Any] = {name: namespace.get(name) for name, _ in job["classes"]}
        connection.nodes.classes = {
            name: it for name, it in classes.items() if isinstance(it, type)
        }
        setup_error = setup_error or caller.load_checker()
        for name, check in [] if setup_error else job["checks"]:
            parts += RUN[name](check, len(parts), bench)
        for part in parts:
            ended.append(part())
            if requests.failure or (job["stop_early"] and ended[-1].how != "held"):
                break
        requests.finish()
    except (CandidateFailed, ConnectionError):
        requests.hung_up()
    if ended and ended[-1].how in ("wrong", "error"):
        detail = ended[-1].detail
        misused = MISUSED.match(detail)
        foreign = connection.foreign if connection.foreign and wants_objects(job, detail) else ""
        if doubt := connection.doubts[True] or (misused and connection.doubts[False]) or foreign:
            connection.cannot(f"{doubt} ({detail})")
    if requests.failure and ended and ended[-1].how != "held":
        ended.pop()
    forgeable, changes = connection.is_forgeable(), sorted(connection.changes)
    return WorkerReport(ended, requests.failure, setup_error, caller.answers, forgeable, changes)


def set_up(bench: Bench) -> str:
    """Run the data set's setup, then bind the entry point over what that defined. Returns the
    setup's error.

    Raises CandidateFailed where the setup fails after a request to the program: that may be the
    program's fault.
    """
    connection, entry_point = bench.connection, bench.connection.job["entry_point"]
    ended = run_piece((connection.job["setup"], "<setup>"), bench.namespace, connection)
    if ended.how != "held" and connection.requests.count:
        how = "no_code" if connection.absent else ended.how
        raise connection.requests.fail(how, ended.detail)
    name = entry_point if entry_point.isidentifier() else "candidate"
    is_class = name == entry_point and name.lstrip("_")[:1].isupper()
    try:
        bench.namespace[name] = (connection.name if is_class else connection.function)(entry_point)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a class may refuse to be looked at
        detail = f"{type(error).__name__}: {error}"[:DETAIL]
        raise connection.requests.fail("error", detail) from None
    return ended.detail
