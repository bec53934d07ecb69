"""Runs tests of a repository one after another in one process, as plain pytest does.

The search for bugs uses it, since a process for each test costs many times the tests. It believes
the program: what is chosen is judged again as judge/repository_runner.py does. With the names of
source files it also records which of their functions each test calls.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

from assay.judge.repository_runner import (
    CANARY,
    LONGEST,
    NO_OPTIONS,
    Collector,
    ForgedError,
    Plugin,
    RunnerJob,
    encoded,
    outcome,
    own_packages,
)
from assay.make_tasks.call_recorder import Recorder

REVERSED = "reversed"
SHARE = 0.8
"""Of the time, what tests may take: the rest is for the interpreter, and to say how they end."""


class OneProcess(Plugin):
    """Takes the place of pytest's own loop over the tests, and reports each."""

    def pytest_runtestloop(self, session: Any) -> bool:
        """Say what there is, and run what is wanted, in the order of the files or against it."""
        order, files = sys.argv[-2:]
        recorder = Recorder(set(json.loads(files))) if json.loads(files) else None
        chosen_tests = {*self._job.tests}
        items = [item for item in session.items if item.nodeid in chosen_tests or not chosen_tests]
        items = items[::-1] if order == REVERSED else items
        ids = [item.nodeid for item in items]
        self._channel.send(encoded({"ids": ids, "error": self._error}))
        for place, item in enumerate(items):
            after = items[place + 1] if item is not items[-1] else None
            self._number = item.nodeid
            protocol = item.config.hook.pytest_runtest_protocol
            if recorder:
                steps = recorder.record(partial(protocol, item=item, nextitem=after))
                self._channel.send(encoded([item.nodeid, "steps", steps, False, ""]))
            else:
                protocol(item=item, nextitem=after)
            self._channel.send(encoded([item.nodeid, "ended", "0", False, ""]))
        return True


class OneProcessCollector(Collector):
    """A collector that runs the tests itself."""

    _plugin = OneProcess


def run(job: RunnerJob) -> dict[str, Any]:
    """What came of the tests, by id. Raises ForgedError."""
    deadline = time.monotonic() + SHARE * job.seconds
    collector = OneProcessCollector(job, False)
    try:
        answer = collector.collected()
        if answer.get("usage") and NO_OPTIONS[-1] not in job.arguments:
            return run(job._replace(arguments=[*job.arguments, *NO_OPTIONS]))
        missing = {"outcome": "missing", "detail": str(answer.get("error"))[:LONGEST]}
        results: dict[str, Any] = dict.fromkeys(job.tests, missing)
        left = dict.fromkeys(answer["ids"])
        reports: list[Any] = []
        steps: list[Any] = []
        started = time.monotonic()
        while left and isinstance(message := collector.receive(deadline), list):
            test, phase, content, *_ = message
            if phase == "steps":
                steps = content
            elif phase == "ended":
                left.pop(test, None)
                result = outcome(reports, {"outcome": "ended", "detail": "it has no reports"})
                seconds, started = time.monotonic() - started, time.monotonic()
                results[test] = {**result, "seconds": seconds, "steps": steps}
                reports, steps = [], []
            else:
                reports.append(message[1:])
        is_late = time.monotonic() >= deadline
        end = {"outcome": "timeout" if is_late else "ended", "detail": "the run ended early"}
        return {"results": {**results, **dict.fromkeys(left, end)}}
    finally:
        collector.close()


def main() -> None:
    """The parent, which imports nothing of the repository."""
    job = RunnerJob(*json.load(sys.stdin))
    job = job._replace(tests=[test for test in job.tests if not test.startswith(CANARY)])
    sys.path += job.packages or own_packages()
    try:
        import pytest  # noqa: F401

        answer = run(job)
    except ForgedError:
        answer = {"ended": "its reports make no sense"}
    except ImportError as error:
        answer = {"setup": f"{error}; the task's interpreter needs pytest"}
    except OSError as error:
        answer = {"ended": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
