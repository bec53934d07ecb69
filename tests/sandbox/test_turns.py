"""Slots of different pools share the cores: which numbers they get when programs come."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from assay.sandbox.limits import Limits
from assay.sandbox.program import INTERPRETERS, Pool, Program, SupervisorSettings
from assay.sandbox.slot import CANDIDATES_PER_FORK, QueuedProgram
from assay.sandbox.sockets import BufferedSocket
from assay.sandbox.supervisor import Supervisor

ONE, OTHER, THIRD = (Pool(seed=seed) for seed in range(3))


class Opened(Supervisor):
    """A supervisor of two slots whose programs a test adds, and which starts them when told to."""

    def add(self, number: int, pool: Pool) -> None:
        self.queue.add(QueuedProgram(number, Program(b"", pool=pool), self.limits))
        self._open_slots(pool)

    def start_all(self) -> None:
        """Wait for the zygotes' processes, and start every program that can start."""
        while not all(slot.candidates for slot in self.slots):
            self.events.dispatch(1.0)
        self._assign()

    def close(self) -> None:
        """Unlike a real one's: this process has other children, which shall live."""
        for slot in self.slots:
            slot.close()
        self.events.close()

    def numbers(self, pool: Pool) -> list[int]:
        return sorted(slot.number for slot in self.slots if slot.pool == pool)


@pytest.fixture
def supervisor() -> Iterator[Opened]:
    ours, theirs = socket.socketpair()
    limits = Limits()
    settings = SupervisorSettings({}, 2, [], "assay.judge.warmup", [])
    with ours, theirs, contextlib.closing(Opened(BufferedSocket(ours), limits, settings)) as one:
        yield one


def test_processes_that_are_forked_together_wake_the_supervisor_once(supervisor: Opened) -> None:
    supervisor.add(1, ONE)
    (slot,) = supervisor.slots
    while not slot.candidates:
        supervisor.events.dispatch(1.0)
    assert len(slot.candidates) == CANDIDATES_PER_FORK
    assert len({candidate.pid for candidate in slot.candidates}) == CANDIDATES_PER_FORK


def test_jobs_of_two_pools_do_not_wait_for_one_turn(supervisor: Opened) -> None:
    supervisor.add(1, ONE)
    supervisor.add(2, OTHER)
    assert supervisor.numbers(ONE) == [0]
    assert supervisor.numbers(OTHER) == [1]


def test_a_pool_gets_another_slot_where_its_free_ones_must_wait(supervisor: Opened) -> None:
    supervisor.add(1, ONE)
    supervisor.queue.cancel(1)
    supervisor.add(2, OTHER)  # nothing runs or waits: it shares the first number
    assert supervisor.numbers(ONE) == supervisor.numbers(OTHER) == [0]
    supervisor.add(3, ONE)
    assert supervisor.numbers(ONE) == [0, 1]
    supervisor.add(4, THIRD)  # every number is taken: one slot will do
    assert len(supervisor.numbers(THIRD)) == 1


def test_a_slot_gets_no_turn_in_which_another_pools_job_runs(supervisor: Opened) -> None:
    supervisor.add(1, ONE)
    supervisor.start_all()
    supervisor.add(2, OTHER)
    assert [slot.number for slot in supervisor.slots if slot.run] == [0]
    assert supervisor.numbers(OTHER) == [1]


def test_interpreters_do_not_take_the_turns_of_programs(supervisor: Opened) -> None:
    supervisor.add(1, INTERPRETERS)
    supervisor.add(2, ONE)
    assert supervisor.numbers(INTERPRETERS) == supervisor.numbers(ONE) == [0]


def test_one_pool_has_as_many_slots_as_jobs_up_to_the_width(supervisor: Opened) -> None:
    for number in range(1, 4):
        supervisor.add(number, ONE)
        assert supervisor.numbers(ONE) == list(range(min(number, 2)))
