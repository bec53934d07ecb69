"""Runs chosen tests of a repository with pytest, each in a process of its own, in a box.

A parent imports pytest, and nothing of the repository: it starts without `site`, whose files may
name the repository's folders. It forks a collector, which imports what the
tests import, and hands it one test after another with a number. The collector forks for each; the
fork reports on a socket that was open before the repository was imported, each message with that
number. The parent decides what is asked next, and prints a JSON object in the end: its standard
output is nobody else's.

It runs in the repository's interpreter, so it uses nothing but the standard library, pytest and the
text of sockets.py, which comes with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.metadata
import json
import os
import re
import select
import signal
import site
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from assay.sandbox.sockets import BufferedSocket, FramedSocket

MOST_BYTES = 16 << 20
"""Most bytes of one message."""
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
CANARY = "!"
"""What stands before the id of a test whose file is the turned one."""


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
    doctests: dict[str, list[str]]
    """Docstrings whose examples are run, whatever stands in the program: by the id of the test,
    that of the doctest in whose place it is, and the text."""
    distribution: dict[str, str]
    """Files of a folder that imports search too, where the repository's distribution is not
    installed: their texts by path."""
    last_start: float
    """Seconds after the start of the run from which no other test starts, and twice what one may
    take; 0 where all start.
    """
    turned: dict[str, list[str]]
    """The texts of files of tests: as they are, and for canaries."""


class ForgedError(Exception):
    """Something was said of a test that nobody had asked for."""


class Collector:
    """The process that has imported the repository, as the parent sees it."""

    _channel: BufferedSocket
    _plugin: type[Plugin] | None = None
    """What serves the parent there; the usual one without it."""

    def __init__(self, job: RunnerJob, is_turned: bool, others: Iterable[Collector] = ()) -> None:
        self._files = {path: texts[is_turned] for path, texts in job.turned.items()}
        self._is_turned = is_turned
        self._lay(self._files)
        ours, theirs = socket.socketpair()
        self._seconds = job.seconds
        self._test_seconds = job.last_start / 2 or job.seconds
        self._frames: list[bytes] = []
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            for other in others:
                other._channel.stream.close()
            os.dup2(2, 1)
            collect(job, FramedSocket(theirs, MOST_BYTES), self._plugin)
        theirs.close()
        self._channel = BufferedSocket(ours, MOST_BYTES)
        self._process = pidfds(self._pid)

    def _lay(self, files: Iterable[str]) -> None:
        """Put its files of tests in place: what reads them sees what it runs."""
        for path in files:
            if path in self._files:
                Path(path).write_bytes(self._files[path].encode())
                with contextlib.suppress(PermissionError):  # where another user owns the file
                    os.utime(path, (0, 0))

    def receive(self, deadline: float) -> Any:
        """What it says next; None where it has ended, or says nothing in time. Raises
        ForgedError.
        """
        while not self._frames:
            left, stream = deadline - time.monotonic(), self._channel.stream
            unsent = [stream] if self._channel.pending else []
            if left <= 0 or not self._channel.open:
                return None
            watched: list[Any] = [stream, *self._process]
            readable, writable, _ = select.select(watched, unsent, [], left)
            if stream not in (*readable, *writable):
                return None  # nothing comes in time; or it has ended, and left a test that hangs
            self._channel.flush()
            self._frames += self._channel.receive()
        try:
            return json.loads(self._frames.pop(0))
        except (ValueError, RecursionError):
            raise ForgedError from None

    def collected(self) -> dict[str, Any]:
        """The ids of what it found, and the error that kept it from others."""
        deadline = time.monotonic() + self._seconds
        answer = self.receive(deadline)
        if isinstance(answer, dict) and isinstance(answer.get("ids"), list):
            mark = CANARY if self._is_turned else ""
            return {**answer, "ids": [f"{mark}{test}" for test in answer["ids"]]}
        late = time.monotonic() >= deadline
        why = f"took more than {self._seconds:g} s" if late else "ended early"
        return {"ids": [], "error": f"the collection {why}", "late": late}

    def run(self, test: str) -> tuple[dict[str, Any], bool]:
        """Run one test. What came of it, and whether others can follow. Raises ForgedError."""
        started, number = time.monotonic(), int.from_bytes(os.urandom(6), "big")
        id = plain(test)
        self._lay([id.partition("::")[0]])
        self._channel.send(encoded([id, number]))
        reports: list[Any] = []
        result = {"outcome": "ended", "detail": "its process ended early"}
        while message := self.receive(started + self._test_seconds):
            if type(message) is not list or len(message) != 5 or message[0] != number:
                raise ForgedError
            if message[1] == "ended":
                result = outcome(reports, result) if message[2] == "0" else result
                break
            reports.append(message[1:])
        seconds = time.monotonic() - started
        if seconds >= self._test_seconds:
            result = {"outcome": "timeout", "detail": f"took more than {self._test_seconds:g} s"}
        return {**result, "seconds": seconds}, message is not None

    def close(self) -> None:
        """End it with what it has started, as far as that is in its group."""
        self._channel.stream.close()
        for descriptor in self._process:
            os.close(descriptor)
        for target in (self._pid, -self._pid):
            with contextlib.suppress(OSError):
                os.kill(target, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def pidfds(pid: int) -> list[int]:
    """A descriptor that can be read once a process has ended; none where the kernel has none."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


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


