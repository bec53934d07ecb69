"""An agent's shell in a repository, or another work folder: the model calls `bash`, and tools of
MCP servers, sees what came of it, and in the end the change of the folder is judged. Limits and
texts are those of mini-swe-agent 2.4.6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from assay.environments import (
    Conversation,
    LocalConversation,
    OutOfRoomError,
    environment_with,
    repository_tests,
)
from assay.environments.mcp_client import McpError
from assay.environments.mcp_servers import (
    Commands,
    OpenServers,
    list_tools,
    reopen_servers,
    shown_files,
)
from assay.environments.shell_texts import FORMS, TEXTS, ObservationForm
from assay.environments.work_box import (
    NO_BYTECODE,
    OUTPUT_BYTES,
    judged_tree,
    last_diff,
    tree_box,
)
from assay.errors import DataError, SettingsError
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
    **NO_BYTECODE,
}  # fmt: skip
"""Of commands."""
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The first line of the output of the command that ends the work."""
MOST_WRONG = 3
"""Replies in a row without a call that can be run, after which the rollout ends."""
FAILED = "An error occurred while executing the command"
NO_ANSWER = "An error occurred while calling the tool"


def instructions(task: Task, tool_calls: str, mcp: Commands | None = None) -> str:
    """How to work and to submit."""
    use, form = TEXTS["use"]["tools" if mcp else tool_calls], TEXTS["instructions"]
    place = "repository" if repository_tests(task) else "folder"
    goal, result = TEXTS["goal"][place], TEXTS["result"][place]
    return str(form).format(goal=goal, result=result, use=use, submit=SUBMIT)


def missing(task: Task, mcp: Commands | None = None) -> str:
    """What a task lacks. Raises DataError for one whose box shows no files of MCP servers."""
    judged = judged_tree(task)
    if judged is None:
        return "a repository"
    kind, check = judged
    if mcp and kind.image(check):
        raise DataError(
            f"task {task.id}: a box with an image shows none of the files of environment.mcp; leave"
            " out its servers, or the tasks with images"
        )
    return ""


def server_tools(
    mcp: Commands | None, mcp_roots: Sequence[str], tool_calls: str
) -> tuple[Tool, ...]:
    """The tools of the MCP servers. Raises SettingsError for servers that cannot be used."""
    if mcp and tool_calls == "text":
        raise SettingsError(
            "setting 'environment.mcp' needs calls as the model's chat template writes them: leave"
            " out environment.tool_calls = 'text'"
        )
    tools = list_tools(mcp or {}, mcp_roots)
    if any(tool.name == BASH.name for tool in tools):
        raise SettingsError(
            "setting 'environment.mcp': a server has a tool 'bash', which is the shell's; leave the"
            " server out, or rename its tool"
        )
    return tools


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where the calls of a rollout run."""

    box: Box
    servers: OpenServers
    seconds: float
    form: ObservationForm


@environment_with(
    missing=missing, instructions=instructions, tools=(BASH,), request="{prompt}",
    more_tools=server_tools,
)  # fmt: skip
async def shell(
    conversation: LocalConversation,
    *,
    turns: PositiveInt = 250,
    seconds: PositiveFloat = 60.0,
    tool_calls: Literal["template", "text"] = "template",
    observations: Literal["xml", "json"] = "xml",
    mcp: dict[str, tuple[str, ...]] | None = None,
    mcp_roots: tuple[str, ...] = (),
) -> None:
    """Run each reply's commands in a box with the work folder, each for up to `seconds`, in at most
    `turns` replies. Commands stand in calls of the tool `bash` as the model's chat template writes
    them, or, if `tool_calls` is "text", in ```mswea_bash_command blocks. The `observations` have
    the form of mini-swe-agent's swebench.yaml, or of its mini.yaml ("json"). As there, a reply that
    cannot be used leaves the conversation. A repository without git history is one commit. `mcp`
    names servers of the Model Context Protocol by their commands, which run in the box: their tools
    are the model's too. The box shows them the folders `mcp_roots` (docs/tools.md).
    """
    judged = judged_tree(conversation.task)
    if missing(conversation.task, mcp) or judged is None:
        await conversation.reply()
        return
    commands = mcp or {}
    async with tree_box(conversation, judged, shown_files(commands, mcp_roots)) as box:
        servers = await reopen_servers(box, commands, conversation.tools)
        place = Workplace(box, servers, seconds, FORMS[observations])
        try:
            patch = await _work(conversation, place, turns, "tools" if commands else tool_calls)
        except OutOfRoomError:
            await _submit(conversation, box, "")
            raise
        await _submit(conversation, box, patch)


async def _work(conversation: Conversation, place: Workplace, turns: int, texts: str) -> str:
    """Run what the replies ask for. What the submitting command printed after its first line.
    texts: which of the texts say how calls are written.
    """
    wrong = 0
    for _ in range(turns):
        await conversation.reply()
        calls = conversation.calls
        error = _error(calls, texts)
        wrong = wrong + 1 if error else 0
        if error:
            guidance = TEXTS["wrong"][texts].format(error=error, count=len(calls))
            text = guidance + TEXTS["completed"][place.form.name]
            conversation.drop_reply(TEXTS["cut_off"] if conversation.cut_off else text)
            if wrong == MOST_WRONG:
                break
            continue
        results = [place.form.write(-1, "", "action was not executed")] * len(calls)
        submitted = None
        for number, call in enumerate(calls):
            if call.name == BASH.name:
                results[number], submitted = await _run(place, call.arguments["command"])
            else:
                results[number] = await _answer(place, call)
            if submitted is not None:
                break
        conversation.show_results(results)
        if submitted is not None:
            return submitted
    return ""


def _error(calls: Sequence[ToolCall], texts: str) -> str:
    """What is wrong with the calls of a reply; empty if they can be run."""
    if texts == "text" and (len(calls) != 1 or calls[0].detail):
        return f"Expected exactly 1 action, found {sum(not call.detail for call in calls)}."
    if not calls:
        return str(TEXTS["no_calls"])
    return next((call.detail for call in calls if call.detail), "")


async def _answer(place: Workplace, call: ToolCall) -> str:
    """What a tool of a server shows."""
    try:
        answer = await place.servers.call(call.name, call.arguments, place.seconds)
    except McpError as error:
        return place.form.write(-1, "", f"{NO_ANSWER}: {error}")
    return place.form.write(int(answer.is_error), answer.text)


async def _run(place: Workplace, command: str) -> tuple[str, str | None]:
    """What a command shows; and what it submits, if it does."""
    form, seconds = place.form, place.seconds
    if "\0" in command:
        return form.write(-1, "", f"{FAILED}: embedded null byte"), None
    command = encodable(command.strip())
    result = await place.box.run(
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
    """Submit a patch, or how the work folder differs."""
    conversation.submit(patch if patch.strip() else await last_diff(conversation.task, box))
