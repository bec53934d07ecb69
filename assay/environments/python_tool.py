"""The model may run Python before it answers: blocks in `<code>`, in an interpreter of the
rollout's own.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated

from pydantic import Field

from assay import extract
from assay.environments import Conversation, environment_with, visible
from assay.judge.interpreter import STAYS
from assay.judge.kinds.find import kind_of
from assay.types import AnyCheck, Task

OPEN, CLOSE = "<code>", "</code>"
USE = f"Python in {OPEN}...{CLOSE} is run, and its output shown, before you answer"
TRY = "try_examples()"
CUT_OFF = "The code was cut off at the limit of tokens, and not run."
EXAMPLES, LONGEST = 3, 600
"""Visible checks that are shown, and the characters of the longest one."""
PRELUDE = """{setup}
def {call}:
    for example in {examples}:
        try:
            exec(example, globals())
        except Exception as error:
            raise AssertionError(f"{{example}} fails: {{error!r}}") from None
"""


def instructions(task: Task) -> str:
    """How to use the tool, and the visible checks that the prompt does not show."""
    shown = [line for line in map(str.strip, _examples(task)) if line not in task.prompt]
    return "\n".join(
        [f"{USE}; {TRY} tries the examples." if _runnable(task) else f"{USE}.", *shown]
    )


def script(task: Task, answer: str, right: str) -> Generator[str, bool, None]:
    """The demonstration runs on the examples, and is then the answer; if it failed, the right
    answer is.
    """
    program = extract.program(task, answer) if _runnable(task) else None
    correct = (yield f"{OPEN}\n{program.strip()}\n{TRY}\n{CLOSE}") if program else True
    if correct or right != answer:
        yield answer if correct else right


@environment_with(script, instructions=instructions)
async def python_tool(
    conversation: Conversation, *, turns: Annotated[int, Field(ge=2)] = 3
) -> None:
    """Run `<code>...</code>` and show `<output>...</output>`, until a reply has no code or is the
    last of `turns`.
    """
    examples = _runnable(conversation.task)
    prelude = PRELUDE.format(setup=conversation.task.setup, call=TRY, examples=examples)
    async with conversation.judge.interpreter() as python:
        fresh = True
        for _ in range(turns - 1):
            _, opened, code = (await conversation.reply(stop=(CLOSE,))).rpartition(OPEN)
            if not opened:
                return
            if conversation.cut_off:
                conversation.show(_output(CUT_OFF), correct=False)
                continue
            if fresh and examples:
                await python.run(prelude)
            result = await python.run(code.partition(CLOSE)[0])
            fresh = result.ended not in STAYS
            conversation.show(_output(result.output), correct=result.ended == "done")
    await conversation.reply()


def _output(text: str) -> str:
    return "<output>\n" + text.removesuffix("\n") + "\n</output>"


def _examples(task: Task) -> dict[str, AnyCheck]:
    """The first short visible checks, by their source."""
    sources = {kind_of(check).show(check, task): check for check in visible(task)}
    short = [text for text in sources if 0 < len(text) <= LONGEST]
    return {text: sources[text] for text in short[:EXAMPLES]}


def _runnable(task: Task) -> list[str]:
    """The examples that are Python code, if the task's program is Python."""
    python = task.language == "python"
    examples = _examples(task).items()
    return [line for line, check in examples if python and kind_of(check).in_worker]
