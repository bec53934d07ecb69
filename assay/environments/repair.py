"""A program that fails a visible check is told how, and may be mended."""

from __future__ import annotations

import ast
import re
from collections.abc import Generator, Sequence
from dataclasses import replace

from pydantic import PositiveInt

from assay.environments import Talk, environment_with, visible
from assay.types import Call, Check, Exchange, Execution, Task, Verdict

LONGEST = 600
"""Characters that are shown of one side of a check, or of an input."""


def script(task: Task, answer: str, right: str) -> Generator[str, bool, None]:
    """A demonstration, and a right answer for where that fails a visible check."""
    yield answer
    yield right


def lacks(task: Task) -> str:
    """Without a visible check there is nothing to tell."""
    return "" if visible(task) else "a visible check"


@environment_with(script, lacks)
async def repair(talk: Talk, *, turns: PositiveInt = 3) -> None:
    """Tells how a visible check fails, until none does or `turns` replies are written."""
    checks = visible(talk.task)
    for _ in range(turns - 1 if checks else 0):
        await talk.reply()
        failure = await _failure(talk, checks)
        if not failure:
            return
        talk.show(failure, held=False)
    await talk.reply()


async def _failure(talk: Talk, checks: Sequence[Check | Call | Exchange]) -> str:
    """What is told of the first check that the last reply fails; empty when there is none."""
    for check in checks:
        seen = await talk.check([telling(check)])
        if seen.verdict is not Verdict.PASS:
            return f"That fails: {words(check, seen)}"
    return ""


def telling(check: Check | Call | Exchange) -> Check | Call | Exchange:
    """The check, made to say what came out where it only asserts that one thing equals another."""
    left, right = sides(check)
    if isinstance(check, Check) and left:
        return replace(check, source=f"_got = {left}\nassert _got == {right}, repr(_got)")
    return check


def words(check: Check | Call | Exchange, seen: Execution) -> str:
    """How the check fails."""
    detail = re.sub(r" at `[^`]*`?$", "", seen.detail).removeprefix("AssertionError: ")
    left, right = map(_short, sides(check))
    if seen.verdict in (Verdict.COMPILE, Verdict.NO_CODE):
        return detail
    match check:
        case Check() if left and seen.verdict is Verdict.WRONG:
            return f"{left} gives {detail}, not {right}"
        case Check():
            return f"{left or _short(check.source)}: {detail}"
        case Exchange():
            return f"{detail.removeprefix('test 1: ')}, where the input is\n{_short(check.stdin)}"
        case Call():
            return detail.removeprefix("call 1, ")


def sides(check: Check | Call | Exchange) -> tuple[str, str]:
    """`f(2)` and `4` of `assert f(2) == 4`; both empty for anything else."""
    try:
        body = ast.parse(check.source).body if isinstance(check, Check) else []
    except SyntaxError:
        return "", ""
    match body:
        case [ast.Assert(ast.Compare(left, [ast.Eq()], [right]), None)]:
            return ast.unparse(left), ast.unparse(right)
    return "", ""


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
