"""The judge as the trainer holds it: asynchronous, many jobs at once, every process behind it ended
on the way out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from assay.errors import DataError, SandboxError
from assay.judge.archive import Archive
from assay.judge.circuit_breaker import CircuitBreaker
from assay.judge.exchange_runner import ExchangeRunner
from assay.judge.failure_counts import FailureCounts
from assay.judge.interpreter import Interpreter
from assay.judge.prepared_task import PreparedTask
from assay.judge.proxy_features import PLAIN, ProxyFeatures
from assay.judge.references import References
from assay.judge.supervisor_client import SupervisorClient
from assay.judge.verdict import THE_TASKS_DOING, WALL
from assay.judge.verdict_cache import KEPT, BoundedDict, VerdictCache
from assay.sandbox.cores import cores
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import LONGEST, Limits
from assay.types import Exchange, Execution, Task, Verdict

log = logging.getLogger(__name__)
JOBS_PER_SLOT = 4
"""Jobs per slot that `stream` has under way."""
PREPARED_TASKS = 512
"""Tasks kept ready; they may be large, and a service never sees most of them again."""
UNLIKE_THE_REFERENCE = (Verdict.WRONG, Verdict.ERROR, Verdict.TIMEOUT)
"""Verdicts that a task's profile can change."""
ANY_PROGRAM = Task(id="", prompt="", checks=(Exchange("", ""),), entry_point="")


@dataclass(frozen=True, slots=True)
class Job:
    """One program to judge."""

    task: Task
    program: str | None
    """A whole program; None, where the completion held no code, is NO_CODE without running
    anything."""


