"""The test worker: runs the data set's checks against a proxy of the program, and reports how each
ended.

It holds the tests and their expected values and runs no code of the candidate's. It is in a sandbox
too, because a data set is code.
"""

from __future__ import annotations

import builtins
import errno
import gc
import io
import json
import os
import random
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from assay.bounded import bounded_cache
from assay.judge.answer_code import AnswerCode
from assay.judge.answer_names import AnswerNames
from assay.judge.kinds.calls import Caller, WorkerContext
from assay.judge.kinds.kind import KINDS, Part
from assay.judge.kinds.pytest_module import make_module
from assay.judge.library_classes import has_class, texts_in
from assay.judge.proxy import Connection
from assay.judge.requests import DETAIL, CandidateFailed
from assay.judge.test_code import LazyBuiltins, Namespace, describe, run_piece
from assay.judge.worker_messages import (
    ARRAYS,
    LEFT_OUT,
    LOADED,
    PYTEST_SESSION,
    UNASKED,
    CheckJob,
    Outcome,
    WorkerReport,
)
from assay.sandbox.ending import ASKED, DONE, HUNG_UP, MISTREATED
from assay.sandbox.kernel import MIB
from assay.sandbox.sockets import FramedSocket

HARMLESS_FAILURES = ("", "compile", "no_code", "error")
"""After any other failure of a program, a worker that has read its replies takes no other job."""
MISUSED = (AttributeError, TypeError)
"""What a test raises that takes a value for one of another type."""
MOST_CONTEXTS = 8
"""Exceptions of a chain, each raised while the next was handled, that are looked at."""
NEXT_STEP = b""
"""Tells the sandbox that a call begins."""
OPEN = open
PYTEST = make_module()
RunCheck = Callable[[Any, int, WorkerContext], list[Part]]
"""The `run` of a kind's file: makes the parts of a check, of what the check's `wire` returned and
the number of its first part.
"""
RUN: dict[str, RunCheck] = {name: import_module(name).run for name in LOADED}


def prepare(_: str, control: socket.socket) -> Callable[[], None]:
    """The work of a worker, whose socket to the supervisor is `control`."""
    names = AnswerNames(AnswerCode(control.fileno()))
    return partial(serve, control, names)


def serve(control: socket.socket, names: AnswerNames) -> None:
    """Serve jobs one after another: receive a candidate's socket and a job, write the report.
    Raises ConnectionError when the supervisor hangs up.
    """
    gc.enable()
    builtins.open, io.open = openers(os.getcwd())  # noqa: PTH109  pathlib is slow to import
    jobs, candidate, answers = FramedSocket(control, 1 << 31), None, names.watch
    answers.start()
    while True:
        frame, (descriptor,) = jobs.receive_with_descriptors()
        if candidate is not None:
            # only now: closing it would have ended the last program, which must live to pass
            candidate.close()
        job = json.loads(frame)
        candidate = socket.socket(fileno=descriptor)
        connection = Connection(FramedSocket(candidate, int(job["reply_mb"] * MIB)), job)
        random.seed = connection.console.seed
        connection.requests.before_first = partial(jobs.send, ASKED)
        answers.begin(connection.requests.may_have_answered)
        report = run_checks(connection, names, partial(jobs.send, NEXT_STEP))
        jobs.send(mark(report) + json.dumps(report._asdict()).encode())
        answers.begin(bool)
        del job, connection, report
        gc.collect()  # a test may have filled the memory that the next one needs


