"""Judges programs that read and print: one run for each exchange."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from assay.errors import SandboxError
from assay.judge.builds import Build, Builds, folder_of
from assay.judge.checkers import CHECKERS, DEFAULT_CHECKER, difference, shortened
from assay.judge.kinds.kind import Decision, ProgramRun
from assay.judge.prepared_task import PreparedTask, ProxyFeatures, pool_for
from assay.judge.verdict import CHECKER, is_tasks_fault, measured, printed_verdict
from assay.judge.verdict_cache import CACHED, SharedWork
from assay.languages import Language, language_named
from assay.sandbox.client import Sandbox
from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import Ended, Folder, Pool, Program, Result
from assay.types import Execution, Verdict, failing

RESTART_SECONDS = (0.5, 2.0)
"""How long to wait before a language's runtime is started again."""
LONG = 100_000
"""Characters that are compared in a thread, so that the loop goes on."""
ADDED, LARGEST = ("passed", "total", "wall_seconds"), ("cpu_seconds", "memory_mb")
"""What an execution of several exchanges has of theirs."""
RANKS = {Verdict.INFRA: 1, Verdict.PASS: 2}
"""Which verdict decides: any other first."""
RUN_CHECKER = """
import json, os, sys
source, *arguments = json.load(sys.stdin)
names, said = {"__name__": "checker"}, ""
try:
    exec(compile(source, "<checker>", "exec"), names)
    holds = names["check"](*arguments) is True
except BaseException as error:
    holds, said = False, f"the checker raised {type(error).__name__}: {error}"
print("\\n" + json.dumps([holds, said]), flush=True)
os._exit(0)
"""