class RunningTests:
    """The tests that are left, and what came of the others."""

    def __init__(self, job: RunnerJob) -> None:
        self.job = job
        self.results: dict[str, dict[str, Any]] = {}
        self.left = list(job.tests)
        self.collectors: dict[bool, Collector] = {}
        """One that runs tests and one that runs canaries, each by whether it does these."""
        self._starts = {False: 0, True: 0}
        self._started = time.monotonic()

    def collector(self, is_turned: bool) -> Collector | None:
        """The one that runs these; None where none of them is left to run, or it must try again."""
        if is_turned in self.collectors:
            return self.collectors[is_turned]
        of_kind = [test for test in self.left if test.startswith(CANARY) == is_turned]
        self._starts[is_turned] += 1
        if self._starts[is_turned] > 1 + RESTARTS:  # as the last one that ended a collector
            self._leave(of_kind, {"outcome": "timeout", "detail": "other tests ended the run"})
            return None
        collector = self.collectors[is_turned] = Collector(
            self.job, is_turned, [*self.collectors.values()]
        )
        answer = collector.collected()
        if answer.get("usage") and NO_OPTIONS[-1] not in self.job.arguments:
            self.job = self.job._replace(arguments=[*self.job.arguments, *NO_OPTIONS])
            self.close(is_turned)
            return None
        present = set(map(str, answer["ids"]))
        missing = {
            "outcome": "timeout" if answer.get("late") else "missing",
            "detail": str(answer.get("error"))[:LONGEST],
        }
        self.left = self.left or sorted(present)
        self._leave([test for test in of_kind if test not in present], missing)
        return collector

    def _leave(self, tests: list[str], result: dict[str, Any]) -> None:
        self.results.update((test, result) for test in tests)
        self.left = [test for test in self.left if test not in {*tests}]

    def close(self, is_turned: bool) -> None:
        """End a collector."""
        self.collectors.pop(is_turned).close()

    def is_late(self) -> bool:
        """Whether no other test starts."""
        last = self.job.last_start
        return bool(last) and time.monotonic() - self._started > last


def supervise(job: RunnerJob) -> dict[str, Any]:
    """Run all tests. What came of them, by id. Raises ForgedError."""
    run = RunningTests(job)
    try:
        if not run.left:
            run.collector(False) or run.collector(False)  # with other arguments
        while run.left:
            is_turned = run.left[0].startswith(CANARY)
            collector = run.collector(is_turned)
            if collector is None or not run.left or run.left[0].startswith(CANARY) != is_turned:
                continue
            if run.is_late():
                late = {"outcome": "timeout", "detail": "no time was left to start it"}
                return {"results": {**run.results, **dict.fromkeys(run.left, late)}}
            test = run.left.pop(0)
            run.results[test], goes_on = collector.run(test)
            if test in job.decisive and run.results[test]["outcome"] not in GOES_ON:
                break
            if not goes_on:
                run.close(is_turned)
    finally:
        for is_turned in [*run.collectors]:
            run.close(is_turned)
    return {"results": run.results}


