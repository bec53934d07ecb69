"""Runs chosen tests of a repository with pytest, each in a process of its own, in a box.

A parent imports nothing of the repository. It forks a collector, which imports pytest and then the
repository, and hands it one test after another with a number. The collector forks for each, and the
fork answers on a socket that was open before the repository was imported, each line with that
number. The parent decides what is asked next, and prints a JSON object in the end; what the
repository prints never reaches its standard output.

It runs in the repository's interpreter, so it uses nothing but the standard library and pytest.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

MESSAGE = 1 << 20
HOW = ("passed", "skipped", "failed")
"""How a phase of a test ends, the worst last."""
LONGEST = 2000
"""Characters of a failure that are reported."""
RESTARTS = 3
"""Collectors that may be started after the first: a test that runs out of time ends its own."""
DUMPABLE = 4
BATCH = 200
"""Ids in one message."""
NO_OPTIONS = ("-o", "addopts=")
"""Arguments without those of the repository's configuration."""
USAGE_ERROR = 4


class Job(NamedTuple):
    """What the parent reads from standard input, as JSON."""

    tests: list[str]
    """Ids, in the order in which to run them."""
    files: list[str]
    """The files that have them."""
    arguments: list[str]
    """Of pytest, beside ours."""
    paths: list[str]
    """Folders of the repository that imports search before others."""
    packages: list[str]
    """Folders that imports search after others."""
    replaced: list[str]
    """Modules that are the repository's own, even where pytest uses others of the same name."""
    seconds: float
    """Wall time of one test, and of the collection."""


class ForgedError(Exception):
    """Something was said of a test that nobody had asked for."""


