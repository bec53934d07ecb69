"""Functions that run in threads of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

from assay.sync import in_own_thread, run_in_thread, termination_interrupts


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
