"""Which slots clients get who have used much, and whose run gives way."""

from __future__ import annotations

from typing import Any, cast

import pytest

from assay.sandbox.ending import RunRecord
from assay.sandbox.limits import Limits
from assay.sandbox.program import Ended, Pool, Program
from assay.sandbox.program_queue import ProgramQueue
from assay.sandbox.slot import QueuedProgram, RunningProgram
from assay.sandbox.slot_shares import RESERVE_SECONDS, SlotShares, Weight

NOTHING = cast("Any", None)


class Machine:
    """Slots without processes, whose clock a test moves."""

    def __init__(self, slots: int) -> None:
        self.now, self.number = 1000.0, 0
        self.running: list[RunningProgram] = []
        self.shares = SlotShares(slots, lambda: self.running, lambda: self.now)

    def queued(self, client: str) -> QueuedProgram:
        self.number += 1
        return QueuedProgram(self.number, Program(), Limits(), client, self.now)

    def start(self, queued: QueuedProgram) -> RunningProgram:
        self.shares.begin(queued)
        run = RunningProgram(
            queued, NOTHING, None, NOTHING, -1, NOTHING, RunRecord(), self.now, self.now
        )
        self.running.append(run)
        return run

    def end(self, run: RunningProgram) -> None:
        self.running.remove(run)
        self.shares.end(run.queued)

    def has_run(self, client: str, seconds: float) -> None:
        run = self.start(self.queued(client))
        self.now += seconds
        self.end(run)

    def to_stop(self, waiting: QueuedProgram) -> RunningProgram | None:
        return self.shares.to_stop(waiting, self.running)

    def may_start(self, client: str) -> bool:
        return self.shares.may_start()(self.queued(client))


def held(slots: int) -> tuple[Machine, list[RunningProgram]]:
    """A machine all whose slots a client holds, beside one that is known to use little."""
    machine = Machine(slots)
    machine.has_run("light", 0.01)
    runs = []
    for _ in range(slots):
        runs.append(machine.start(machine.queued("heavy")))
        machine.now += 1.0
    return machine, runs


def test_a_client_alone_has_every_slot_for_as_long_as_it_wants() -> None:
    machine = Machine(2)
    for _ in range(2):
        machine.start(machine.queued("alone"))
    machine.now += 100.0
    assert machine.to_stop(machine.queued("alone")) is None
    assert machine.may_start("alone")


def test_the_latest_run_gives_way_to_a_client_that_has_used_little() -> None:
    machine, runs = held(8)
    assert machine.to_stop(machine.queued("light")) is runs[-1]
    assert machine.to_stop(machine.queued("new")) is runs[-1]
    assert machine.to_stop(machine.queued("heavy")) is None


@pytest.mark.parametrize(("waiting", "most"), [("light", 4), ("new", 3)])
def test_a_client_that_has_used_much_keeps_its_share_of_the_slots(waiting: str, most: int) -> None:
    machine, runs = held(8)
    stopped = []
    while run := machine.to_stop(machine.queued(waiting)):
        run.queued.stopped_at = machine.now
        machine.end(run)
        stopped.append(run)
    assert stopped == runs[: most - 1 : -1]


def test_clients_of_whom_nothing_is_known_leave_half_of_the_slots_to_those_who_use_little() -> None:
    machine = Machine(4)
    machine.has_run("light", 0.01)
    flood = [machine.start(machine.queued(f"new {number}")) for number in range(4)]
    machine.now += 0.1
    assert machine.to_stop(machine.queued("another")) is None, "it is as new as they are"
    for _ in range(2):
        run = machine.to_stop(machine.queued("light"))
        assert run in flood
        machine.end(run)
        run.queued.stopped_at = machine.now
    assert machine.to_stop(machine.queued("light")) is None
    assert machine.may_start("light")
    assert not machine.may_start("another")


def test_a_heavy_run_is_stopped_before_that_of_a_new_client() -> None:
    machine, runs = held(3)
    machine.end(runs[2])
    machine.start(machine.queued("new"))
    machine.now += 0.1
    assert machine.to_stop(machine.queued("light")) is runs[1]


def known_crowd() -> tuple[Machine, list[RunningProgram]]:
    """Four slots that clients hold of whom it is known that they use little."""
    machine = Machine(4)
    for number in range(4):
        machine.has_run(f"known {number}", 0.02)
    return machine, [machine.start(machine.queued(f"known {number}")) for number in range(4)]


