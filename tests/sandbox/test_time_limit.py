"""The time that a run has: that in which it waits for a core is given back."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator

import pytest

from assay.sandbox import time_limit
from assay.sandbox.processes import CandidateProcess, CompanionProcess
from assay.sandbox.program import Ended
from assay.sandbox.sockets import BufferedSocket
from assay.sandbox.time_limit import TimeLimit

WALL_SECONDS = 2.0


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """How long processes have waited for a core, by their pids, as the kernel would say."""
    seconds: dict[int, float] = {}
    monkeypatch.setattr(time_limit, "starved_seconds", lambda pid: seconds.get(pid, 0.0))
    return seconds


@pytest.fixture
def pair() -> Iterator[tuple[CandidateProcess, CompanionProcess]]:
    """A program's process and the companion that tests it: this one and its parent."""
    ours, theirs = socket.socketpair()
    own, parent = os.getpid(), os.getppid()
    candidate = CandidateProcess(own, os.pidfd_open(own), ours, os.open(os.devnull, os.O_RDONLY))
    stream = BufferedSocket(theirs, 1)
    companion = CompanionProcess(parent, os.pidfd_open(parent), stream)
    yield candidate, companion
    candidate.close()
    companion.close()


Pair = tuple[CandidateProcess, CompanionProcess]


def test_the_time_in_which_a_program_or_its_companion_gets_no_core_is_given_back(
    waited: dict[int, float], pair: Pair
) -> None:
    candidate, companion = pair
    waited[companion.pid] = 100.0  # in its jobs before
    limit = TimeLimit(candidate, math.inf, WALL_SECONDS)
    limit.give_back_to(companion)
    deadline = limit.deadline
    for process in pair:
        waited[process.pid] = waited.get(process.pid, 0.0) + 1.5
        assert limit.exceeded(limit.deadline) is None
    assert limit.deadline == pytest.approx(deadline + 3.0)
    assert limit.exceeded(limit.deadline) is Ended.WALL


def test_what_both_wait_at_once_is_given_back_once(waited: dict[int, float], pair: Pair) -> None:
    candidate, companion = pair
    limit = TimeLimit(candidate, math.inf, WALL_SECONDS)
    limit.give_back_to(companion)
    deadline = limit.deadline
    waited[candidate.pid] = waited[companion.pid] = WALL_SECONDS
    assert limit.exceeded(limit.deadline) is None
    assert limit.deadline == pytest.approx(deadline + WALL_SECONDS, abs=0.1)


def test_a_limit_of_wall_time_gives_nothing_back(waited: dict[int, float], pair: Pair) -> None:
    candidate, companion = pair
    limit = TimeLimit(candidate, math.inf, WALL_SECONDS, starved=math.inf)
    limit.give_back_to(companion)
    waited[companion.pid] = waited[candidate.pid] = 3.0
    assert limit.exceeded(limit.deadline) is Ended.WALL
