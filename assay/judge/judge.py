"""The judge for the trainer: asynchronous, many jobs at once. Closing it ends all its processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from assay.bounded import BoundedDict
from assay.errors import RolloutLostError, SandboxError
from assay.judge.base import Job, LocalJudge, no_code
from assay.judge.builds import folder_of
from assay.judge.identity import names_files, surroundings_of
from assay.judge.interpreter import Interpreter
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.kind import AsksReference
from assay.judge.kinds.workbench import Run
from assay.judge.prepared_task import (
    PreparedTask,
    ProxyFeatures,
    UnpreparableTask,
    weight_of,
)
from assay.judge.references import References
from assay.judge.runner import Runner, TaskWorkbench
from assay.judge.task_fields import require_fields
from assay.judge.verdict import REFERENCE_FAILS, REFUTABLE
from assay.judge.verdict_archive import Archive, require_ours
from assay.judge.worker_messages import ALIASES, ARGUMENTS, ARRAYS, OBJECTS, SUBCLASSES
from assay.languages import Language, language_named, paths_read
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.cores import cores
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import Folder
from assay.sandbox.supervisor_client import Sandbox
from assay.sync import run_sync
from assay.types import Cause, Exchange, Execution, Task, Verdict

ZYGOTE = "assay.judge.warmup"
"""What zygotes run: it knows candidate processes, workers and interpreters."""
PREPARED_TASKS, PREPARED_MB = 512, 256
"""Prepared tasks that are kept: they may be large, and a service never sees most of them again."""
MAY_NEED_FEATURES = (Verdict.WRONG, Verdict.ERROR, Verdict.TIMEOUT, Verdict.UNJUDGED)
"""Verdicts that a task's proxy features or time factor can change."""
NO_CHANGES = {OBJECTS, SUBCLASSES, ARRAYS, ALIASES}
"""Of what `WorkerReport.changes` says, what the program has not changed."""
ANY_PROGRAM = Task(id="", prompt="", checks=(Exchange("", ""),), entry_point="")


