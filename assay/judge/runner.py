"""Runs programs for the kinds of tests: what all tasks of a judge share, and a task's workbench."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial

from assay.judge.builds import Builds, folder_of
from assay.judge.checkers import DEFAULT_CHECKER, checker_named, difference
from assay.judge.kinds.workbench import Run, Test, Workbench, ruled
from assay.judge.prepared_task import PreparedTask, ProxyFeatures, pool_for
from assay.judge.shared_work import SharedWork
from assay.judge.verdict import (
    CHECKER,
    decide,
    measured,
    parse_report,
    printed_verdict,
    unjudged,
)
from assay.judge.verdict_cache import CACHED
from assay.languages import Language, language_named
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import BY_MACHINE, Ended, Folder, Pool, Program, Result
from assay.sandbox.supervisor_client import Sandbox
from assay.types import Cause, Execution, Task, Verdict, failing

KNOWN_MB = 64
"""MiB of the normal forms of right answers that are kept."""
RESTART_SECONDS = (0.5, 2.0)
"""How long to wait before a language's runtime is started again."""
LONG = 100_000
"""Characters that are compared in a thread, so that the loop goes on."""
ADDED, LARGEST = ("passed", "total", "wall_seconds"), ("cpu_seconds", "memory_mb")
"""What an execution of several exchanges has of theirs."""
RANKS = {Verdict.UNJUDGED: 1, Verdict.INFRA: 2, Verdict.PASS: 3}
"""Which verdict decides: any other first."""
LOADED = b"loaded\n"
RUN_CHECKER = """
import json, os, sys
channel = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the checker prints may be the program's
def say(text):
    channel.write(text + "\\n")
    channel.flush()
def described(error):
    try:
        return f"the checker raised {type(error).__name__}: {error}"
    except BaseException:
        return f"the checker raised {type(error).__name__}"
names = {"__name__": "checker"}
try:
    exec(compile(json.loads(sys.stdin.readline()), "<checker>", "exec"), names)
    check = names["check"]
except BaseException as error:
    say(described(error))
    os._exit(0)
say("loaded")
try:
    verdict = [check(*json.load(sys.stdin)) is True, ""]
except BaseException as error:
    verdict = [False, described(error)]
say(json.dumps(verdict))
os._exit(0)
"""
"""Prints LOADED before it reads anything of the program's, and [whether the output is right, what
the checker raised]; or what kept the checker from being loaded."""


