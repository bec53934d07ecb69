"""An agent's shell in a repository: the model calls `bash`, sees what came of it, and in the end
the change of the work folder is judged. Limits and texts are those of mini-swe-agent 2.4.6.
"""

import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt

from assay.environments import (
    Conversation,
    OutOfRoomError,
    environment_with,
    missing_repository,
    repository_tests,
)
from assay.files import encodable
from assay.sandbox.box import Box
from assay.sandbox.program import Ended
from assay.tools import Tool
from assay.types import Task, ToolCall

BASH = Tool(
    "bash", "Execute a bash command", {"command": "The bash command to execute"},
    "```mswea_bash_command", "\n```",
)  # fmt: skip
VARIABLES = {
    "PAGER": "cat", "MANPAGER": "cat", "LESS": "-R", "PIP_PROGRESS_BAR": "off", "TQDM_DISABLE": "1",
}  # fmt: skip
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The first line of the output of the command that ends the work."""
SHORT, HALF = 10_000, 5_000
"""Characters below which an output is shown whole, and of its head and tail otherwise."""
MOST_WRONG = 3
"""Replies in a row without a call that can be run, after which the rollout ends."""
OUTPUT_BYTES = 4 << 20
TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
FAILED = "An error occurred while executing the command"


def instructions(task: Task, tool_calls: str) -> str:
    """How to work and to submit."""
    return str(TEXTS["instructions"]).format(use=TEXTS["use"][tool_calls], submit=SUBMIT)


@environment_with(
    missing=missing_repository, instructions=instructions, tools=(BASH,), request="{prompt}"
)
async def shell(
    conversation: Conversation,
    *,
    turns: PositiveInt = 250,
    seconds: PositiveFloat = 60.0,
    tool_calls: Literal["template", "text"] = "template",
) -> None:
    """Run each reply's commands in a box with the repository, each for up to `seconds`, in at most
    `turns` replies. Commands stand in calls of the tool `bash` as the model's chat template writes
    them, or, if `tool_calls` is "text", in ```mswea_bash_command blocks.
    """
    check = repository_tests(conversation.task)
    if check is None:
        await conversation.reply()
        return
    async with conversation.judge.box(check) as box:
        try:
            patch = await _work(conversation, box, turns, seconds, tool_calls)
        except OutOfRoomError:
            await _submit(conversation, box, "")
            raise
        await _submit(conversation, box, patch)


async def _work(
    conversation: Conversation, box: Box, turns: int, seconds: float, tool_calls: str
) -> str:
    """Run what the replies ask for. What the submitting command printed after its first line."""
    wrong = 0
    for _ in range(turns):
        await conversation.reply()
        calls = conversation.calls
        error = _error(calls, tool_calls)
        wrong = wrong + 1 if error else 0
        if error:
            text = (
                TEXTS["wrong"][tool_calls].format(error=error, count=len(calls))
                + TEXTS["completed"]
            )
            text = TEXTS["cut_off"] if conversation.cut_off else text
            if calls and tool_calls == "template":
                results = [text if call.detail else NOT_EXECUTED for call in calls]
                conversation.show_results(results, correct=False)
            else:
                conversation.show(text, correct=False)
            if wrong == MOST_WRONG:
                break
            continue
        results = [NOT_EXECUTED] * len(calls)
        submitted = None
        for number, call in enumerate(calls):
            results[number], submitted = await _run(box, call.arguments["command"], seconds)
            if submitted is not None:
                break
        conversation.show_results(results)
        if submitted is not None:
            return submitted
    return ""


def _error(calls: Sequence[ToolCall], tool_calls: str) -> str:
    """What is wrong with the calls of a reply; empty if they can be run."""
    if tool_calls == "text" and (len(calls) != 1 or calls[0].detail):
        return f"Expected exactly 1 action, found {sum(not call.detail for call in calls)}."
    if not calls:
        return str(TEXTS["no_calls"])
    return next((call.detail for call in calls if call.detail), "")


async def _run(box: Box, command: str, seconds: float) -> tuple[str, str | None]:
    """What a command shows; and what it submits, if it does."""
    if "\0" in command:
        return _observation(-1, "", f"{FAILED}: embedded null byte"), None
    command = encodable(command.strip())
    result = await box.run(
        ("bash", "-c", command),
        wall_seconds=seconds,
        output_bytes=OUTPUT_BYTES,
        merged=True,
        environment=VARIABLES,
    )
    output = result.stdout.decode("utf-8", "replace")
    if result.ended is not Ended.EXITED:
        late = result.ended is Ended.WALL
        why = f"Command {command!r} timed out after {seconds:g} seconds" if late else result.detail
        return _observation(-1, output, f"{FAILED}: {why}"), None
    first, _, rest = output.lstrip().partition("\n")
    submits = first.strip() == SUBMIT and result.status == 0
    return _observation(result.status, output), rest if submits else None


def _observation(status: int, output: str, exception: str = "") -> str:
    """What came of a command, as the model reads it."""
    head = f"<exception>{exception}</exception>\n" if exception else ""
    head += f"<returncode>{status}</returncode>\n"
    if len(output) < SHORT:
        return f"{head}<output>\n{output}</output>"
    return (
        f"{head}{TEXTS['too_long']}<output_head>\n{output[:HALF]}\n</output_head>\n<elided_chars>\n"
        f"{len(output) - SHORT} characters elided\n</elided_chars>\n<output_tail>\n"
        f"{output[-HALF:]}\n</output_tail>"
    )


async def _submit(conversation: Conversation, box: Box, patch: str) -> None:
    """Submit a patch, or how the work folder differs; nothing where the diff is too long."""
    with suppress(OSError):
        conversation.submit(patch if patch.strip() else await box.diff())


NOT_EXECUTED = _observation(-1, "", "action was not executed")
