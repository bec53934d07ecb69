"""An outside agent whose commands run in a box: its own process is outside, as in `program`, and
what its commands leave in the box is judged.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from assay import extract
from assay.environments import CallLimits, LocalConversation, environment
from assay.environments.box_commands import BoxCommands
from assay.environments.program import (
    AgentProcess,
    agent_folder,
    budget_of,
    prompt_of,
    require_calls,
    require_command,
    variables_of,
    words_of,
)
from assay.environments.work_box import OUTPUT_BYTES, judged_tree, last_diff, tree_box
from assay.files import write_atomically
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.types import Task

log = logging.getLogger(__name__)


@environment
async def program_with_box(
    conversation: LocalConversation,
    *,
    command: tuple[str, ...] | str = (),
    turns: PositiveInt = 50,
    tokens: PositiveInt | None = None,
    seconds: PositiveFloat = 900.0,
    command_seconds: PositiveFloat = 60.0,
    answer: str = "",
    paid_roots: Literal["first", "all"] = "first",
    at_once: PositiveInt = 128,
) -> None:
    """Run your own agent as `program` does, with a box for the commands of the model, each for up
    to `command_seconds`: the programs that ASSAY_BOX and ASSAY_DOCKER name run them there. The box
    has the task's repository, if it has one. The file `answer` in the box is judged; without it,
    how the repository has changed, or what the agent prints (docs/agents.md).
    """
    require_command(command)
    async with agent_folder() as folder:
        work, task_file = folder / "work", folder / "task.txt"
        work.mkdir()
        write_atomically(task_file, prompt_of(conversation.task))
        limits = CallLimits(turns, seconds, tokens, paid_roots, at_once)
        async with conversation.endpoint(limits) as endpoint, opened_box(conversation) as box:
            commands = BoxCommands(box, command_seconds)
            async with commands.serve(folder) as variables:
                variables |= variables_of(endpoint, task_file, work) | budget_of(limits)
                agent = AgentProcess(words_of(command), variables)
                endpoint.begin()  # not before its box is there
                status = await commands.beside(agent.run(work, seconds))
            require_calls(endpoint, status, agent.stderr, seconds)
            text = await answer_of(conversation.task, box, agent.stdout, answer)
    if text:
        conversation.submit(text)


@asynccontextmanager
async def opened_box(conversation: LocalConversation) -> AsyncIterator[Box]:
    """A box with the task's tree, or with an empty work folder."""
    if judged := judged_tree(conversation.task):
        async with tree_box(conversation, judged) as box:
            yield box
    else:
        async with agent_folder() as empty, conversation.judge.box(BoxSpec(empty)) as box:
            yield box


async def answer_of(task: Task, box: Box, printed: str, answer: str) -> str:
    """What is judged: the file `answer`, which is none where it cannot be read; without a name, the
    change of a repository, or the program in what the agent printed.
    """
    if answer:
        try:
            return (await box.read(answer, OUTPUT_BYTES)).decode("utf-8", "replace")
        except OSError as error:
            log.warning("task %s: its agent's answer cannot be read: %s", task.id, error)
            return ""
    if judged_tree(task):
        return await last_diff(task, box)
    return extract.program(task, printed) or ""