class Runner:
    """Runs programs in a sandbox, and opens as many boxes at once as it has slots."""

    def __init__(self, sandbox: Sandbox, limits: Limits, stop_early: bool, slots: int = 1) -> None:
        self.sandbox = sandbox
        self.stop_early = stop_early
        self.builds = Builds(sandbox.run)
        self._limits = limits
        self._boxes = asyncio.Semaphore(slots)
        self._known: SharedWork[tuple[str, str, Pool], Result] = SharedWork(CACHED, KNOWN_MB)

    def close(self) -> None:
        """Cancel what runs in the background."""
        self.builds.close()
        self._known.close()

    @asynccontextmanager
    async def box(self, spec: BoxSpec) -> AsyncIterator[Box]:
        """A box, as soon as a slot is free. Raises SandboxError."""
        async with self._boxes, self.sandbox.box(spec) as box:
            yield box

    async def run(
        self, language: Language, source: str, stdin: str, folder: Folder | None, factor: float,
        *, pool: Pool | None = None, wall_seconds: float = 0.0, whole: bool = False,
    ) -> Run:  # fmt: skip
        """What comes of a program, which is compiled first. whole: what it printed is not cut off.
        Raises DataError, SandboxError.
        """
        build = await self.builds.build(language, source, folder, factor, pool)
        compiled = build.compiled and self._finished(build.compiled.result, whole)
        if isinstance(build.program, Execution):
            return Run(build.program, compiled)
        program = build.program._replace(stdin=encoded(stdin), wall_seconds=wall_seconds)
        result = await self._started(program, language)
        return Run(self._finished(result, whole), compiled, result)

    async def run_once(self, source: str, stdin: str, pool: Pool) -> Run:
        """What comes of a script, which is kept unless the machine failed. Raises SandboxError."""
        key, payload = (source, stdin, pool), source.encode()
        program = Program(payload, encoded(stdin), pool=pool, time_factor=LONGEST)
        result = await self._known.get_or_make(key, partial(self.sandbox.run, program))
        if result.ended in BY_MACHINE:
            self._known.pop(key, None)
        return Run(self._finished(result), result=result)

    async def _started(self, program: Program, language: Language) -> Result:
        """The result of a program whose language's runtime has started; it is tried again where
        that does not, and the machine failed where it never does. Raises SandboxError.
        """
        if not language.started:
            return await self.sandbox.run(program)
        for pause in (*RESTART_SECONDS, None):
            result = await self.sandbox.run(program)
            before, started, after = result.stderr.partition(language.started)
            if started:
                return result._replace(stderr=before + after)
            if pause is not None:
                await asyncio.sleep(pause)
        first_line = result.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        why = result.start_error or first_line or result.detail
        return result._replace(ended=Ended.LOST, detail=f"{language.title} did not start: {why}")

    def _finished(self, result: Result, whole: bool = False) -> Execution:
        """PASS where it exited with status 0."""
        execution = printed_verdict(result)
        most, stdout, stderr = self._limits.output_kb * 1024, result.stdout, result.stderr
        if not whole:
            stdout = stdout[:most]
        elif len(stderr) >= most:
            stderr += f"\n(standard error is cut after {most} bytes)".encode()
        passed = int(execution.verdict is Verdict.PASS)
        return measured(result, execution, stdout, stderr, passed=passed, total=1)


