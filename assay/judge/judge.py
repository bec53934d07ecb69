"""The judge for the trainer: asynchronous, many jobs at once. Closing it ends all its processes."""

from __future__ import annotations

import asyncio
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

from assay.checks import RepositoryTests
from assay.errors import RolloutLostError, SandboxError
from assay.judge.base import AnyJudge, Job, Run, no_code, require_job
from assay.judge.builds import folder_of
from assay.judge.exchange_runner import ExchangeRunner
from assay.judge.interpreter import Interpreter
from assay.judge.kinds.repository import spec_of
from assay.judge.prepared_task import PreparedTask, ProxyFeatures
from assay.judge.protocol import CANNOT, FAILS_TOO
from assay.judge.references import References
from assay.judge.verdict import (
    cannot_be_judged,
    decide,
    parse_report,
)
from assay.judge.verdict_cache import Archive, BoundedDict
from assay.languages import Language, language_named, paths_read
from assay.sandbox.box import Box
from assay.sandbox.client import Sandbox
from assay.sandbox.cores import cores
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import Folder
from assay.sync import run_sync
from assay.types import Exchange, Execution, Task, Verdict

ZYGOTE = "assay.judge.warmup"
"""What zygotes run: it knows candidate processes, workers and interpreters."""
PREPARED_TASKS = 512
"""Prepared tasks that are kept: they may be large, and a service never sees most of them again."""
MAY_NEED_FEATURES = (Verdict.WRONG, Verdict.ERROR, Verdict.TIMEOUT)
"""Verdicts that a task's proxy features or time factor can change."""
ARGUMENTS = "arguments"
"""What `Execution.changes` says where the program has changed an argument."""
ANY_PROGRAM = Task(id="", prompt="", checks=(Exchange("", ""),), entry_point="")


