"""Runs coroutines: many at once, or one for a caller that does not await."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; works in notebooks, too, whose thread has a running event loop.

    There the coroutine runs in a thread. An interrupt cancels it.
    """
    return run_in_thread(work) if asyncio._get_running_loop() else asyncio.run(work)


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a thread with a loop of its own. An interrupt cancels it."""
    tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    interrupted, ended = threading.Event(), threading.Event()

    async def cancellable() -> T:
        task = asyncio.ensure_future(work)
        tasks.append((asyncio.get_running_loop(), task))
        if interrupted.is_set():
            task.cancel()
        try:
            return await task
        finally:
            ended.set()

    with ThreadPoolExecutor(1, thread_name_prefix="assay") as pool:
        try:
            return pool.submit(asyncio.run, cancellable()).result()
        except BaseException:
            interrupted.set()
            for loop, task in tasks:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(task.cancel)
                ended.wait()  # an interrupt while the thread starts leaves it to itself
            raise


@contextlib.contextmanager
def on_signals(handler: Callable[[int, FrameType | None], None], *more: int) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and `more` signals in the block; outside of the main thread none."""
    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, *more) if main else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def termination_interrupts() -> Iterator[None]:
    """SIGTERM does in the block what Ctrl-C does; outside of the main thread it stays as it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def in_own_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run `function` in a new thread. A caller that is cancelled waits for its end.

    OpenMP's threads belong to the thread whose work they share, and end with it. While a process
    has more of them than cores, as when it computes in two threads by turns, they fall asleep so
    soon that small operations wait for them to wake.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="assay")
    running = asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
    try:
        return await asyncio.shield(running)
    finally:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        pool.shutdown()


async def together(calls: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run all calls at once and return their results in order.

    When one call raises, the others are cancelled, and that exception is raised as it is.
    """
    try:
        async with asyncio.TaskGroup() as running:
            tasks = [running.create_task(call) for call in calls]
    except BaseExceptionGroup as raised:
        first: BaseException = raised
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]


async def as_they_end(
    calls: Iterable[Coroutine[Any, Any, T]], most: int
) -> AsyncGenerator[tuple[int, T], None]:
    """Run calls, at most so many at once; yields (index, result) in the order in which they end.

    Those that run are cancelled when one raises or nobody listens any more.
    """
    numbered, running = enumerate(calls), dict[asyncio.Task[T], int]()
    try:
        while True:
            while len(running) < most and (entry := next(numbered, None)):
                running[asyncio.create_task(entry[1])] = entry[0]
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield running.pop(task), task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def in_order(calls: Iterable[Coroutine[Any, Any, T]], most: int) -> AsyncGenerator[T, None]:
    """Run calls, at most so many at once; yields their results in the order of the calls. While one
    takes long, those after it go on.
    """
    ended: dict[int, T] = {}
    first = 0
    async with aclosing(as_they_end(calls, most)) as results:
        async for place, result in results:
            ended[place] = result
            while first in ended:
                yield ended.pop(first)
                first += 1


async def unless(gone: Awaitable[object], work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None where `gone` ends or fails before: `work` is cancelled then, and
    has ended.
    """
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(gone)
    waiting.add_done_callback(lambda it: it.cancelled() or it.exception())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        working.cancel()
        await asyncio.wait({working})
    return None if working.cancelled() else working.result()
