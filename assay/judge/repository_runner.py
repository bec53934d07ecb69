"""Runs chosen tests of a repository with pytest, each in a process of its own, in a box.

A parent imports pytest, and nothing of the repository: it starts without `site`, whose files may
name the repository's folders. It forks a collector, which imports what the
tests import, and hands it one test after another with a number. The collector forks for each; the
fork reports on a socket that was open before the repository was imported, each line with that
number. The parent decides what is asked next, and prints a JSON object in the end: its standard
output is nobody else's.

It runs in the repository's interpreter, so it uses nothing but the standard library and pytest.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import re
import select
import signal
import site
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

LINE = 16 << 20
"""Most bytes of one line of the collector's."""
HOW = ("passed", "skipped", "failed")
"""How a phase of a test ends, the worst last."""
GOES_ON = ("passed", "xfailed", "skipped", "timeout")
"""Outcomes after which a run goes on: a right change may skip the test, or the machine be slow."""
LONGEST = 2000
"""Characters of a failure that are reported."""
RESTARTS = 3
"""Collectors that may be started after the first: a test that runs out of time ends its own."""
DUMPABLE = 4
NO_OPTIONS = ("-o", "addopts=")
"""Arguments without those of the repository's configuration, which may need absent plug-ins."""
USAGE_ERROR = 4


class RunnerJob(NamedTuple):
    """What the parent reads from standard input, as JSON."""

    tests: list[str]
    """Ids, in the order in which to run them; none for all that there are."""
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
    decisive: list[str]
    """Tests of which the first that fails ends the run."""


class ForgedError(Exception):
    """Something was said of a test that nobody had asked for."""


