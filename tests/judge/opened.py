"""Sandboxes that stay open until a module's tests have ended. Each test has a judge of its own in
one of them: to start a sandbox takes longer than to judge a few programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from assay.judge import Job, Judge
from assay.judge import judge as judge_module
from assay.judge.interpreter import Observation
from assay.judge.runner import Runner
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import Limits
from assay.sandbox.supervisor_client import Sandbox
from assay.types import Execution
from tests.judge.processes import descendants
from tests.sandbox.test_launch import walls_of

T = TypeVar("T")


class Guest(Judge):
    """A judge of its own in a sandbox that others use too. `async with` does not end that."""

    def __init__(self, host: Sandbox, limits: Limits, stop_early: bool) -> None:
        super().__init__(limits, slots=1, stop_early=stop_early)
        self._sandbox = host
        self._runner = Runner(host, limits, stop_early)

    async def __aenter__(self) -> Guest:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._references.close()
        self._runner.close()


class OpenSandboxes:
    """Sandboxes of one slot, by their limits and walls, in a thread with a loop."""

    def __init__(self) -> None:
        self._judges: dict[tuple[Limits, tuple[str, ...]], Judge] = {}
        self._stack = contextlib.AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[Judge], Awaitable[T]], limits: Limits, stop_early: bool) -> T:
        async def with_judge() -> T:
            key = limits, vars(judge_module)["probe_isolation"]().walls  # a test may replace it
            if key not in self._judges:
                judge = Judge(limits, slots=1)
                self._judges[key] = await self._stack.enter_async_context(judge)
            async with Guest(self._judges[key]._sandbox, limits, stop_early) as guest:
                return await work(guest)

        return asyncio.run_coroutine_threadsafe(with_judge(), self._loop).result()

    def processes(self) -> list[int]:
        supervisors = [judge.pid for judge in self._judges.values()]
        return [*supervisors, *(pid for one in supervisors for pid in descendants(one))]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


OPEN: list[OpenSandboxes] = []


def take_walls_away(monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    """Take this machine for one of a tier: judges opened from now on have no more walls than it,
    and so have the boxes in which MCP servers list their tools. Skips the test where it has fewer.
    """
    isolation, walls = probe_isolation(), walls_of(tier)
    for module in ("assay.judge.judge", "assay.environments.mcp_servers"):
        monkeypatch.setattr(f"{module}.probe_isolation", lambda: replace(isolation, walls=walls))


@pytest.fixture(scope="module", autouse=True)
def sandboxes_end_with_the_module() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def with_judge(
    work: Callable[[Judge], Awaitable[T]], limits: Limits | None = None, stop_early: bool = True
) -> T:
    """What `work` returns, which is awaited with a new judge."""
    if not OPEN:
        OPEN.append(OpenSandboxes())
    return OPEN[0].run(work, limits or Limits(), stop_early)


def judge_all(
    jobs: Sequence[Job], limits: Limits | None = None, stop_early: bool = True,
    skip_refused: bool = False,
) -> list[Execution]:  # fmt: skip
    """As that of assay.judge, in an open sandbox."""
    return with_judge(lambda judge: judge.all(jobs, None, skip_refused), limits, stop_early)


def blocks_together(blocks: Sequence[str], limits: Limits | None = None) -> list[Observation]:
    """What comes of blocks, one after the other, in one interpreter."""

    async def run(judge: Judge) -> list[Observation]:
        async with judge.interpreter() as python:
            return [await python.run(block) for block in blocks]

    return with_judge(run, limits)