class Judge:
    """Judges programs in walled processes; an async context manager. Its processes die with the
    thread that entered.

    Raises SandboxError where the walls are not sound (unless `allow_weak`), where the supervisor
    dies or hangs, and where the machine fails too often (see Breaker). `slots` programs run at
    once: the available cores unless given. A program that was judged before is not run again: the
    last verdicts are remembered, and in the file `archive`, where given, all.
    """

    def __init__(
        self, limits: Limits | None = None, slots: int | None = None, stop_early: bool = True,
        allow_weak: bool = False,
        archive: Path | None = None,
    ) -> None:  # fmt: skip
        self.limits = limits or Limits()
        self.slots = slots or cores()
        self.stop_early = stop_early
        self.allow_weak = allow_weak
        self._archive = archive
        self._cache = VerdictCache()
        self._supervisor = SupervisorClient()
        self._failure_counts = FailureCounts()
        self._exchanges = ExchangeRunner(self._supervisor, self._failure_counts, stop_early)
        self._references = References(self._execute, self._answers, self.limits.cpu_seconds)
        self._reported: BoundedDict[str, None] = BoundedDict(KEPT)
        self._prepared_tasks: BoundedDict[int, tuple[Task, PreparedTask]] = BoundedDict(
            PREPARED_TASKS
        )
        self._breaker = CircuitBreaker()

    async def __aenter__(self) -> Judge:
        isolation = await asyncio.to_thread(probe_isolation)
        if not (isolation.sound or self.allow_weak):
            raise SandboxError(
                f"isolation is tier {isolation.tier} here: {isolation.advice}; see `assay doctor`"
            )
        await self._supervisor.start(self.limits, self.slots, isolation.walls)
        if self._archive is not None:
            self._cache.archive = Archive(self._archive)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._references.close()
        await self._supervisor.close()
        if self._cache.archive is not None:
            self._cache.archive.close()

    @property
    def broken(self) -> str:
        """Why nothing can be judged any more; empty while all is well."""
        return self._supervisor.broken

    async def run(self, job: Job) -> Execution:
        """Judge one program. Raises DataError for a task without checks or in another language
        than Python, SandboxError when the judge is broken.
        """
        if not job.task.checks or job.task.language != "python":
            why = "no checks" if not job.task.checks else f"the language {job.task.language!r}"
            raise DataError(f"task {job.task.id!r} has {why}: no program can be judged")
        total = len(job.task.checks)
        if job.program is None:
            return Execution(Verdict.NO_CODE, total=total, detail="the completion holds no program")
        key = self._prepared(job.task).key(job.program)
        execution = await self._cache.get_or_run(key, partial(self._judged, job.task, job.program))
        self._count(job.task, execution)
        return replace(execution, total=total)

    async def execute(
        self, program: str, stdin: str = "", seconds: float | None = None
    ) -> Execution:
        """Run a program that no task asks for: PASS where it exits with 0; `output` and `stderr`
        hold what it wrote.

        It has `seconds` of CPU time, from the usual limit to ten times that. Raises SandboxError.
        """
        usual = self.limits.cpu_seconds
        profile = ProxyFeatures(time_factor=min(max((seconds or usual) / usual, 1.0), LONGEST))
        bundle = self._prepared(ANY_PROGRAM)
        execution = await self._supervisor.execute(
            bundle.exchange(program, profile, stdin, expected=None)
        )
        self._count(ANY_PROGRAM, execution)
        return execution

    def interpreter(self) -> Interpreter:
        """A walled Python that keeps its state from one block of code to the next; an async context
        manager.
        """
        return Interpreter(self._supervisor, self._breaker)

    async def stream(self, jobs: Iterable[Job]) -> AsyncIterator[tuple[int, Execution]]:
        """Judge many; yields (index, execution) in the order in which they end."""
        numbered = enumerate(jobs)
        under_way: dict[asyncio.Task[Execution], int] = {}
        try:
            while True:
                while (
                    len(under_way) < JOBS_PER_SLOT * self.slots
                    and (entry := next(numbered, None)) is not None
                ):
                    under_way[asyncio.create_task(self.run(entry[1]))] = entry[0]
                if not under_way:
                    return
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield under_way.pop(task), task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def all(
        self, jobs: Sequence[Job], progress: Callable[[int, Execution], None] | None = None
    ) -> list[Execution]:
        """Judge many, and wait for all; `progress(index, execution)` is called as each ends."""
        found: dict[int, Execution] = {}
        async for index, execution in self.stream(jobs):
            found[index] = execution
            if progress is not None:
                progress(index, execution)
        return [found[index] for index in range(len(jobs))]

    async def _judged(self, task: Task, program: str) -> Execution:
        """Judge one program plainly, and where that is unlike the task's reference, with what that
        needs.
        """
        key = self._prepared(task).digest
        try:
            task = await self._references.completed(key, task)
            execution = await self._execute(task, program, PLAIN)
            unlike = execution.verdict in UNLIKE_THE_REFERENCE or execution.detail.startswith(WALL)
            if unlike and task.reference is not None:
                profile = await self._references.profile(key, task)
                if profile is not None and profile != PLAIN:
                    execution = await self._execute(task, program, profile)
                if profile is not None and execution.detail.startswith(WALL):
                    execution = replace(
                        execution, verdict=Verdict.WRONG
                    )  # which the reference does not come to
        except SandboxError as error:
            if self._supervisor.broken:
                raise
            return Execution(Verdict.INFRA, detail=str(error))
        return execution

    async def _execute(self, task: Task, program: str, profile: ProxyFeatures) -> Execution:
        bundle = self._prepared(task)
        if bundle.exchanges:
            return await self._exchanges.run(bundle, program, profile)
        if not (self.stop_early and bundle.movable):
            return await self._supervisor.execute(bundle.order(program, profile))
        order = self._failure_counts.order(bundle.digest, len(task.checks))
        execution = await self._supervisor.execute(bundle.order(program, profile, order))
        if execution.passed < len(order) and execution.verdict is not Verdict.INFRA:
            self._failure_counts.note(bundle.digest, order[execution.passed])
        return execution

    async def _answers(self, task: Task) -> tuple[Execution, list[str]]:
        return await self._supervisor.answers(
            self._prepared(task).order(task.reference or "", ProxyFeatures(time_factor=LONGEST))
        )

    def _prepared(self, task: Task) -> PreparedTask:
        if id(task) not in self._prepared_tasks:
            self._prepared_tasks[id(task)] = task, PreparedTask(task, self.limits, self.stop_early)
        return self._prepared_tasks[id(task)][1]

    def _count(self, task: Task, execution: Execution) -> None:
        if not execution.detail.startswith(THE_TASKS_DOING):
            self._breaker.note(execution.detail if execution.verdict is Verdict.INFRA else "")
        elif task.id not in self._reported:
            self._reported[task.id] = None
            log.warning("task %s cannot be judged: %s", task.id, execution.detail)


def judge_all(
    jobs: Sequence[Job], limits: Limits | None = None, slots: int | None = None,
    stop_early: bool = True,
    progress: Callable[[int, Execution], None] | None = None, allow_weak: bool = False,
) -> list[Execution]:  # fmt: skip
    """Judge many programs and wait for all; `progress(index, execution)` is called as each ends.
    Raises like Judge.
    """

    async def all_of_them() -> list[Execution]:
        async with Judge(limits, slots, stop_early, allow_weak) as judge:
            return await judge.all(jobs, progress)

    return asyncio.run(all_of_them())