def test_runs_that_outlast_what_clients_ask_for_keep_half_of_the_slots() -> None:
    machine, runs = known_crowd()
    machine.has_run("light", 0.001)
    machine.now += 0.06
    assert machine.to_stop(machine.queued("light")) is None, "others ask for as much"
    machine.now += 0.02
    stopped = []
    while run := machine.to_stop(machine.queued("light")):
        run.queued.stopped_at = machine.now
        machine.end(run)
        stopped.append(run)
    assert stopped == runs[:2]
    assert {machine.shares.weight(run.queued) for run in runs[2:]} == {Weight.LIGHT}
    assert machine.may_start("known 0"), "its client is not known to use much"


def test_no_run_gives_way_to_a_program_of_its_own_client() -> None:
    machine, _ = known_crowd()
    for run in machine.running[:]:
        machine.end(run)
    for _ in range(4):
        machine.start(machine.queued("known 0"))
    machine.now += 0.1
    assert machine.to_stop(machine.queued("known 0")) is None
    assert machine.to_stop(machine.queued("known 1"))


@pytest.mark.parametrize("waiting", ["slow", "new"])
def test_no_run_gives_way_to_a_client_that_may_ask_for_as_much(waiting: str) -> None:
    machine, _ = known_crowd()
    machine.has_run("slow", 0.2)
    machine.now += 0.2
    assert machine.to_stop(machine.queued(waiting)) is None


def test_a_long_run_lets_others_go_first_where_there_are_others() -> None:
    machine = Machine(2)
    machine.has_run("first", 0.01)
    alone = machine.start(machine.queued("first"))
    machine.now += 0.2
    assert not machine.shares.goes_last(alone.queued)
    machine.has_run("second", 0.01)
    assert machine.shares.goes_last(alone.queued)
    assert machine.shares.weight(alone.queued) is Weight.LIGHT
    assert not machine.shares.goes_last(machine.queued("first"))


@pytest.mark.parametrize("pause", [0.0, 65.0])
def test_a_client_alone_is_light_however_much_it_uses(pause: float) -> None:
    machine = Machine(16)
    runs = [machine.start(machine.queued("trainer")) for _ in range(16)]
    machine.now += 1.0
    for run in runs:
        machine.end(run)
    machine.has_run("long ago", 0.01)
    machine.now += pause
    runs = [machine.start(machine.queued("trainer")) for _ in range(16)]
    machine.now += 1.0
    weights = {machine.shares.weight(run.queued) for run in runs}
    assert weights == {Weight.LIGHT if pause else Weight.HEAVY}
    assert {machine.shares.goes_last(run.queued) for run in runs} == {not pause}


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("seconds", [0.14, 0.5])
def test_a_crowd_that_uses_little_neither_stops_each_other_nor_holds_up_a_new_client(
    slots: int, seconds: float
) -> None:
    """Clients send programs that last as long, so that eight in ten of the slots are busy, and a
    new one sends a program of four seconds.
    """
    machine, queue = Machine(slots), list[QueuedProgram]()
    for number in range(40):
        machine.has_run(f"client {number}", seconds)
    new, began, stops = machine.queued("new"), machine.now, 0
    lasts = {new.number: 4.0}
    queue.append(new)
    every, sent = seconds / slots / 0.8, 0
    while new in queue or any(run.queued is new for run in machine.running):
        assert machine.now < began + 60.0, "it never ends"
        machine.now += 0.02
        while began + sent * every < machine.now:
            queued = machine.queued(f"client {sent % 40}")
            lasts[queued.number] = seconds
            queue.append(queued)
            sent += 1
        for run in machine.running[:]:
            if machine.now - run.started >= lasts[run.queued.number]:
                machine.end(run)
        queue.sort(key=lambda queued: machine.shares.used(queued.client))
        for queued in queue[:]:
            if len(machine.running) < slots and machine.shares.may_start()(queued):
                queue.remove(queued)
                machine.start(queued)
        is_full = queue and len(machine.running) == slots
        if is_full and (stopped := machine.to_stop(queue[0])):
            stops += 1
            machine.end(stopped)
            stopped.queued.stopped_at = machine.now
            queue.append(stopped.queued)
    assert stops <= 1
    assert machine.now - began < 20.0


def test_where_no_client_is_known_none_is_new() -> None:
    machine = Machine(2)
    assert machine.shares.weight(machine.queued("first")) is Weight.LIGHT
    machine.has_run("first", 0.01)
    assert machine.shares.weight(machine.queued("first")) is Weight.LIGHT
    assert machine.shares.weight(machine.queued("second")) is Weight.NEW
    machine.has_run("second", 5.0)
    assert machine.shares.weight(machine.queued("second")) is Weight.HEAVY


def test_with_one_slot_only_the_order_is_fair() -> None:
    machine, _ = held(1)
    assert machine.to_stop(machine.queued("light")) is None
    assert machine.may_start("heavy")


