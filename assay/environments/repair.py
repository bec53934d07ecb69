"""The model sees how its program fails a visible check, and may fix it."""

from __future__ import annotations

import ast
import re
from collections.abc import Generator, Sequence
from dataclasses import replace

from pydantic import PositiveInt

from assay.environments import Conversation, environment_with, visible
from assay.types import AnyCheck, Call, Check, Exchange, Execution, Task, TestFunctions, Verdict

LONGEST = 600
"""Characters shown of one side of a check, or of an input."""


def script(task: Task, answer: str, right: str) -> Generator[str, bool, None]:
    """The demonstration, then a right answer if the demonstration fails a visible check."""
    yield answer
    yield right


def missing(task: Task) -> str:
    """Without a visible check there is nothing to show."""
    return "" if visible(task) else "a visible check"


@environment_with(script, missing)
async def repair(conversation: Conversation, *, turns: PositiveInt = 3) -> None:
    """Show how a visible check fails, until none fails or the model has replied `turns` times."""
    checks = visible(conversation.task)
    for _ in range(turns - 1 if checks else 0):
        await conversation.reply()
        failure = await _failure(conversation, checks)
        if not failure:
            return
        conversation.show(failure, correct=False)
    await conversation.reply()


async def _failure(conversation: Conversation, checks: Sequence[AnyCheck]) -> str:
    """How the last reply fails the first check that it fails; empty if it passes all."""
    for check in checks:
        execution = await conversation.check([with_value(check)])
        if execution.verdict is not Verdict.PASS:
            return f"That fails: {describe_failure(check, execution)}"
    return ""


def with_value(check: AnyCheck) -> AnyCheck:
    """The check with the actual value in its message, if it only asserts an equality."""
    left, right = equality_sides(check)
    if isinstance(check, Check) and left:
        return replace(check, source=f"_got = {left}\nassert _got == {right}, repr(_got)")
    return check


def describe_failure(check: AnyCheck, execution: Execution) -> str:
    """How the check fails, in one line; the input of a program follows on lines of its own."""
    detail = re.sub(r" at `[^`]*`?$", "", execution.detail).removeprefix("AssertionError: ")
    left, right = map(_short, equality_sides(check))
    if execution.verdict in (Verdict.COMPILE, Verdict.NO_CODE):
        return detail
    match check:
        case Check() if left and execution.verdict is Verdict.WRONG:
            return f"{left} gives {detail}, not {right}"
        case Check():
            return f"{left or _short(check.source)}: {detail}"
        case Exchange():
            return f"{detail.removeprefix('test 1: ')}, where the input is\n{_short(check.stdin)}"
        case Call():
            return detail.removeprefix("call 1, ")
        case TestFunctions():
            return detail


def equality_sides(check: AnyCheck) -> tuple[str, str]:
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