def collect(job: RunnerJob, channel: FramedSocket, plugin: type[Plugin] | None = None) -> NoReturn:
    """The collector: import whatever the tests import, and serve the parent by a plug-in."""
    import pytest

    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        del sys.modules[FramedSocket.__module__]  # the repository may import the whole package
        for name in list(sys.modules):
            if name.partition(".")[0] in job.replaced:
                del sys.modules[name]
        if not job.packages:
            site.main()
        sys.path = [*job.paths, *sys.path]
        paths = [*job.paths, *metadata_folder(job.distribution)]
        sys.path[len(job.paths) : len(job.paths)] = paths[len(job.paths) :]
        os.environ["PYTHONPATH"] = ":".join(paths)  # for what tests start
        status = pytest.main(
            [*job.arguments, *job.files], plugins=[(plugin or Plugin)(job, channel)]
        )
        error = f"pytest ended with status {int(status)}"
        channel.send(encoded({"ids": [], "error": error, "usage": status == USAGE_ERROR}))
    finally:
        os._exit(0)


class Plugin:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, job: RunnerJob, channel: FramedSocket) -> None:
        self._job, self._channel = job, channel
        self._number, self._error = 0, ""

    def pytest_collectreport(self, report: Any) -> None:
        """Keep why a file cannot be collected."""
        if not report.passed:
            self._error = str(report.longrepr)[-LONGEST:]

    def pytest_runtestloop(self, session: Any) -> bool:
        """Say what there is, and run what is asked for, each in a fork."""
        items = {item.nodeid: item for item in session.items}
        tests = dict.fromkeys(map(plain, self._job.tests))
        for cut in (test for test in tests if "[" in test and not test.endswith("]")):
            whole = [test for test in items if test.startswith(cut)]
            items.update({cut: items[whole[0]]} if len(whole) == 1 else {})
        for test, (name, _) in self._job.doctests.items():
            items.update({test: items[name]} if hasattr(items.get(name), "dtest") else {})
        present = [test for test in tests or items if test in items]
        self._channel.send(encoded({"ids": present, "error": self._error}))
        gc.collect()
        gc.freeze()  # forks then copy fewer pages
        handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it may take statuses
        with contextlib.suppress(ConnectionError):  # the parent hangs up when it needs no more
            while True:
                self._run_next(items, handler or signal.SIG_DFL)
        return True

    def _run_next(self, items: dict[str, Any], handler: Any) -> None:
        test, self._number = json.loads(self._channel.receive())
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, handler)
            self._run(items[test], *self._job.doctests.get(test, [])[1:])
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(OSError):  # what it has started ends with it
            os.kill(-child, signal.SIGKILL)
        self._channel.send(encoded([self._number, "ended", str(status), False, ""]))

    def _run(self, item: Any, docstring: str = "") -> NoReturn:
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            if docstring and (doctest := getattr(item, "dtest", None)):
                from doctest import DocTestParser

                place = doctest.globs, doctest.name, doctest.filename, doctest.lineno
                item.dtest = DocTestParser().get_doctest(docstring, *place)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            sys.stdout.flush()
            os._exit(0)
        finally:
            os._exit(1)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Send what came of one phase of the test."""
        detail = "" if report.passed else str(report.longrepr)[-LONGEST:]
        expected = hasattr(report, "wasxfail")
        message = [self._number, report.when, report.outcome, expected, detail]
        self._channel.send(encoded(message))


def plain(test: str) -> str:
    """The id of a test, or of that of which this is the canary."""
    return test.removeprefix(CANARY)


def metadata_folder(files: dict[str, str]) -> list[str]:
    """A new folder with the metadata of the repository; none where it is installed."""
    names = [path.partition("/")[0].partition("-")[0] for path in files]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        names = [] if names and importlib.metadata.distribution(names[0]) else names
    if not names:
        return []
    folder = tempfile.mkdtemp()
    for path, text in files.items():
        Path(folder, path).parent.mkdir(exist_ok=True)
        Path(folder, path).write_text(text, encoding="utf-8")
    return [folder]


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


def encoded(message: object) -> bytes:
    """The content of one frame."""
    return json.dumps(message).encode()


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
