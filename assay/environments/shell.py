"""An agent's shell in a repository: the model calls `bash`, sees what came of it, and in the end
the change of the work folder is judged. Limits and texts are those of mini-swe-agent 2.4.6.
"""

import logging
from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from assay.environments import (
    Conversation,
    LocalConversation,
    OutOfRoomError,
    environment_with,
    missing_repository,
    repository_tests,
)
from assay.environments.shell_texts import FORMS, TEXTS, ObservationForm
from assay.files import encodable
from assay.judge.kinds.repository import shown_spec_of
from assay.sandbox.box import Box
from assay.sandbox.box_commit import commit_tree
from assay.sandbox.program import Ended
from assay.tools import Tool
from assay.types import Task, ToolCall

BASH = Tool(
    "bash", "Execute a bash command", {"command": "The bash command to execute"},
    "```mswea_bash_command", "\n```",
)  # fmt: skip
VARIABLES = {
    "PAGER": "cat", "MANPAGER": "cat", "LESS": "-R", "PIP_PROGRESS_BAR": "off", "TQDM_DISABLE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
"""Of commands. Agents edit faster than bytecode tells its source's age: an edit of the same length
in the same second would not run."""
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The first line of the output of the command that ends the work."""
MOST_WRONG = 3
"""Replies in a row without a call that can be run, after which the rollout ends."""
OUTPUT_BYTES = 4 << 20
log = logging.getLogger(__name__)
FAILED = "An error occurred while executing the command"


def instructions(task: Task, tool_calls: str) -> str:
    """How to work and to submit."""
    return str(TEXTS["instructions"]).format(use=TEXTS["use"][tool_calls], submit=SUBMIT)


@environment_with(
    missing=missing_repository, instructions=instructions, tools=(BASH,), request="{prompt}"
)
async def shell(
    conversation: LocalConversation,
    *,
    turns: PositiveInt = 250,
    seconds: PositiveFloat = 60.0,
    tool_calls: Literal["template", "text"] = "template",
    observations: Literal["xml", "json"] = "xml",
) -> None:
    """Run each reply's commands in a box with the repository, each for up to `seconds`, in at most
    `turns` replies. Commands stand in calls of the tool `bash` as the model's chat template writes
    them, or, if `tool_calls` is "text", in ```mswea_bash_command blocks. The `observations` have
    the form of mini-swe-agent's swebench.yaml, or of its mini.yaml ("json"). As there, a reply that
    cannot be used leaves the conversation. A tree without git history is one commit.
    """
    check = repository_tests(conversation.task)
    if check is None:
        await conversation.reply()
        return
    async with conversation.judge.box(await shown_spec_of(check)) as box:
        if why := await commit_tree(box):
            log.warning("task %s: its box has no git repository: %s", conversation.task.id, why)
        try:
            form = FORMS[observations]
            patch = await _work(conversation, box, turns, seconds, tool_calls, form)
        except OutOfRoomError:
            await _submit(conversation, box, "")
            raise
        await _submit(conversation, box, patch)


async def _work(
    conversation: Conversation, box: Box, turns: int, seconds: float, tool_calls: str,
    form: ObservationForm,
) -> str:  # fmt: skip
    """Run what the replies ask for. What the submitting command printed after its first line."""
    wrong = 0
    for _ in range(turns):
        await conversation.reply()
        calls = conversation.calls
        error = _error(calls, tool_calls)
        wrong = wrong + 1 if error else 0
        if error:
            guidance = TEXTS["wrong"][tool_calls].format(error=error, count=len(calls))
            text = guidance + TEXTS["completed"][form.name]
            conversation.drop_reply(TEXTS["cut_off"] if conversation.cut_off else text)
            if wrong == MOST_WRONG:
                break
            continue
        results = [form.write(-1, "", "action was not executed")] * len(calls)
        submitted = None
        for number, call in enumerate(calls):
            results[number], submitted = await _run(box, call.arguments["command"], seconds, form)
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


async def _run(
    box: Box, command: str, seconds: float, form: ObservationForm
) -> tuple[str, str | None]:
    """What a command shows; and what it submits, if it does."""
    if "\0" in command:
        return form.write(-1, "", f"{FAILED}: embedded null byte"), None
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
        return form.write(-1, output, f"{FAILED}: {why}"), None
    first, _, rest = output.lstrip().partition("\n")
    submits = first.strip() == SUBMIT and result.status == 0
    return form.write(result.status, output), rest if submits else None


async def _submit(conversation: Conversation, box: Box, patch: str) -> None:
    """Submit a patch, or how the work folder differs. Of a diff that cannot be whole, what fits is
    submitted, and a line says what is left out.
    """
    if patch.strip():
        conversation.submit(patch)
        return
    diff, left_out = await box.fitting_diff()
    if left_out:
        log.warning("task %s: the submitted diff lacks %s", conversation.task.id, left_out)
    conversation.submit(diff)