class Collector:
    """The process that has imported the repository, as the parent sees it."""

    def __init__(self, job: Job) -> None:
        self.stream, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._seconds = job.seconds
        self.pid = os.fork()
        if self.pid == 0:
            self.stream.close()
            os.dup2(2, 1)
            collect(job, theirs)
        theirs.close()

    def receive(self, deadline: float) -> Any:
        """What it says next; None where it has ended, or says nothing in time."""
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.stream], [], [], left)[0]:
            return None
        data = self.stream.recv(MESSAGE)
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise ForgedError from None

    def collected(self) -> dict[str, Any]:
        """The ids of what it found, or the error that kept it from that."""
        deadline, ids = time.monotonic() + self._seconds, set[str]()
        while isinstance(told := self.receive(deadline), dict):
            ids.update(map(str, told.get("ids") or ()))
            if len(told) > 1:
                return {**told, "ids": ids}
        return {"ids": ids, "error": "the collection ended early, or took too long"}

    def run(self, test: str, number: int) -> dict[str, Any]:
        """Run one test. Raises ForgedError."""
        started = time.monotonic()
        with contextlib.suppress(OSError):
            self.stream.send(json.dumps([test, number]).encode())
        said: list[Any] = []
        result = {"outcome": "ended", "detail": "its process ended early"}
        while True:
            message = self.receive(started + self._seconds)
            if message is None:
                late = time.monotonic() > started + self._seconds
                result = {"outcome": "timeout", "detail": "took too long"} if late else result
                result["lost"] = "1"
                break
            if type(message) is not list or len(message) != 5 or message[0] != number:
                raise ForgedError
            if message[1] == "ended":
                if message[2] == "0":
                    result = outcome(said, result)
                break
            said.append(message[1:])
        return {**result, "seconds": time.monotonic() - started}

    def close(self) -> None:
        """End it with what it has started, as far as that is in its group."""
        self.stream.close()
        for target in (self.pid, -self.pid):
            with contextlib.suppress(OSError):
                os.kill(target, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def outcome(said: Sequence[Sequence[Any]], ended: dict[str, Any]) -> dict[str, Any]:
    """What the reports of a test's phases make of it: of its setup, calls (subtests have their own)
    and teardown, in this order. Raises ForgedError for any others.
    """
    phases = [phase for phase, *_ in said]
    if phases[:1] != ["setup"] or phases.count("setup") + phases.count("teardown") != 2:
        return ended
    worst = max(said, key=lambda one: HOW.index(one[1]) if one[1] in HOW else len(HOW))
    _, how, expected, detail = worst
    if how not in HOW or phases[-1] != "teardown" or {*phases[1:-1]} - {"call"}:
        raise ForgedError
    if how == "passed" and "call" not in phases:
        return ended
    how = "xfailed" if how == "skipped" and expected else how
    return {"outcome": how, "detail": str(detail)[:LONGEST]}


def supervise(job: Job) -> dict[str, Any]:
    """Run all tests. What is told of them, by id."""
    results: dict[str, dict[str, Any]] = {}
    left = list(job.tests)
    for _ in range(1 + RESTARTS):
        collector = Collector(job)
        try:
            told = collector.collected()
            if "setup" in told:
                return {"setup": str(told["setup"])[:LONGEST]}
            if told.get("usage") and NO_OPTIONS[-1] not in job.arguments:
                job = job._replace(arguments=[*job.arguments, *NO_OPTIONS])
                continue
            missing = {"outcome": "missing", "detail": str(told.get("error", ""))[:LONGEST]}
            results |= {test: dict(missing) for test in left if test not in told["ids"]}
            left = [test for test in left if test not in results]
            while left:
                test = left.pop(0)
                number = int.from_bytes(os.urandom(6), "big")
                results[test] = result = collector.run(test, number)
                if result.pop("lost", ""):
                    break
        finally:
            collector.close()
        if not left:
            break
    results |= {test: {"outcome": "missing", "detail": "others took too long"} for test in left}
    return {"results": results}


def collect(job: Job, stream: socket.socket) -> NoReturn:
    """The collector: import pytest, and then whatever the tests import."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    try:
        sys.path += job.packages
        try:
            import pytest
        except ImportError as error:
            send(stream, {"ids": [], "setup": f"{error}; the task's interpreter needs pytest"})
            os._exit(1)
        for name in list(sys.modules):
            if name.partition(".")[0] in job.replaced:
                del sys.modules[name]
        sys.path = [*job.paths, *sys.path]
        status = pytest.main([*job.arguments, *job.files], plugins=[Plugin(job, stream)])
        send(
            stream,
            {
                "ids": [],
                "error": f"pytest ended with status {status}",
                "usage": status == USAGE_ERROR,
            },
        )
    finally:
        os._exit(0)


class Plugin:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, job: Job, stream: socket.socket) -> None:
        self._job, self._stream = job, stream
        self._number, self._errors = 0, [""]

    def pytest_collectreport(self, report: Any) -> None:
        """Keep why a file cannot be collected."""
        if not report.passed:
            self._errors.append(str(report.longrepr))

    def pytest_runtestloop(self, session: Any) -> bool:
        """Say what there is, and run what is asked for, each in a fork."""
        items = {item.nodeid: item for item in session.items}
        for cut in (test for test in self._job.tests if is_cut(test)):
            whole = [test for test in items if test.startswith(cut)]
            items |= {cut: items[whole[0]]} if len(whole) == 1 else {}
        chosen = [test for test in self._job.tests if test in items]
        for start in range(0, len(chosen), BATCH):
            send(self._stream, {"ids": chosen[start : start + BATCH]})
        send(self._stream, {"ids": [], "error": self._errors[-1][-LONGEST:]})
        while data := self._stream.recv(MESSAGE):
            test, self._number = json.loads(data)
            child = os.fork()
            if child == 0:
                self._run(items[test])
            _, status = os.waitpid(child, 0)
            with contextlib.suppress(OSError):  # what it has started ends with it
                os.kill(-child, signal.SIGKILL)
            send(self._stream, [self._number, "ended", str(status), False, ""])
        return True

    def _run(self, item: Any) -> NoReturn:
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            sys.stdout.flush()
            os._exit(0)
        finally:
            os._exit(1)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Send what came of one phase of the test."""
        said = "" if report.passed else str(report.longrepr)[-LONGEST:]
        expected = hasattr(report, "wasxfail")
        send(self._stream, [self._number, report.when, report.outcome, expected, said])


def is_cut(test: str) -> bool:
    """Whether an id ends inside its parameters, as where a log was split at spaces."""
    return "[" in test and not test.endswith("]")


def send(stream: socket.socket, message: object) -> None:
    """Send one message."""
    stream.send(json.dumps(message).encode())


def main() -> None:
    """The parent."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # nobody reaches its descriptors
    job = Job(*json.load(sys.stdin))
    try:
        told = supervise(job)
    except ForgedError:
        told = {"forged": True}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
