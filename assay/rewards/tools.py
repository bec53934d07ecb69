"""Runs tools, compilers among them, on the programs of rollouts, in the run's judge."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from assay.errors import RolloutLostError
from assay.judge import AnyJudge
from assay.languages import Language, language_named
from assay.rewards import BatchFunction
from assay.sync import together
from assay.types import Execution, Rollout, Verdict

WARNING = re.compile(r"^(?:%Warning-|.*\bwarning:)", re.MULTILINE)


@asynccontextmanager
async def open_tool(
    judge: AnyJudge, grade: Callable[[Execution], float], tool: Language | None = None,
    prepare: Callable[[str], str] = str,
) -> AsyncIterator[BatchFunction]:  # fmt: skip
    """Grades what a tool says of each program that it takes, made ready by `prepare`; without one,
    what the compiler of its language says. Equal programs of a batch are run once. A rollout
    without a program that it takes gets 0, one that the machine failed RolloutLostError.

    Raises DataError where the tool is not installed, SandboxError.
    """
    if tool is not None:
        tool.versions()
    async with judge.with_tools() as tools:

        async def grade_program(program: str, name: str) -> float | RolloutLostError:
            run = await tools.execute(prepare(program), language=tool or language_named(name))
            ended = run.compiled or run.execution
            if not ended.is_judged:
                return RolloutLostError(f"the machine failed a tool: {ended.detail}")
            return grade(ended) if ended.verdict is Verdict.PASS else 0.0

        async def scores(rollouts: Sequence[Rollout]) -> list[float | RolloutLostError]:
            jobs = [(rollout.turns[-1].program, rollout.task.language) for rollout in rollouts]
            distinct = {(program, name) for program, name in jobs if program is not None}
            grades = dict(
                zip(
                    distinct, await together(grade_program(*pair) for pair in distinct), strict=True
                )
            )
            return [grades[job[0], job[1]] if job[0] is not None else 0.0 for job in jobs]

        yield scores


def warnings(ended: Execution) -> int:
    """Lines of what a tool wrote to standard error that begin a warning."""
    return len(WARNING.findall(ended.stderr))
