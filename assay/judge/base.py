"""What every judge offers to those who ask for verdicts, wherever its programs run."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from reprlib import repr as shortened

from assay.bounded import BoundedDict
from assay.errors import DataError, NotInstalledError
from assay.judge.codec_types import CodecError
from assay.judge.interpreter import Interpreter
from assay.judge.kinds.workbench import Run
from assay.judge.verdict import CircuitBreaker, ReferenceFailsError
from assay.judge.verdict_cache import CACHED, VerdictCache
from assay.languages import Language
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.program import Folder
from assay.sync import as_they_end
from assay.types import Cause, Execution, Task, Verdict

log = logging.getLogger(__name__)
CACHED_MB, REPORTED_MB = 128, 16
"""MiB of executions, and of ids of tasks that were reported."""
JOBS_PER_SLOT = 4
"""Jobs per slot that `stream` has under way."""


@dataclass(frozen=True, slots=True)
class Job:
    """One program to judge."""

    task: Task
    program: str | None
    """A whole program. None, where the completion held no code, gets NO_CODE without a run."""


class AnyJudge(ABC):
    """Judges programs, in this process (`Judge`) or on services (assay/judges/pool.py). It is an
    async context manager.
    """

    def __init__(self, allow_forgeable: bool) -> None:
        self.allow_forgeable = allow_forgeable
        self._cache = VerdictCache(CACHED, CACHED_MB)
        self._reported: BoundedDict[str, None] = BoundedDict(CACHED, REPORTED_MB)
        self._breaker = CircuitBreaker()

    slots: int
    """How many programs run at once."""

    @abstractmethod
    async def __aenter__(self) -> AnyJudge:
        """Start to judge."""

    @abstractmethod
    async def __aexit__(self, *_: object) -> None:
        """End everything that was started."""

    async def run(self, job: Job) -> Execution:
        """Judges one program. If the task cannot be judged, the verdict is UNJUDGED with a cause
        and a reason, which is reported once. Raises DataError for an argument that is not a Job,
        NotInstalledError if the task needs a tool that is not there, SandboxError if the judge is
        broken.
        """
        require_job(job)
        try:
            execution = await self._run(job)
        except NotInstalledError:
            raise
        except REFUSALS as error:
            execution = refused(job.task, error)
        return self._counted(job.task, execution)

    @abstractmethod
    async def _run(self, job: Job) -> Execution:
        """Judge one program. Raises as `run`, and DataError for a task that cannot be judged."""

    @abstractmethod
    def with_tools(self) -> AbstractAsyncContextManager[LocalJudge]:
        """Returns a judge that runs tools on programs, for as long as the block is open."""

    async def run_or_refuse(self, job: Job) -> Execution:
        """Judges as `run` does. A task whose tool is not installed is UNJUDGED, too."""
        try:
            return await self.run(job)
        except NotInstalledError as error:
            return self._counted(job.task, refused(job.task, error))

    def stream(
        self, jobs: Iterable[Job], skip_refused: bool = False
    ) -> AsyncIterator[tuple[int, Execution]]:
        """Judges many programs, and yields (index, execution) in the order in which they end.

        With `skip_refused`, a task whose tool is not installed is unjudged, and the others count.
        """
        run = self.run_or_refuse if skip_refused else self.run
        return as_they_end(map(run, jobs), JOBS_PER_SLOT * self.slots)

    async def all(
        self,
        jobs: Sequence[Job],
        progress: Callable[[int, Execution], None] | None = None,
        skip_refused: bool = False,
    ) -> list[Execution]:
        """Judges as `stream` does, but waits for all. It calls `progress(index, execution)` as each
        ends.
        """
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
        breaker of the machine's failures, and reports a task that cannot be judged once.
        """
        if execution.verdict is not Verdict.UNJUDGED:
            self._breaker.note(execution.cause is Cause.MACHINE, execution.detail)
        elif task.id not in self._reported:
            self._reported[task.id] = None
            log.warning(
                "task %s cannot be judged (%s): %s", task.id, execution.cause, execution.detail
            )
        if execution.forgeable and self.allow_forgeable:
            return replace(execution, forgeable=False)
        return execution


class LocalJudge(AnyJudge):
    """A judge whose programs run on this machine. It also runs tools, interpreters and boxes.
    Whatever needs these asks for a LocalJudge.
    """

    @abstractmethod
    async def execute(
        self, program: str, stdin: str = "", seconds: float | None = None,
        language: str | Language = "python", folder: Folder | None = None,
    ) -> Run:  # fmt: skip
        """Runs a program without a task. `language` may also describe a tool that reads the
        program. The program may take `seconds` of wall time, and as many of CPU time. The limit of
        CPU time is never below the usual one, or above ten times that. Raises DataError,
        SandboxError.
        """

    @abstractmethod
    def interpreter(self) -> Interpreter:
        """Returns a sandboxed Python that keeps its state between blocks of code. It is an async
        context manager.
        """

    @abstractmethod
    def box(self, spec: BoxSpec) -> AbstractAsyncContextManager[Box]:
        """Returns a box, in which commands run one after another. Raises RolloutLostError where the
        machine fails it, SandboxError when the judge is broken.
        """

    def with_tools(self) -> AbstractAsyncContextManager[LocalJudge]:
        """Returns the judge itself."""
        return nullcontext(self)


def require_job(job: Job) -> None:
    """Raises DataError for what is no job."""
    if not (
        isinstance(job, Job) and isinstance(job.task, Task) and isinstance(job.program, str | None)
    ):
        raise DataError(f"{shortened(job)} is no job; write Job(task_from_dict(row), program)")


REFUSALS = (DataError, CodecError)
"""What is raised for a task that cannot be judged, whatever the program is."""


def refused(task: Task, error: Exception) -> Execution:
    """Returns the execution of any program of such a task."""
    cause = Cause.REFERENCE if isinstance(error, ReferenceFailsError) else Cause.TASK
    total = len(task.checks) if isinstance(task.checks, tuple) else 0
    return Execution(Verdict.UNJUDGED, total=total, detail=str(error), cause=cause)


def no_code(total: int) -> Execution:
    """Returns the execution of a completion that holds no program."""
    return Execution(Verdict.NO_CODE, total=total, detail="the completion holds no program")
