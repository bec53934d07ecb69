"""Runs a coroutine for a caller that does not await, even where an event loop runs already."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end: here, or in another thread where this one runs an event loop, as in a
    notebook. An interrupt cancels it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        runs_a_loop = False
    else:
        runs_a_loop = True
    return _run_in_thread(work) if runs_a_loop else asyncio.run(work)


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def cancellable() -> T:
        task = asyncio.ensure_future(work)
        tasks.append((asyncio.get_running_loop(), task))
        return await task

    with ThreadPoolExecutor(1, thread_name_prefix="assay") as pool:
        future = pool.submit(asyncio.run, cancellable())
        try:
            return future.result()
        except BaseException:
            for loop, task in tasks:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(task.cancel)
            raise
