"""Functions that run in threads of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import aclosing

import pytest

from assay.sync import in_order, in_own_thread, run_in_thread, termination_interrupts


def test_each_call_has_a_new_thread_that_ends_with_it() -> None:
    async def threads() -> list[threading.Thread]:
        return [await in_own_thread(threading.current_thread) for _ in range(3)]

    found = asyncio.run(threads())
    assert len(set(map(id, found))) == 3
    for thread in found:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in found)


def test_what_the_function_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(in_own_thread(int, "x"))


def test_who_is_cancelled_waits_for_the_end_while_the_event_loop_goes_on() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(10)
        time.sleep(0.05)
        ended.set()

    async def cancel() -> None:
        running = asyncio.create_task(in_own_thread(work))
        await asyncio.to_thread(begun.wait, 10)
        for _ in range(2):
            running.cancel()
            await asyncio.sleep(0.05)
            assert not running.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended.is_set()

    asyncio.run(cancel())


def test_an_interrupt_waits_until_the_work_has_cleaned_up() -> None:
    cleaned_up = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned_up.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_in_thread(work())
    assert cleaned_up


def test_sigterm_interrupts_in_the_block_and_is_as_before_after_it() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with termination_interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_results_come_in_the_order_of_the_calls_while_later_calls_go_on() -> None:
    events: list[str] = []

    async def call(number: int, others: list[asyncio.Event]) -> int:
        events.append(f"start {number}")
        if number == 0:
            await others[2].wait()
        others[number].set()
        return number

    async def main() -> list[int]:
        others = [asyncio.Event() for _ in range(4)]
        results = []
        async with aclosing(in_order((call(n, others) for n in range(4)), 2)) as ends:
            async for number in ends:
                results.append(number)
                events.append(f"end {number}")
                if number == 2:
                    break
        return results

    assert asyncio.run(main()) == [0, 1, 2]
    assert events.index("start 2") < events.index("end 0")


def test_calls_that_run_are_cancelled_when_one_raises_or_nobody_listens_any_more() -> None:
    cancelled: list[int] = []

    async def call(number: int) -> int:
        if number == 1:
            raise ValueError("number 1")
        try:
            await asyncio.sleep(600 if number == 2 else 0)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    async def main(numbers: list[int]) -> None:
        async with aclosing(in_order(map(call, numbers), 2)) as ends:
            async for _ in ends:
                break
        assert cancelled[-1:] == [2]

    with pytest.raises(ValueError, match="number 1"):
        asyncio.run(main([2, 1]))
    asyncio.run(main([0, 2]))
    assert cancelled == [2, 2]