def test_a_run_that_has_just_begun_or_is_over_may_end_by_itself() -> None:
    machine, runs = held(2)
    runs[1].record.report = b"+"
    assert machine.to_stop(machine.queued("light")) is runs[0]
    runs[0].record.stopped = Ended.CPU
    assert machine.to_stop(machine.queued("light")) is None
    machine.end(runs[1])
    machine.start(machine.queued("heavy"))
    assert machine.to_stop(machine.queued("light")) is None


def test_a_program_is_stopped_once_and_then_starts_only_in_the_share_of_its_client() -> None:
    machine, (first, second) = held(2)
    assert machine.to_stop(machine.queued("light")) is second
    second.queued.stopped_at = machine.now + 3 * RESERVE_SECONDS
    machine.end(second)
    machine.now += 3.5 * RESERVE_SECONDS
    assert not machine.shares.may_start()(second.queued)
    machine.end(first)
    assert machine.shares.may_start()(second.queued)
    again = machine.start(second.queued)
    machine.start(machine.queued("heavy"))
    machine.now += 1.0
    assert machine.to_stop(machine.queued("light")) is not again


def test_a_program_that_was_stopped_starts_after_a_while_where_nobody_needs_its_slot() -> None:
    machine, (_, second) = held(2)
    assert machine.to_stop(machine.queued("light")) is second
    second.queued.stopped_at = machine.now
    machine.end(second)
    machine.now += RESERVE_SECONDS + 0.1
    assert machine.shares.may_start()(second.queued), "the other slot is still held"


def test_a_client_never_seen_comes_before_one_that_floods() -> None:
    machine = Machine(2)
    machine.has_run("flood", 5.0)
    assert machine.shares.used("new") < machine.shares.used("flood")
    for _ in range(2):
        machine.start(machine.queued("flood"))
        machine.now += 1.0
    machine.has_run("light", 0.01)
    assert machine.shares.used("light") <= machine.shares.used("new")


def test_slots_stay_reserved_for_as_long_as_they_are_needed() -> None:
    machine, (_, second) = held(2)
    assert machine.to_stop(machine.queued("light")) is second
    machine.end(second)
    for _ in range(5):
        assert not machine.may_start("heavy")
        assert machine.may_start("light")
        machine.has_run("light", 0.01)
        machine.now += RESERVE_SECONDS - 1.0
    machine.now += 1.1
    assert machine.may_start("heavy")


def test_a_use_of_long_ago_holds_nobody_back() -> None:
    machine, runs = held(2)
    for run in runs:
        machine.end(run)
    machine.now += 600.0
    machine.has_run("light", 0.01)
    assert machine.shares.used("heavy") < machine.shares.used("new")


def queue_of(used: dict[str, float], clients: list[str]) -> ProgramQueue:
    """Programs of clients, numbered from 1 in this order."""
    queue = ProgramQueue(used.__getitem__)
    for number, client in enumerate(clients, start=1):
        queue.add(QueuedProgram(number, Program(), Limits(), client))
    return queue


def taken(queue: ProgramQueue) -> list[int]:
    """The numbers in the order of service."""
    numbers = []
    while queued := queue.take(Pool(), lambda _: True):
        numbers.append(queued.number)
    return numbers


def test_the_client_that_has_used_least_is_next_and_its_programs_go_in_order() -> None:
    used = {"much": 5.0, "little": 1.0, "none": 0.0}
    queue = queue_of(used, ["much", "little", "much", "none", "little"])
    assert queue.waiting(Pool()) == 5
    assert queue.least_used(Pool()) == 0.0
    assert taken(queue) == [4, 2, 5, 1, 3]
    assert queue.waiting(Pool()) == 0


def test_a_client_with_a_hundred_waiting_programs_is_one_client() -> None:
    used = {"many": 0.1, "one": 0.1}
    assert taken(queue_of(used, [*["many"] * 100, "one"]))[-1] == 101
    used["many"] = 0.2
    assert taken(queue_of(used, [*["many"] * 100, "one"]))[0] == 101


def test_a_cancelled_program_leaves_the_queue_and_is_not_put_back() -> None:
    queue = queue_of({"a": 0.0, "b": 1.0}, ["a", "b", "b"])
    queue.cancel(1)
    queue.cancel(2)
    assert [queued.number for queued in queue.first_of_each()] == [3]
    last = queue.take(Pool(), lambda _: True)
    assert last is not None
    last.cancelled = True
    queue.put_back(last)
    assert taken(queue) == []


def test_a_program_that_gave_way_is_the_first_of_its_client() -> None:
    queue = queue_of({"a": 0.0}, ["a", "a", "a"])
    first = queue.take(Pool(), lambda _: True)
    assert first is not None
    queue.put_back(first)
    assert taken(queue) == [1, 2, 3]