class ExchangeRunner:
    """Runs a program for each exchange of its task; with `stop_early`, until one fails."""

    def __init__(self, sandbox: Sandbox, limits: Limits, stop_early: bool, slots: int = 1) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._boxes = asyncio.Semaphore(slots)
        self._stop_early = stop_early
        self.builds = Builds(sandbox.run)
        self._known: SharedWork[ProgramRun, Result] = SharedWork(CACHED)

    def close(self) -> None:
        """Cancel what runs in the background."""
        self.builds.close()
        self._known.close()

    async def run(
        self, task: PreparedTask, checker: str, program: str, features: ProxyFeatures
    ) -> Execution:
        """Judge one program. Raises SandboxError, DataError where a tool is not installed."""
        return await self._run(task, task.runs(program), checker, features)

    async def answers(
        self, task: PreparedTask, reference: str, features: ProxyFeatures
    ) -> tuple[Execution, list[str]]:
        """What the checks read in runs of the reference. Raises as `run`."""
        texts: dict[int, str] = {}
        runs = [reading(task, at, run, texts) for at, run in enumerate(task.runs(reference))]
        execution = await self._run(task, runs, "", features)
        return execution, [texts[at] for at in sorted(texts)]

    async def _run(
        self, task: PreparedTask, runs: list[ProgramRun], checker: str, features: ProxyFeatures
    ) -> Execution:
        if judges := [run.in_boxes for run in runs if run.in_boxes]:
            async with self._boxes:
                judged = {at: await self._in_boxes(judge) for at, judge in enumerate(judges)}
            return combined(judged) if len(judged) > 1 else judged[0]

        async def run_one(at: int) -> Execution:
            to_run = runs[at]
            language = to_run.language or task.language
            if to_run.decided:
                return Execution(**to_run.decided._asdict())
            build = await self._build(to_run, task, language, features.time_factor)
            if isinstance(build.program, Execution):
                return build.program
            result = await self.started(build.program, to_run.stdin, language)
            return await self.decided(result, to_run, checker or DEFAULT_CHECKER)

        if len(runs) == 1 and (runs[0].decide or runs[0].decided):
            return await run_one(0)
        order = sorted(range(len(runs)), key=lambda at: runs[at].decided is None)
        if not self._stop_early:
            return combined(
                dict(zip(order, await asyncio.gather(*map(run_one, order)), strict=True))
            )
        executions: dict[int, Execution] = {}
        for at in order:
            executions[at] = await run_one(at)
            if executions[at].verdict is not Verdict.PASS:
                break
        return combined(executions)

    async def _build(
        self, run: ProgramRun, task: PreparedTask, language: Language, time_factor: float
    ) -> Build:
        texts = dict(run.files) | ({language.beside: run.beside} if run.beside else {})
        files = {name: encoded(text) for name, text in texts.items()}
        used = Folder(files, run.fetch) if files or run.fetch else None
        folder = used or (None if run.pool else folder_of(run.source))
        pool = run.pool or pool_for(run.source, numeric=task.numeric, hash_seed=task.hash_seed)
        runner = language_named("python") if run.pool else language
        return await self.builds.build(runner, run.source, folder, time_factor, pool)

    async def _in_boxes(self, judge: Callable[[Sandbox, bool], Awaitable[Execution]]) -> Execution:
        """What comes of boxes, which are opened once more where the machine fails one. Raises
        SandboxError.
        """
        with contextlib.suppress(SandboxError):
            return await judge(self._sandbox, self._stop_early)
        return await judge(self._sandbox, self._stop_early)

    async def started(self, program: Program, stdin: str, language: Language) -> Result:
        """The result of a program whose language's runtime has started; it is tried again where
        that does not, and the machine failed where it never does. Raises SandboxError.
        """
        program = program._replace(stdin=encoded(stdin))
        if not language.started:
            return await self._sandbox.run(program)
        for pause in (*RESTART_SECONDS, None):
            result = await self._sandbox.run(program)
            before, started, after = result.stderr.partition(language.started)
            if started:
                return result._replace(stderr=before + after)
            if pause is not None:
                await asyncio.sleep(pause)
        first_line = result.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        why = result.start_error or first_line or result.detail
        return result._replace(ended=Ended.LOST, detail=f"{language.title} did not start: {why}")

    async def decided(
        self, result: Result, program_run: ProgramRun | None = None, checker: str = DEFAULT_CHECKER
    ) -> Execution:
        """What came of a run without a worker; any output is right where none is wanted, and is
        kept whole. Raises SandboxError.
        """
        verdict, detail = printed_verdict(result)
        decision = Decision(verdict, detail, int(verdict is Verdict.PASS))
        if verdict is Verdict.PASS and program_run:
            decision = await self._decision(result, program_run, checker)
        most, stdout, stderr = self._limits.output_kb * 1024, result.stdout, result.stderr
        if program_run:
            stdout = stdout[:most]
        elif len(stderr) >= most:
            stderr += f"\n(standard error is cut after {most} bytes)".encode()
        execution = measured(result, decision.verdict, decision.detail, stdout, stderr)
        forgeable = program_run is not None and program_run.forgeable and decision.passed > 0
        return replace(execution, **decision._asdict(), forgeable=forgeable)

    async def _decision(self, result: Result, program_run: ProgramRun, checker: str) -> Decision:
        """What the run's kind makes of it."""
        if program_run.decide is not None:
            return await asyncio.to_thread(program_run.decide, result)
        expected = program_run.stdout
        if program_run.expected is not None:
            answer = await self._run_once(program_run.expected)
            verdict, detail = printed_verdict(answer)
            if verdict is not Verdict.PASS:
                by_task = f"{CHECKER}the right answer: {verdict} {detail}"
                return Decision(Verdict.INFRA, detail if verdict is Verdict.INFRA else by_task)
            expected = answer.stdout.decode("utf-8", "surrogateescape")
        if expected is None:
            return Decision(Verdict.PASS, passed=1)
        output = result.stdout.decode("utf-8", "surrogateescape")
        verdict, detail = await self._compare(checker, program_run.stdin, output, expected)
        if program_run.expected is not None and verdict is Verdict.WRONG:
            detail = (
                f"{shortened(program_run.stdin)} is not {shortened(program_run.expected.stdin)}"
            )
        return Decision(verdict, detail, int(verdict is Verdict.PASS))

    async def _run_once(self, run: ProgramRun) -> Result:
        """The result of a run in a warm process, which is kept unless the machine failed. Raises
        SandboxError.
        """
        source, stdin = run.source.encode(), encoded(run.stdin)
        program = Program(source, stdin, pool=run.pool or Pool(), time_factor=LONGEST)
        result = await self._known.get_or_make(run, partial(self._sandbox.run, program))
        if result.ended is Ended.LOST:
            self._known.pop(run, None)
        return result

    async def _compare(
        self, checker: str, stdin: str, output: str, expected: str
    ) -> tuple[Verdict, str]:
        """PASS, or WRONG with the difference."""
        if checker not in CHECKERS:
            return await self._run_checker(checker, stdin, output, expected)
        if len(output) + len(expected) < LONG:
            right = CHECKERS[checker](output, expected)
        else:
            right = await asyncio.to_thread(CHECKERS[checker], output, expected)
        return (Verdict.PASS, "") if right else (Verdict.WRONG, difference(output, expected))

    async def _run_checker(
        self, checker: str, stdin: str, output: str, expected: str
    ) -> tuple[Verdict, str]:
        """Run the data set's own checker as a program. An output on which it raises is wrong."""
        message = json.dumps([checker, stdin, output, expected]).encode()
        program = Program(
            RUN_CHECKER.encode(), message, pool=pool_for(checker), time_factor=LONGEST
        )
        result = await self._sandbox.run(program)
        try:
            right, comment = json.loads(result.stdout.rstrip().rpartition(b"\n")[2])
        except (ValueError, TypeError):
            return Verdict.INFRA, CHECKER + (result.detail or "it printed no verdict")
        if right is True:
            return Verdict.PASS, ""
        return Verdict.WRONG, str(comment) or difference(output, expected)


def reading(task: PreparedTask, at: int, run: ProgramRun, texts: dict[int, str]) -> ProgramRun:
    """A run of a reference that adds to `texts` what its check reads."""

    def decide(result: Result) -> Decision:
        texts[at] = task.read(at, result)
        return run.decide(result) if run.decide else Decision(Verdict.PASS)

    return run._replace(decide=decide)


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
    if detail and verdict is not Verdict.COMPILE and not is_tasks_fault(executions[first]):
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