class Collector:
    """The process that has imported the repository, as the parent sees it."""

    def __init__(self, job: RunnerJob) -> None:
        self._stream, theirs = socket.socketpair()
        self._seconds, self._lines = job.seconds, b""
        self._pid = os.fork()
        if self._pid == 0:
            self._stream.close()
            os.dup2(2, 1)
            collect(job, theirs)
        theirs.close()

    def receive(self, deadline: float) -> Any:
        """What it says next; None where it has ended, or says nothing in time. Raises
        ForgedError.
        """
        while b"\n" not in self._lines:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([self._stream], [], [], left)[0]
            data = self._stream.recv(LINE) if ready else b""
            if not data or len(self._lines) > LINE:
                return None
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            raise ForgedError from None

    def collected(self) -> dict[str, Any]:
        """The ids of what it found, and the error that kept it from others."""
        deadline = time.monotonic() + self._seconds
        answer = self.receive(deadline)
        if isinstance(answer, dict) and isinstance(answer.get("ids"), list):
            return answer
        late = time.monotonic() >= deadline
        why = f"took more than {self._seconds:g} s" if late else "ended early"
        return {"ids": [], "error": f"the collection {why}", "late": late}

    def run(self, test: str) -> tuple[dict[str, Any], bool]:
        """Run one test. What came of it, and whether others can follow. Raises ForgedError."""
        started, number = time.monotonic(), int.from_bytes(os.urandom(6), "big")
        with contextlib.suppress(OSError):
            send(self._stream, [test, number])
        reports: list[Any] = []
        result = {"outcome": "ended", "detail": "its process ended early"}
        while message := self.receive(started + self._seconds):
            if type(message) is not list or len(message) != 5 or message[0] != number:
                raise ForgedError
            if message[1] == "ended":
                result = outcome(reports, result) if message[2] == "0" else result
                break
            reports.append(message[1:])
        seconds = time.monotonic() - started
        if seconds >= self._seconds:
            result = {"outcome": "timeout", "detail": f"took more than {self._seconds:g} s"}
        return {**result, "seconds": seconds}, message is not None

    def close(self) -> None:
        """End it with what it has started, as far as that is in its group."""
        self._stream.close()
        for target in (self._pid, -self._pid):
            with contextlib.suppress(OSError):
                os.kill(target, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def outcome(reports: Sequence[Sequence[Any]], ended: dict[str, Any]) -> dict[str, Any]:
    """What the reports of a test's phases make of it: of its setup, calls (subtests have their own)
    and teardown, in this order. Raises ForgedError for any others.
    """
    phases = [phase for phase, *_ in reports]
    if phases[:1] != ["setup"] or phases[-1] != "teardown":
        return ended
    if {*phases[1:-1]} - {"call"} or any(how not in HOW for _, how, *_ in reports):
        raise ForgedError
    _, how, expected, detail = max(reports, key=lambda report: HOW.index(report[1]))
    if how == "passed" and "call" not in phases:
        return ended
    how = "xfailed" if how == "skipped" and expected else how
    return {"outcome": how, "detail": str(detail)[:LONGEST]}


def supervise(job: RunnerJob) -> dict[str, Any]:
    """Run all tests. What came of them, by id. Raises ForgedError."""
    results: dict[str, dict[str, Any]] = {}
    left = list(job.tests)
    for _ in range(1 + RESTARTS):
        collector = Collector(job)
        try:
            answer = collector.collected()
            if answer.get("usage") and NO_OPTIONS[-1] not in job.arguments:
                job = job._replace(arguments=[*job.arguments, *NO_OPTIONS])
                continue
            missing = {
                "outcome": "timeout" if answer.get("late") else "missing",
                "detail": str(answer.get("error"))[:LONGEST],
            }
            present, goes_on = set(map(str, answer["ids"])), True
            left = left or sorted(present)
            results.update((test, missing) for test in left if test not in present)
            left = [test for test in left if test in present]
            while left and goes_on:
                test = left.pop(0)
                results[test], goes_on = collector.run(test)
                if test in job.decisive and results[test]["outcome"] not in GOES_ON:
                    return {"results": results}
        finally:
            collector.close()
        if not left:
            break
    for test in left:  # as the last one that ended a collector
        results[test] = {"outcome": "timeout", "detail": "other tests ended the run"}
    return {"results": results}


def collect(job: RunnerJob, stream: socket.socket) -> NoReturn:
    """The collector: import whatever the tests import, and serve the parent."""
    import pytest

    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        for name in list(sys.modules):
            if name.partition(".")[0] in job.replaced:
                del sys.modules[name]
        if not job.packages:
            site.main()
        sys.path = [*job.paths, *sys.path]
        os.environ["PYTHONPATH"] = ":".join(job.paths)  # for what tests start
        status = pytest.main([*job.arguments, *job.files], plugins=[Plugin(job, stream)])
        error = f"pytest ended with status {int(status)}"
        send(stream, {"ids": [], "error": error, "usage": status == USAGE_ERROR})
    finally:
        os._exit(0)


class Plugin:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, job: RunnerJob, stream: socket.socket) -> None:
        self._job, self._stream = job, stream
        self._number, self._error = 0, ""

    def pytest_collectreport(self, report: Any) -> None:
        """Keep why a file cannot be collected."""
        if not report.passed:
            self._error = str(report.longrepr)[-LONGEST:]

    def pytest_runtestloop(self, session: Any) -> bool:
        """Say what there is, and run what is asked for, each in a fork."""
        items = {item.nodeid: item for item in session.items}
        for cut in (test for test in self._job.tests if "[" in test and not test.endswith("]")):
            whole = [test for test in items if test.startswith(cut)]
            items.update({cut: items[whole[0]]} if len(whole) == 1 else {})
        present = [test for test in self._job.tests or items if test in items]
        send(self._stream, {"ids": present, "error": self._error})
        gc.collect()
        gc.freeze()  # forks then copy fewer pages
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it may take statuses
        for line in self._stream.makefile("rb"):
            test, self._number = json.loads(line)
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)
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
        detail = "" if report.passed else str(report.longrepr)[-LONGEST:]
        expected = hasattr(report, "wasxfail")
        send(self._stream, [self._number, report.when, report.outcome, expected, detail])


def own_packages() -> list[str]:
    """Where the packages of this interpreter are, or of its virtual environment."""
    prefix, prefixes = Path(sys.executable).parents[1], [sys.prefix]
    with contextlib.suppress(OSError):
        settings = (prefix / "pyvenv.cfg").read_text()
        shared = re.search(r"include-system-site-packages\s*=\s*true", settings, re.IGNORECASE)
        prefixes = [str(prefix), *([sys.base_prefix] if shared else [])]
    # Debian's site names only its own folders for a virtual environment that it does not start in
    plain = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    return [*(f"{folder}/{plain}" for folder in prefixes), *site.getsitepackages(prefixes)]


def send(stream: socket.socket, message: object) -> None:
    """Send one line."""
    stream.sendall(json.dumps(message).encode() + b"\n")


def main() -> None:
    """The parent."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # nobody reaches its descriptors
    job = RunnerJob(*json.load(sys.stdin))
    sys.path += job.packages or own_packages()
    try:
        import pytest  # noqa: F401

        answer = supervise(job)
    except ForgedError:
        answer = {"forged": True}
    except ImportError as error:
        answer = {"setup": f"{error}; the task's interpreter needs pytest"}
    except Exception as error:  # noqa: BLE001  the program may make anything fail, as a fork
        answer = {"ended": f"{type(error).__name__}: {error}"[:LONGEST]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
