"""Runs coroutines for callers that do not await."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; works in notebooks, too, whose thread has a running event loop.

    There the coroutine runs in a thread with a loop of its own. An interrupt cancels it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    loops: list[asyncio.AbstractEventLoop] = []
    tasks: list[asyncio.Task[T]] = []

    async def main() -> T:
        loops.append(asyncio.get_running_loop())
        tasks.append(asyncio.ensure_future(work))
        return await tasks[0]

    with ThreadPoolExecutor(1, "assay") as pool:
        try:
            return pool.submit(asyncio.run, main()).result()
        except KeyboardInterrupt:
            loops[0].call_soon_threadsafe(tasks[0].cancel)
            raise
