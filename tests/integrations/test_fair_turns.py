"""Clients share turns: who has used less goes first, and old uses are forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from assay.integrations.fair_turns import FairTurns
from assay.sandbox.fair_use import CLIENT, CLIENTS, HALF_LIFE, FairUse


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_use_counts_half_after_each_half_life() -> None:
    clock = Clock()
    use = FairUse(clock)
    use.add("a", 8.0)
    clock.now += HALF_LIFE
    assert use.of("a") == 4.0
    use.add("a", 4.0)
    assert use.of("a") == 8.0
    clock.now += 3 * HALF_LIFE
    assert use.of("a") == 1.0
    assert use.of("b") == 0.0


def test_only_clients_of_late_are_compared() -> None:
    clock = Clock()
    use = FairUse(clock)
    use.add("long ago", 8.0)
    clock.now += 2 * HALF_LIFE + 1
    use.add("b", 3.0)
    use.add("a", 2.0)
    assert use.of_recent() == [2.0, 3.0]


def test_no_number_of_clients_fills_the_memory_and_the_latest_are_remembered() -> None:
    use = FairUse(Clock())
    use.add("first", 1.0)
    for number in range(CLIENTS - 1):
        use.add(str(number), 1.0)
    use.add("first", 1.0)
    for number in range(CLIENTS - 1):
        use.add(f"another {number}", 1.0)
    assert len(use) == CLIENTS
    assert use.of("first") == 2.0
    assert "0" not in use


async def in_turn(turns: FairTurns, order: list[str], client: str, name: str, clock: Clock) -> None:
    """Hold a turn for a second of the clock, and note it."""
    CLIENT.set(client)
    async with turns.turn():
        order.append(name)
        clock.now += 1.0
        await asyncio.sleep(0)


def order_of(turns: FairTurns, clock: Clock, jobs: list[tuple[str, str]]) -> list[str]:
    """The order in which jobs of clients, which come in this order, get their turns."""
    order: list[str] = []

    async def ask() -> None:
        calls = [in_turn(turns, order, client, name, clock) for client, name in jobs]
        await asyncio.gather(*(asyncio.create_task(call) for call in calls))

    asyncio.run(ask())
    return order


def test_a_client_with_a_hundred_jobs_delays_anothers_only_by_those_in_progress() -> None:
    clock = Clock()
    many = [("many", f"many {number}") for number in range(100)]
    order = order_of(FairTurns(2, clock), clock, [*many, ("one", "one")])
    assert order[:4] == ["many 0", "many 1", "one", "many 2"]
    assert order == ["many 0", "many 1", "one", *(name for _, name in many[2:])]


def test_clients_that_use_the_same_alternate() -> None:
    clock = Clock()
    jobs = [(client, f"{client}{number}") for client in "ab" for number in range(3)]
    assert order_of(FairTurns(1, clock), clock, jobs) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_whoever_stops_waiting_gives_its_place_away() -> None:
    clock = Clock()
    turns, order = FairTurns(1, clock), list[str]()

    async def ask() -> None:
        names = ("holds", "leaves", "stays")
        holds, leaves, stays = [
            asyncio.create_task(in_turn(turns, order, name, name, clock)) for name in names
        ]
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.gather(holds, stays)
        assert leaves.cancelled()
        last = asyncio.create_task(in_turn(turns, order, "last", "last", clock))
        await asyncio.sleep(0)
        last.cancel()  # it holds the turn
        await asyncio.wait([last])
        await in_turn(turns, order, "next", "next", clock)

    asyncio.run(ask())
    assert order == ["holds", "stays", "last", "next"]


def test_who_is_cancelled_in_the_moment_of_its_turn_passes_it_on() -> None:
    clock = Clock()
    turns, order = FairTurns(1, clock), list[str]()

    async def ask() -> None:
        second: asyncio.Task[None]

        async def first() -> None:
            CLIENT.set("first")
            async with turns.turn():
                await asyncio.sleep(0)
            second.cancel()  # it has just been given the turn

        running = asyncio.create_task(first())
        await asyncio.sleep(0)
        second = asyncio.create_task(in_turn(turns, order, "second", "second", clock))
        third = asyncio.create_task(in_turn(turns, order, "third", "third", clock))
        await asyncio.gather(running, third)
        assert second.cancelled()

    asyncio.run(ask())
    assert order == ["third"]