class Judge(AnyJudge):
    """Judges programs in sandboxed processes. An async context manager; its processes end with the
    thread that entered it.

    limits: of one run. slots: programs that run at once; the available cores if None. stop_early:
    stop at the first failed test. allow_weak: run even where the sandbox is not sound. archive: a
    file that keeps all verdicts. allow_forgeable: take a pass that a program could have forged for
    any other.

    Raises SandboxError where the sandbox is not sound, where the supervisor dies or hangs, and
    where the machine fails too often. A program that was judged before is not
    run again.
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
        self._exchanges = ExchangeRunner(self._sandbox, self.limits, stop_early, self.slots)
        self._references = References(self._execute, self._answers, self.limits.cpu_seconds)
        self._prepared: BoundedDict[int, PreparedTask] = BoundedDict(PREPARED_TASKS)

    async def __aenter__(self) -> Judge:
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
        self._exchanges.close()
        await self._sandbox.close()
        if self._cache.archive is not None:
            self._cache.archive.close()

    @property
    def broken(self) -> str:
        """Why nothing can be judged any more; empty while all is well."""
        return self._sandbox.broken

    async def run(self, job: Job) -> Execution:
        """As AnyJudge."""
        require_job(job)
        prepared = self._prepare(job.task)
        if job.program is None:
            return no_code(prepared.total)
        execution = await self._cache.get_or_run(
            prepared.key(job.program),
            partial(self._judge, job.task, job.program),
            partial(self._references.settles, prepared.digest),
        )
        total = max(prepared.total, execution.total)
        return self._counted(job.task, replace(execution, total=total))

    async def execute(
        self, program: str, stdin: str = "", seconds: float | None = None,
        language: str | Language = "python", folder: Folder | None = None,
    ) -> Run:  # fmt: skip
        """As AnyJudge."""
        usual, most = self.limits.cpu_seconds, LONGEST * self.limits.wall_seconds
        factor = min(max((seconds or usual) / usual, 1.0), LONGEST)
        folder = folder or folder_of(program)
        resolved = language_named(language) if isinstance(language, str) else language
        build = await self._exchanges.builds.build(resolved, program, folder, factor)
        compiled = build.compiled and await self._exchanges.decided(build.compiled.result)
        if isinstance(build.program, Execution):
            return Run(build.program, compiled)
        ready = build.program._replace(wall_seconds=min(seconds or 0.0, most))
        result = await self._exchanges.started(ready, stdin, resolved)
        execution = self._counted(ANY_PROGRAM, await self._exchanges.decided(result))
        return Run(execution, compiled, result.files)

    def interpreter(self) -> Interpreter:
        """As AnyJudge."""
        return Interpreter(self._sandbox, self._breaker)

    @asynccontextmanager
    async def box(self, check: RepositoryTests) -> AsyncIterator[Box]:
        """As AnyJudge."""
        try:
            async with self._sandbox.box(await spec_of(check)) as box:
                yield box
            self._breaker.note("")
        except SandboxError as error:
            if self.broken:
                raise
            self._breaker.note(str(error))
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
            in_time = execution.verdict is not Verdict.TIMEOUT
            if prepared.runs_alone and in_time and not cannot_be_judged(execution):
                return execution  # no proxy is there that could do more, and time was enough
            execution = await settled(task, first, execution, again, features)
            if program != task.reference and self._references.fails_too(key, execution):
                execution = replace(
                    execution, verdict=Verdict.INFRA, detail=FAILS_TOO + execution.detail
                )
            return execution
        except SandboxError as error:
            if self._sandbox.broken:
                raise
            return Execution(Verdict.INFRA, detail=str(error))

    async def _execute(self, task: Task, program: str, features: ProxyFeatures) -> Execution:
        prepared = self._prepare(task)
        if prepared.runs_alone:
            return await self._exchanges.run(prepared, task.checker, program, features)
        execution = decide(await self._sandbox.run(prepared.checked(program, features)))
        # what a test reads of a database is the program's word
        return replace(execution, forgeable=execution.forgeable or prepared.parses_databases)

    async def _answers(self, task: Task) -> tuple[Execution, list[str]]:
        features = ProxyFeatures(time_factor=LONGEST)
        prepared, reference = self._prepare(task), task.reference or ""
        if prepared.runs_alone:
            return await self._exchanges.answers(prepared, reference, features)
        result = await self._sandbox.run(prepared.checked(reference, features))
        report = parse_report(result.report[1:])
        return decide(result), report.answers if report else []

    def _prepare(self, task: Task) -> PreparedTask:
        if not (prepared := self._prepared.get(id(task))):
            prepared = PreparedTask(task, self.limits, self.stop_early)
            self._prepared[id(task)] = prepared
        return prepared


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
    passed = execution.verdict is Verdict.PASS
    failed = cannot_be_judged(execution) or execution.verdict in MAY_NEED_FEATURES
    features: ProxyFeatures | None = first
    if task.reference is None:
        features = replace(first, mutates=ARGUMENTS in execution.changes)
    elif failed or (passed and any(what != ARGUMENTS for what in execution.changes)):
        features = await needed()
    if failed and features and replace(features, changes=first.changes) != first:
        execution, first = await again(features), features
    if failed and features and task.reference is not None and cannot_be_judged(execution):
        # the reference never makes the check do this, so the program is wrong
        execution = replace(
            execution, verdict=Verdict.WRONG, detail=execution.detail.removeprefix(CANNOT)
        )
    changes = set(execution.changes) - (features or first).changes
    if not first.mutates:
        changes.discard(ARGUMENTS)  # none of these has reached the test
    forgeable = execution.forgeable or bool(changes)
    return replace(execution, forgeable=forgeable, changes=())


def judge_all(
    jobs: Sequence[Job], limits: Limits | None = None, slots: int | None = None,
    stop_early: bool = True, progress: Callable[[int, Execution], None] | None = None,
    allow_weak: bool = False, skip_refused: bool = False,
) -> list[Execution]:  # fmt: skip
    """Judge many programs and wait; calls `progress(index, execution)` as each ends. With
    `skip_refused`, a task that is refused gets INFRA with the reason.

    It may be called where an event loop runs, as in a notebook: the judge then runs in a thread of
    its own, and so does `progress`. Raises like Judge.
    """

    async def judge() -> list[Execution]:
        async with Judge(limits, slots, stop_early, allow_weak) as judge:
            return await judge.all(jobs, progress, skip_refused)

    return run_sync(judge())
