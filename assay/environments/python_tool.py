"""The policy may run Python before it answers: blocks in `<code>`, in an interpreter of the
rollout's own.
"""

from __future__ import annotations

import ast
from collections.abc import Generator
from typing import Annotated

from pydantic import Field

from assay import extract
from assay.environments import Talk, environment_with, visible
from assay.judge.codec import CodecError, Unpacker, loads
from assay.judge.interpreter import STAYS
from assay.types import Call, Check, Exchange, Task

OPEN, CLOSE = "<code>", "</code>"
USE = f"Python in {OPEN}...{CLOSE} is run, and its output shown, before you answer"
TRY = "try_examples()"
CUT_OFF = "The code was cut off at the limit of tokens, and not run."
EXAMPLES, LONGEST = 3, 600
"""How many visible checks are shown, and characters of one; longer ones are left out."""
PRELUDE = """{setup}
def {call}:
    for example in {examples}:
        try:
            exec(example, globals())
        except Exception as error:
            raise AssertionError(f"{{example}} fails: {{error!r}}") from None
"""


def instructions(task: Task) -> str:
    """How the tool is used, and the visible checks that the prompt does not show."""
    shown = [line for line in map(str.strip, _examples(task)) if line not in task.prompt]
    return "\n".join(
        [f"{USE}; {TRY} tries the examples." if _runnable(task) else f"{USE}.", *shown]
    )


def script(task: Task, answer: str, right: str) -> Generator[str, bool, None]:
    """A demonstration is run on the examples, then given as the answer, or the right one where it
    failed.
    """
    program = extract.program(task, answer) if _runnable(task) else None
    held = (yield f"{OPEN}\n{program.strip()}\n{TRY}\n{CLOSE}") if program else True
    if held or right != answer:
        yield answer if held else right


@environment_with(script, instructions=instructions)
async def python_tool(talk: Talk, *, turns: Annotated[int, Field(ge=2)] = 3) -> None:
    """Runs `<code>...</code>` and shows `<output>...</output>`, until a reply has none or is the
    last of `turns`.
    """
    examples = _runnable(talk.task)
    prelude = PRELUDE.format(setup=talk.task.setup, call=TRY, examples=examples)
    async with talk.judge.interpreter() as python:
        anew = True
        for _ in range(turns - 1):
            _, opened, code = (await talk.reply(stop=(CLOSE,))).rpartition(OPEN)
            if not opened:
                return
            if talk.cut_off:
                talk.show(_output(CUT_OFF), held=False)
                continue
            if anew and examples:
                await python.run(prelude)
            seen = await python.run(code.partition(CLOSE)[0])
            anew = seen.ended not in STAYS
            talk.show(_output(seen.output), held=seen.ended == "done")
    await talk.reply()


def _output(text: str) -> str:
    return "<output>\n" + text.removesuffix("\n") + "\n</output>"


def _examples(task: Task) -> dict[str, Check | Call | Exchange]:
    """The visible checks that are short, by how they are written."""
    written = {_written(task, check): check for check in visible(task)}
    short = [text for text in written if 0 < len(text) <= LONGEST]
    return {text: written[text] for text in short[:EXAMPLES]}


def _runnable(task: Task) -> list[str]:
    """The examples that are Python, beside a program that is."""
    python = task.language == "python"
    return [
        line
        for line, check in _examples(task).items()
        if python and not isinstance(check, Exchange)
    ]


def _written(task: Task, check: Check | Call | Exchange) -> str:
    """The check as Python, or what a program reads and prints; empty for a call that is not a plain
    equality.
    """
    match check:
        case Check():
            return check.source
        case Exchange():
            return f"Input:\n{check.stdin.rstrip()}\nOutput:\n{check.stdout.rstrip()}"
        case Call() if task.entry_point.isidentifier() and not check.tolerance and not task.checker:
            arguments, expected = _literal(check.arguments), _literal(check.expected or "")
            return (
                f"assert {task.entry_point}({arguments[1:-1]}) == {expected}"
                if arguments and expected
                else ""
            )
    return ""


def _literal(packed: str) -> str:
    """A value in the judge's JSON as a literal; empty where it has none."""
    try:
        text = repr(Unpacker().value(loads(packed.encode())))
        ast.literal_eval(text)
    except (CodecError, ValueError, SyntaxError):
        return ""
    return text
