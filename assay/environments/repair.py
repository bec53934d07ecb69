"""The model sees how its program fails a visible check, and may fix it."""

import re
from collections.abc import Callable, Generator

from pydantic import PositiveInt

from assay.environments import Conversation, environment_with, visible
from assay.judge.kinds.find import kind_of
from assay.types import AnyCheck, Execution, Task, Verdict


def script(task: Task, answer: str, right: str) -> Generator[str, bool, None]:
    """The demonstration, then a right answer if the demonstration fails a visible check."""
    yield answer
    yield right


def missing(task: Task) -> str:
    """Without a visible check there is nothing to show."""
    return "" if visible(task) else "a visible check"


@environment_with(script, missing)
async def repair(conversation: Conversation, *, turns: PositiveInt = 3) -> None:
    """Show how a visible check fails, in at most `turns` replies."""
    for _ in range(turns - 1 if visible(conversation.task) else 0):
        await conversation.reply()
        failure = await first_failure(conversation, "That fails: ", describe_failure)
        if not failure:
            return
        conversation.show(failure, correct=False)
    await conversation.reply()


async def first_failure(
    conversation: Conversation, heading: str, describe: Callable[[AnyCheck, Execution], str]
) -> str:
    """How the last reply fails the first visible check that it fails; empty if it passes all."""
    for check in visible(conversation.task):
        execution = await conversation.check([check])
        if execution.verdict is not Verdict.PASS:
            return heading + describe(check, execution)
    return ""


def describe_failure(check: AnyCheck, execution: Execution) -> str:
    """How the check fails, in one line; the input of a program follows on lines of its own."""
    detail = re.sub(r" at `[^`]*`?$", "", execution.detail).removeprefix("AssertionError: ")
    if execution.verdict in (Verdict.COMPILE, Verdict.NO_CODE):
        return detail
    return kind_of(check).failure(check, detail, execution.verdict is Verdict.WRONG)