def openers(folder: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`open` for tests, and for the library, in a worker with this folder. A file in the program's
    folder is that of the same name here, where the two share files: a program may return an
    absolute path. A test opens no descriptor: a program may have chosen what it opens.
    """
    home, name = os.path.split(folder)
    theirs = f"{home}/candidate/" if name == "companion" else ""

    def open_here(file: Any, *arguments: Any, **keywords: Any) -> Any:
        path = os.fspath(file) if theirs and isinstance(file, os.PathLike) else file
        if theirs and isinstance(path, str) and path.startswith(theirs):
            file = f"{folder}/{path.removeprefix(theirs)}"
        return OPEN(file, *arguments, **keywords)

    def open_by_name(file: Any, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(file, int):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return open_here(file, *arguments, **keywords)

    return open_by_name, open_here


def mark(report: WorkerReport) -> bytes:
    """What the sandbox gets to know of a report: it reads nothing else of it."""
    how = report.failure.how if report.failure else ""
    return HUNG_UP if how == "hung_up" else DONE if how in HARMLESS_FAILURES else MISTREATED


def foreign_object(job: CheckJob, answered: set[str], error: BaseException | None) -> str:
    """What leaves it open whether a test fails that has got objects of these classes of libraries;
    empty where nothing does.
    """
    texts = [*texts_in([job["setup"], *(check for _, check in job["checks"])])]
    name = next((name for name in sorted(answered) if has_class(texts, name, error)), "")
    return name and f"this test gets a {name} of the program's, which stays there"


def run_checks(
    connection: Connection, names: AnswerNames, next_step: Callable[[], None] = lambda: None
) -> WorkerReport:
    """Run a job's checks; tells the sandbox by `next_step` when a call begins."""
    ended: list[Outcome] = []
    left_out = ""
    job, requests, setup_error = connection.job, connection.requests, ""
    caller = Caller(connection, next_step)
    builtin = LazyBuiltins(connection, names)
    if PYTEST_SESSION not in sys.modules:
        builtin.modules["pytest"] = PYTEST
    namespace: Namespace = {"__name__": "checks", "__builtins__": builtin}
    context, parts = WorkerContext(connection, builtin, namespace, caller), list[Part]()
    kinds, kind_error = load_kinds(job["kinds"])
    try:
        connection.load()
        setup_error = kind_error or set_up(context)
        classes: dict[str, Any] = {name: namespace.get(name) for name, _ in job["classes"]}
        connection.nodes.classes = {
            name: it for name, it in classes.items() if isinstance(it, type)
        }
        setup_error = setup_error or caller.load_checker()
        for name, check in [] if setup_error else job["checks"]:
            parts += kinds[name](check, len(parts), context)
        for part in parts:
            connection.raised_by_test = None
            end = outcome(part, connection)
            note_misuse(connection)
            if end.how == LEFT_OUT:
                left_out = end.detail
            else:
                ended.append(end)
            if requests.failure or (job["stop_early"] and end.how not in ("held", LEFT_OUT)):
                break
        if left_out and not (ended or requests.failure):
            ended = [Outcome("unasked", f"{UNASKED}: {left_out}"[:DETAIL])]
        requests.finish()
    except (CandidateFailed, ConnectionError):
        requests.hung_up()
    finally:
        connection.is_over = True
    if ended and ended[-1].how in ("wrong", "error"):
        error, detail = connection.raised_by_test, ended[-1].detail
        doubt = connection.doubts[True] or (type(error) in MISUSED and connection.doubts[False])
        if doubt := doubt or foreign_object(job, connection.foreign, error):
            connection.cannot(f"{doubt} ({detail})")
    if requests.failure and ended and ended[-1].how != "held":
        ended.pop()
    forgeable, changes = connection.is_forgeable(), sorted(connection.changes)
    return WorkerReport(ended, requests.failure, setup_error, caller.answers, forgeable, changes)


def outcome(part: Part, connection: Connection) -> Outcome:
    """How a part ends. What a plug-in's does not catch is as if a test raised it."""
    try:
        return part()
    except (CandidateFailed, ConnectionError):
        raise
    except BaseException as error:  # noqa: BLE001  a plug-in's code
        connection.raised_by_test = error
        if error is connection.requests.raised:
            return Outcome("error", connection.requests.raised_text)
        return Outcome("wrong", describe(error, "", ""))


def note_misuse(connection: Connection) -> None:
    """Note that a test may have taken a value of Python's for one of numpy's, and may have raised
    another exception for that.
    """
    error = connection.raised_by_test if connection.made_plain else None
    for _ in range(MOST_CONTEXTS):
        if isinstance(error, MISUSED):
            connection.changes.add(ARRAYS)
        error = error.__context__ if error else None


def load_kinds(texts: Mapping[str, str]) -> tuple[Mapping[str, RunCheck], str]:
    """How checks are run, by the module of their kind, and why a file of these cannot be used."""
    loaded = dict(RUN)
    for name, text in texts.items():
        try:
            loaded[name] = run_of(name, text)
        except BaseException as error:  # noqa: BLE001  a plug-in's code; the program is not to blame
            return loaded, f"the file of the kind {name}: {type(error).__name__}: {error}"[:DETAIL]
    return loaded, ""


@bounded_cache(16, 16)
def run_of(name: str, text: str) -> RunCheck:
    """The `run` of a kind's file, which is run here once. Raises whatever it raises."""
    module = ModuleType(f"worker.{name}")  # so that it is not `__main__`
    sys.modules[module.__name__] = module  # dataclasses look there
    KINDS.clear()  # nobody asks for them here, and two folders may have one of the same name
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), vars(module))
    run: RunCheck = module.run
    return run


def set_up(context: WorkerContext) -> str:
    """Run the data set's setup, then bind the entry point over what that defined. Returns the
    setup's error.

    Raises CandidateFailed where the setup fails after a request to the program: that may be the
    program's fault.
    """
    connection, entry_point = context.connection, context.connection.job["entry_point"]
    ended = run_piece((connection.job["setup"], "<setup>"), context.namespace, connection)
    if ended.how != "held" and connection.requests.count:
        how = "no_code" if connection.absent else ended.how
        raise connection.requests.fail(how, ended.detail)
    name = entry_point if entry_point.isidentifier() else "candidate"
    is_class = name == entry_point and name.lstrip("_")[:1].isupper()
    try:
        bind = connection.name if is_class else connection.function
        context.namespace[name] = bind(entry_point)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a class may refuse to be looked at
        detail = f"{type(error).__name__}: {error}"[:DETAIL]
        raise connection.requests.fail("error", detail) from None
    return ended.detail