class Judge(LocalJudge):
    """Judges programs in sandboxed processes. It is an async context manager, and its processes end
    with the thread that entered it.

    limits: what one run may use. slots: how many programs run at once; None is the available cores.
    stop_early: stop at the first failed test. allow_weak: run even where the sandbox is not sound.
    archive: a file that keeps all verdicts. allow_forgeable: take a pass that a program could have
    forged for any other.

    Raises DataError for an archive that is another program's file, SandboxError where the sandbox
    is not sound, where the supervisor dies or hangs, and where the machine fails too often. A
    program that was judged before is not run again.
    """

    def __init__(
        self, limits: Limits | None = None, slots: int | None = None, stop_early: bool = True,
        allow_weak: bool = False, archive: Path | None = None, allow_forgeable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(allow_forgeable)
        self.limits = limits or Limits()
        self.slots = slots or cores()
        self.stop_early = stop_early
        self.allow_weak = allow_weak
        self._archive = archive
        self._sandbox = Sandbox(ZYGOTE)
        self._runner = Runner(self._sandbox, self.limits, stop_early, self.slots)
        self._references = References(self._execute, self._answers, self.limits.cpu_seconds)
        self._prepared: BoundedDict[int, PreparedTask | UnpreparableTask] = BoundedDict(
            PREPARED_TASKS, PREPARED_MB, weight_of
        )
        """By the id of a task, which the value holds, so that no other has it."""

    async def __aenter__(self) -> Judge:
        if self._archive is not None:
            with contextlib.suppress(OSError):  # then a warning says so, and there is no archive
                require_ours(self._archive)
        isolation = await asyncio.to_thread(probe_isolation)
        if not (isolation.sound or self.allow_weak):
            raise SandboxError(
                f"isolation is tier {isolation.tier} here: {isolation.advice}; see `assay doctor`"
            )
        await self._sandbox.start(self.limits, self.slots, isolation.walls, paths_read())
        if self._archive is not None:
            place = f"{isolation.tier} {isolation.walls}"
            self._cache.archive = Archive(self._archive, place)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._references.close()
        self._runner.close()
        await self._sandbox.close()
        if self._cache.archive is not None:
            self._cache.archive.close()

    @property
    def broken(self) -> str:
        """Says why nothing can be judged any more. It is empty while all is well."""
        return self._sandbox.broken

    @property
    def pid(self) -> int:
        """Returns the process from which all processes that run programs descend, once the judge is
        entered.
        """
        return self._sandbox.pid

    async def _run(self, job: Job) -> Execution:
        prepared = await self._prepared_now(job.task)
        if job.program is None:
            return no_code(prepared.total)
        execution = await self._cache.get_or_run(
            prepared.key(job.program),
            partial(self._judge, job.task, job.program),
            partial(self._lasts, prepared),
        )
        is_pass = execution.verdict is Verdict.PASS and execution.passed  # without tests left out
        total = execution.passed if is_pass else max(prepared.total, execution.total)
        return execution if total == execution.total else replace(execution, total=total)

    async def _lasts(self, prepared: PreparedTask, execution: Execution) -> bool:
        """Whether the execution is that of its key for good: of a reference that had the time it
        needs, and of files that have not changed while the program ran.
        """
        is_final = self._references.settles(prepared.digest, execution)
        return is_final and await self._surroundings(prepared.task) == prepared.surroundings

    async def execute(
        self, program: str, stdin: str = "", seconds: float | None = None,
        language: str | Language = "python", folder: Folder | None = None,
    ) -> Run:  # fmt: skip
        """Does as LocalJudge does."""
        usual, most = self.limits.cpu_seconds, LONGEST * self.limits.wall_seconds
        factor = min(max((seconds or usual) / usual, 1.0), LONGEST)
        folder = folder or folder_of(program)
        resolved = language_named(language) if isinstance(language, str) else language
        wall_seconds = min(seconds or 0.0, most)
        run = await self._runner.run(
            resolved, program, stdin, folder, factor, wall_seconds=wall_seconds, whole=True
        )
        return run._replace(execution=self._counted(ANY_PROGRAM, run.execution))

    def interpreter(self) -> Interpreter:
        """Does as LocalJudge does."""
        return Interpreter(self._sandbox, self._breaker)

    @asynccontextmanager
    async def box(self, spec: BoxSpec) -> AsyncIterator[Box]:
        """Does as LocalJudge does."""
        try:
            async with self._sandbox.box(spec) as box:
                yield box
            self._breaker.note(False)
        except SandboxError as error:
            if self.broken:
                raise
            self._breaker.note(True, str(error))
            raise RolloutLostError(str(error)) from error

    async def _judge(self, task: Task, program: str) -> Execution:
        """Judge a program; what its first run leaves open is settled by the task's reference."""
        key = self._prepare(task).digest
        try:
            task = await self._references.with_expected_values(key, task)
            prepared = self._prepare(task)
            again = partial(self._execute, task, program)
            features = partial(self._references.features, key, task)
            first = self._references.known_features(key) or prepared.first_features
            execution = await again(first)
            execution = await settled(task, first, execution, again, features)
            why = self._references.why_it_fails_too(key, execution)
            if why is not None and program != task.reference:
                execution = replace(
                    execution, verdict=Verdict.UNJUDGED, cause=Cause.REFERENCE,
                    detail=f"{REFERENCE_FAILS}{why}",
                )  # fmt: skip
            return execution
        except SandboxError as error:
            if self._sandbox.broken:
                raise
            return Execution(Verdict.INFRA, detail=str(error))

    async def _execute(self, task: Task, program: str, features: ProxyFeatures) -> Execution:
        workbench, kind = self._workbench(task, features), kind_of(task.checks[0])
        try:
            return await kind.judge(workbench, task.checks, task, program)
        except SandboxError:
            if self.broken:
                raise
            return await kind.judge(workbench, task.checks, task, program)  # in other boxes

    async def _answers(self, task: Task) -> tuple[Execution, list[str]]:
        workbench = self._workbench(task, ProxyFeatures(time_factor=LONGEST))
        kind = cast("AsksReference[Any]", kind_of(task.checks[0]))
        return await kind.answers(workbench, task.checks, task)

    def _workbench(self, task: Task, features: ProxyFeatures) -> TaskWorkbench:
        return TaskWorkbench(self._runner, task, self._prepare(task), features)

    async def _prepared_now(self, task: Task) -> PreparedTask:
        """The prepared task, made anew where files that it names have changed since."""
        if id(task) not in self._prepared:
            require_fields(task)
        return self._prepare(task, await self._surroundings(task))

    async def _surroundings(self, task: Task) -> tuple[str, ...]:
        """The task's surroundings as they are now. Trees are looked at in a thread."""
        if names_files(task):
            return await asyncio.to_thread(surroundings_of, task)
        return surroundings_of(task)

    def adopt(self, prepared: PreparedTask | UnpreparableTask) -> None:
        """Judges by what another process has made of a task, with this judge's limits."""
        self._prepared[id(prepared.task)] = prepared

    def _prepare(self, task: Task, surroundings: tuple[str, ...] | None = None) -> PreparedTask:
        prepared = self._prepared.get(id(task))
        if isinstance(prepared, UnpreparableTask):
            raise prepared.error.with_traceback(None)
        if prepared is None or surroundings not in (None, prepared.surroundings):
            prepared = PreparedTask(task, self.limits, self.stop_early, surroundings)
            self._prepared[id(task)] = prepared
        return prepared


def may_change(execution: Execution) -> bool:
    """Whether other features may change the verdict. A stand-in for an object can do nothing, and
    that may be just what a test expects.
    """
    on_stand_ins = execution.verdict is Verdict.PASS and OBJECTS in execution.changes
    return on_stand_ins or execution.verdict in MAY_NEED_FEATURES


def refuted(execution: Execution, exact: Execution) -> Execution:
    """A pass after an exact run, which may show that it is none. One that comes to no end shows
    nothing: the program may have chosen that, or the test loops over what the program lets grow.
    """
    if exact.verdict in (Verdict.WRONG, Verdict.ERROR, Verdict.INFRA):
        return exact
    is_open = exact.verdict is not Verdict.PASS
    return replace(execution, forgeable=execution.forgeable or is_open)


async def settled(
    task: Task, first: ProxyFeatures, execution: Execution,
    again: Callable[[ProxyFeatures], Awaitable[Execution]],
    needed: Callable[[], Awaitable[ProxyFeatures | None]],
) -> Execution:  # fmt: skip
    """The execution that counts, after a first one. A program that fails and has changed what a
    test passed, or whose task needs more, is judged `again`. What the reference changes of the
    test's, a program may change too; any other change makes a pass forgeable. `needed` runs the
    reference.
    """
    failed, passed = may_change(execution), execution.verdict is Verdict.PASS
    features: ProxyFeatures | None = None
    if task.reference is not None and (
        failed or (passed and {*execution.changes} - {ARGUMENTS, SUBCLASSES, ALIASES})
    ):
        features = await needed()
        if failed and features and replace(features, changes=first.changes) != first:
            execution, first = await again(features), features
    while (task.reference is None or (passed and not features)) and may_change(execution):
        wider = first.widened(execution.changes)
        if wider == first:
            break
        execution, first = await again(wider), wider
    if failed and features and execution.cause in REFUTABLE:
        # the reference never makes the check do this, so the program is wrong
        execution = replace(execution, verdict=Verdict.WRONG, cause=Cause.PROGRAM)
    if passed and features and OBJECTS in {*execution.changes} - features.changes:
        # the reference answers data, and an object of the program's may do what a test forbids
        wider = replace(first, objects=True)
        execution = refuted(execution, run := await again(wider))
        first = wider if execution is run else first
    is_hidden = (ARGUMENTS in execution.changes and not first.mutates) or (
        ALIASES in execution.changes and not first.aliases
    )
    if execution.verdict is Verdict.PASS and is_hidden:
        # the test may mind what the program changes, in its arguments or through another name
        execution = refuted(execution, await again(replace(first, mutates=True, aliases=True)))
    allowed = (features or first).changes
    changes = {*execution.changes} - allowed - NO_CHANGES
    if not first.mutates:
        changes.discard(ARGUMENTS)  # none of these has reached the test
    # the reference passes for a stand-in, and does not with its objects
    on_stand_ins = OBJECTS in allowed and OBJECTS in execution.changes and not first.objects
    forgeable = execution.forgeable or bool(changes) or on_stand_ins
    marks = forgeable, (), first.objects
    if (execution.forgeable, execution.changes, execution.with_objects) == marks:
        return execution
    return replace(execution, forgeable=forgeable, changes=(), with_objects=first.objects)


def judge_all(
    jobs: Sequence[Job], limits: Limits | None = None, slots: int | None = None,
    stop_early: bool = True, progress: Callable[[int, Execution], None] | None = None,
    allow_weak: bool = False, skip_refused: bool = False,
) -> list[Execution]:  # fmt: skip
    """Judges many programs and returns when all have ended. It calls `progress(index, execution)`
    as each ends. If a task cannot be judged, its verdict is UNJUDGED, and the others are judged.
    With `skip_refused` the same holds for a task whose tool is not installed.

    It may be called where an event loop runs, as in a notebook. The judge then runs in a thread of
    its own, and so does `progress`. Raises like Judge.
    """

    async def judge() -> list[Execution]:
        async with Judge(limits, slots, stop_early, allow_weak) as judge:
            return await judge.all(jobs, progress, skip_refused)

    return run_sync(judge())