class TaskWorkbench(Workbench):
    """The workbench of a task, for a run of its checks with these features."""

    def __init__(
        self, runner: Runner, task: Task, prepared: PreparedTask, features: ProxyFeatures
    ) -> None:
        self.language = prepared.language
        self.stop_early = runner.stop_early
        self._runner = runner
        self._prepared = prepared
        self._features = features
        self._checker = task.checker or DEFAULT_CHECKER

    async def run(
        self, source: str, stdin: str = "", *, beside: str = "",
        files: Mapping[str, str] | None = None, fetch: tuple[str, ...] = (),
        language: Language | None = None, pool: Pool | None = None,
    ) -> Run:  # fmt: skip
        """As Workbench."""
        task, language = self._prepared, language or self.language
        texts = {**(files or {}), **({language.beside: beside} if beside else {})}
        encoded_files = {name: encoded(text) for name, text in texts.items()}
        used = Folder(encoded_files, fetch) if encoded_files or fetch else None
        folder = used or (None if pool else folder_of(source))
        usual = pool_for(source, numeric=task.numeric, hash_seed=task.hash_seed)
        by = language_named("python") if pool else language
        factor = self._features.time_factor
        return await self._runner.run(by, source, stdin, folder, factor, pool=pool or usual)

    async def run_once(self, source: str, stdin: str, pool: Pool) -> Run:
        """As Workbench."""
        return await self._runner.run_once(source, stdin, pool)

    def box(self, spec: BoxSpec) -> AbstractAsyncContextManager[Box]:
        """As Workbench."""
        return self._runner.box(spec)

    async def test(self, program: str) -> Execution:
        """As Workbench."""
        return self._ended(await self._tested(program))

    async def answers(self, program: str) -> tuple[Execution, list[str]]:
        """As Workbench."""
        result = await self._tested(program)
        report = parse_report(result.report[1:])
        return self._ended(result), report.answers if report else []

    async def _tested(self, program: str) -> Result:
        return await self._runner.sandbox.run(self._prepared.checked(program, self._features))

    def _ended(self, result: Result) -> Execution:
        execution = decide(result)
        # what a test reads of a database is the program's word
        if self._prepared.parses_databases and not execution.forgeable:
            return replace(execution, forgeable=True)
        return execution

    async def in_turn(self, tests: Mapping[int, Test]) -> Execution:
        """As Workbench."""
        if not self.stop_early:
            ended = await asyncio.gather(*(test() for test in tests.values()))
            return combined(dict(zip(tests, ended, strict=True)))
        executions: dict[int, Execution] = {}
        for at, test in tests.items():
            executions[at] = await test()
            if executions[at].verdict is not Verdict.PASS:
                break
        return combined(executions)

    async def compare(self, run: Run, expected: str, stdin: str = "") -> Execution:
        """As Workbench."""
        if run.execution.verdict is not Verdict.PASS:
            return run.execution
        output = run.result.stdout.decode("utf-8", "surrogateescape")
        decision = await self._compare(stdin, output, expected)
        passed = int(decision.verdict is Verdict.PASS)
        return ruled(run, replace(decision, passed=passed, total=1))

    async def _compare(self, stdin: str, output: str, expected: str) -> Execution:
        """PASS, or WRONG with the difference."""
        compare = checker_named(self._checker)
        if compare is None:
            return await self._run_checker(stdin, output, expected)
        if len(output) + len(expected) < LONG:
            right = compare(output, expected)
        else:
            right = await asyncio.to_thread(compare, output, expected)
        if right:
            return Execution(Verdict.PASS)
        return Execution(Verdict.WRONG, detail=difference(output, expected))

    async def _run_checker(self, stdin: str, output: str, expected: str) -> Execution:
        """Run the data set's own checker as a program. An output on which it raises, or ends, is
        wrong: the program has chosen that.
        """
        message = f"{json.dumps(self._checker)}\n{json.dumps([stdin, output, expected])}".encode()
        program = Program(
            RUN_CHECKER.encode(), message, pool=pool_for(self._checker), time_factor=LONGEST
        )
        result = await self._runner.sandbox.run(program)
        if result.ended in BY_MACHINE:
            return Execution(Verdict.INFRA, detail=result.detail)
        if not result.stdout.startswith(LOADED):
            why = result.stdout.decode("utf-8", "replace").strip()
            return unjudged(Cause.TASK, CHECKER + (why or result.detail))
        try:
            right, raised = json.loads(result.stdout.removeprefix(LOADED))
        except (ValueError, TypeError, RecursionError):
            why = f"{CHECKER}{result.detail} on this output"
            return Execution(Verdict.WRONG, detail=why, cause=Cause.CHECKER)
        if right is True:
            return Execution(Verdict.PASS)
        return Execution(Verdict.WRONG, detail=str(raised) or difference(output, expected))


def encoded(stdin: str) -> bytes:
    """Standard input as bytes."""
    try:
        return stdin.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return stdin.encode("utf-8", "replace")


def combined(executions: Mapping[int, Execution]) -> Execution:
    """One execution from those of a program's exchanges by their numbers.

    The first failure decides; the machine's failure only where there is no other. CPU time and
    memory are the maximum, since each exchange has the limits to itself; wall time is the sum.
    """
    first = min(executions, key=lambda at: (RANKS.get(executions[at].verdict, 0), at))
    verdict, detail = executions[first].verdict, executions[first].detail
    if detail and verdict is not Verdict.COMPILE:
        detail = f"test {first + 1}: {detail}"
    added = {
        name: sum(getattr(execution, name) for execution in executions.values()) for name in ADDED
    }
    largest = {
        name: max(getattr(execution, name) for execution in executions.values()) for name in LARGEST
    }
    tests = failing(
        {at: (execution.verdict, execution.detail) for at, execution in sorted(executions.items())}
    )
    forgeable = any(execution.forgeable for execution in executions.values())
    return replace(
        executions[first], detail=detail, tests=tests, forgeable=forgeable, **added, **largest
    )
