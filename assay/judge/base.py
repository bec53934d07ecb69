"""What every judge offers to those who ask for verdicts, wherever its programs run."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from reprlib import repr as shortened
from typing import NamedTuple

from assay.checks import RepositoryTests
from assay.errors import DataError, SettingsError
from assay.judge.interpreter import Interpreter
from assay.judge.protocol import CANNOT, FAILS_TOO
from assay.judge.verdict import REFUSED, CircuitBreaker, is_tasks_fault
from assay.judge.verdict_cache import CACHED, BoundedDict, VerdictCache
from assay.languages import Language
from assay.sandbox.box import Box
from assay.sandbox.program import Folder
from assay.sync import as_they_end
from assay.types import Execution, Task, Verdict

log = logging.getLogger(__name__)
ONLY_JUDGES = "the services of judge.servers judge programs, and run no tools or interpreters"
JOBS_PER_SLOT = 4
"""Jobs per slot that `stream` has under way."""


@dataclass(frozen=True, slots=True)
class Job:
    """One program to judge."""

    task: Task
    program: str | None
    """A whole program. None, where the completion held no code, gets NO_CODE without a run."""


class Run(NamedTuple):
    """What came of a program without a task."""

    execution: Execution
    """PASS where it exited with status 0. `output` and `stderr` hold what it wrote."""
    compiled: Execution | None = None
    """The same of its compiler; None where nothing is compiled."""
    files: Mapping[str, bytes] = {}
    """The files that were to be fetched and that it made."""


class AnyJudge(ABC):
    """Judges programs: in this process (`Judge`), or on services (assay/judges/pool.py). An async
    context manager.
    """

    def __init__(self, allow_forgeable: bool) -> None:
        self.allow_forgeable = allow_forgeable
        self._cache = VerdictCache(CACHED)
        self._reported: BoundedDict[str, None] = BoundedDict(CACHED)
        self._breaker = CircuitBreaker()

    slots: int
    """Programs that run at once."""

    @abstractmethod
    async def __aenter__(self) -> AnyJudge:
        """Start to judge."""

    @abstractmethod
    async def __aexit__(self, *_: object) -> None:
        """End everything that was started."""

    @abstractmethod
    async def run(self, job: Job) -> Execution:
        """Judge one program. Raises DataError for a task that cannot be judged, SandboxError when
        the judge is broken.
        """

    async def execute(
        self, program: str, stdin: str = "", seconds: float | None = None,
        language: str | Language = "python", folder: Folder | None = None,
    ) -> Run:  # fmt: skip
        """Run a program without a task, or a tool that is described like a language on it, for
        `seconds` of wall time, and as many of CPU time, but between the usual limit and ten times
        that. Raises DataError, SandboxError, and as all below SettingsError where it only judges.
        """
        raise SettingsError(ONLY_JUDGES)

    def interpreter(self) -> Interpreter:
        """A sandboxed Python that keeps its state between blocks of code; an async context
        manager.
        """
        raise SettingsError(ONLY_JUDGES)

    def box(self, check: RepositoryTests) -> AbstractAsyncContextManager[Box]:
        """A box with the repository of these tests, in which commands run one after another. Where
        the machine fails it, RolloutLostError is raised, SandboxError when the judge is broken.
        """
        raise SettingsError(ONLY_JUDGES)

    def with_tools(self) -> AbstractAsyncContextManager[AnyJudge]:
        """A judge that can `execute`, for as long as the block is open: this one itself."""
        return nullcontext(self)

    async def run_or_refuse(self, job: Job) -> Execution:
        """As `run`, but INFRA with the reason where the task is refused."""
        try:
            return await self.run(job)
        except DataError as error:
            total = len(job.task.checks)
            return Execution(Verdict.INFRA, total=total, detail=f"{REFUSED}{error}")

    def stream(
        self, jobs: Iterable[Job], skip_refused: bool = False
    ) -> AsyncIterator[tuple[int, Execution]]:
        """Judge many programs; yields (index, execution) in the order in which they end.

        With `skip_refused`, a task that is refused gets INFRA with the reason: the others count.
        """
        run = self.run_or_refuse if skip_refused else self.run
        return as_they_end(map(run, jobs), JOBS_PER_SLOT * self.slots)

    async def all(
        self,
        jobs: Sequence[Job],
        progress: Callable[[int, Execution], None] | None = None,
        skip_refused: bool = False,
    ) -> list[Execution]:
        """As `stream`, but wait for all; calls `progress(index, execution)` as each ends."""
        if isinstance(jobs, Job):
            raise DataError("the jobs are one Job; write judge_all([job])")
        executions: dict[int, Execution] = {}
        async for index, execution in self.stream(jobs, skip_refused):
            executions[index] = execution
            if progress is not None:
                progress(index, execution)
        return [executions[index] for index in range(len(jobs))]

    def _counted(self, task: Task, execution: Execution) -> Execution:
        """The execution, which is not forgeable where the settings allow that. Tells the circuit
        breaker of the machine's failures, and reports a task's own fault once.
        """
        if not is_tasks_fault(execution):
            self._breaker.note(execution.detail if execution.verdict is Verdict.INFRA else "")
        elif task.id not in self._reported and not execution.detail.startswith(FAILS_TOO):
            self._reported[task.id] = None
            detail = execution.detail.removeprefix(CANNOT)
            log.warning("task %s cannot be judged: %s", task.id, detail)
        return replace(execution, forgeable=execution.forgeable and not self.allow_forgeable)


def require_job(job: Job) -> None:
    """Raises DataError for what is no job, and for a task without checks."""
    if not (
        isinstance(job, Job) and isinstance(job.task, Task) and isinstance(job.program, str | None)
    ):
        raise DataError(f"{shortened(job)} is no job; write Job(task_from_dict(row), program)")
    if not job.task.checks:
        raise DataError(f"task {job.task.id!r} has no checks: no program can be judged")


def no_code(total: int) -> Execution:
    """The execution of a completion that holds no program."""
    return Execution(Verdict.NO_CODE, total=total, detail="the completion holds no program")
