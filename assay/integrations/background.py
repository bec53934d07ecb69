"""A judge for callers that do not await: its event loop runs in a thread until the process ends."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from assay.errors import DataError, SandboxError
from assay.judge import Job, Judge
from assay.rewards.tests import score_execution
from assay.sandbox.limits import Limits
from assay.types import Execution, Verdict

T = TypeVar("T")
_shared: dict[tuple[int, Limits | None, int | None, bool], BackgroundJudge] = {}
_starting = threading.Lock()


class BackgroundJudge:
    """`Judge` with plain calls from any thread; its processes are never forked from the caller.

    It runs every check, so that the share of checks can be scored. Its construction and its calls
    raise like `Judge`.
    """

    def __init__(
        self, limits: Limits | None = None, slots: int | None = None, allow_weak: bool = False
    ) -> None:
        self._pid = os.getpid()
        self._judge = Judge(limits, slots, stop_early=False, allow_weak=allow_weak)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="assay-judge", daemon=True
        )
        self._thread.start()
        try:
            self._wait(self._judge.__aenter__())
        except BaseException:
            self._end()
            raise
        atexit.register(self.close)

    def run(self, jobs: Sequence[Job]) -> list[Execution]:
        """Judge programs and wait for all; returns executions in the order of the jobs."""
        return self._wait(self._judge.all(jobs))

    async def run_async(self, jobs: Sequence[Job]) -> list[Execution]:
        """`run` for callers that await, in any event loop."""
        work = self._judge.all(jobs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End all processes of the judge; may be called again. A forked child leaves them alone."""
        if self._pid == os.getpid() and not self._loop.is_closed():
            atexit.unregister(self.close)
            self._wait(self._judge.__aexit__(None, None, None))
            self._end()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def shared(
    limits: Limits | None = None, slots: int | None = None, allow_weak: bool = False
) -> BackgroundJudge:
    """The process's judge with these settings, started on first use; a forked child has its own."""
    key = (os.getpid(), limits, slots, allow_weak)
    with _starting:
        if key not in _shared:
            _shared[key] = BackgroundJudge(limits, slots, allow_weak)
        return _shared[key]


def score(where: str, job: Job, fraction: bool = False, slots: int | None = None) -> float:
    """Judge one program and score it as `score_execution` does. Raises SandboxError, beginning with
    `where`, if the machine failed, and DataError if the task cannot be judged: a caller that leaves
    nothing out would learn from a made-up 0.
    """
    (execution,) = shared(slots=slots).run([job])
    value = score_execution(execution, fraction=fraction)
    if execution.verdict is Verdict.UNJUDGED:
        raise DataError(
            f"{where}: the task cannot be judged ({execution.cause}): {execution.detail}"
        )
    if value is None:
        raise SandboxError(f"{where}: the machine could not judge a program: {execution.detail}")
    return value
