"""The model may run Python before it answers, in an interpreter of the rollout's own: blocks in
`<code>`, or calls of a tool as its chat template writes them.
"""

from collections.abc import Generator
from typing import Annotated, Literal

from pydantic import Field

from assay import extract
from assay.environments import LocalConversation, environment_with, visible
from assay.judge.interpreter import STAYS
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.kind import InWorker
from assay.tools import Tool
from assay.types import AnyCheck, Task, ToolCall

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


PYTHON = Tool(
    "python", "Run Python and get its output, before you answer. State is kept between calls.",
    {"code": "The code to run"}, OPEN, CLOSE,
)  # fmt: skip


def instructions(task: Task, tool_calls: str = "text") -> str:
    """How to use the tool, and the visible checks that the prompt does not show."""
    calls = [line for line in map(str.strip, _examples(task)) if line not in task.prompt]
    use = USE if tool_calls == "text" else "You can run Python before you answer"
    return "\n".join(
        [f"{use}; {TRY} tries the examples." if _runnable(task) else f"{use}.", *calls]
    )


def script(task: Task, answer: str, right: str) -> Generator[str | ToolCall, bool, None]:
    """The demonstration runs on the examples, and is then the answer; if it failed, the right
    answer is.
    """
    program = extract.program(task, answer) if _runnable(task) else None
    call = ToolCall(PYTHON.name, {"code": f"{program.strip()}\n{TRY}"}) if program else None
    correct = (yield call) if call else True
    if correct or right != answer:
        yield answer if correct else right


@environment_with(script, instructions=instructions, tools=(PYTHON,))
async def python_tool(
    conversation: LocalConversation,
    *,
    turns: Annotated[int, Field(ge=2)] = 3,
    tool_calls: Literal["template", "text"] = "text",
) -> None:
    """Run a reply's code and show its output, in at most `turns` replies. Code stands in
    `<code>...</code>`, or in calls as the model's chat template writes them, if `tool_calls` is
    "template".
    """
    examples = _runnable(conversation.task)
    prelude = PRELUDE.format(setup=conversation.task.setup, call=TRY, examples=examples)
    async with conversation.judge.interpreter() as python:
        fresh = True
        for _ in range(turns - 1):
            await conversation.reply(stop=(CLOSE,) if tool_calls == "text" else ())
            if not conversation.calls:
                return
            outputs, correct = [], True
            for call in conversation.calls:
                if call.status != "ok":
                    cut_off = call.status == "unclosed_block" and conversation.cut_off
                    outputs.append(_output(CUT_OFF if cut_off else call.detail))
                    correct = False
                    continue
                if fresh and examples:
                    await python.run(prelude)
                result = await python.run(call.arguments["code"])
                fresh = result.ended not in STAYS
                outputs.append(_output(result.output))
                correct &= result.ended == "done"
            conversation.show_results(outputs, correct=correct)
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
    return [line for line, check in examples if python and isinstance(kind_of(check), InWorker)]
