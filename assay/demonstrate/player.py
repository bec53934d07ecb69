"""Plays a script in the environment `shell`, before its commands and its judge, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from assay import prompts
from assay.config.generation import PromptSettings
from assay.demonstrate.script import Script, StepResult, UnfitScriptError
from assay.environments import Environment, OutOfRoomError
from assay.environments.shell import BASH
from assay.environments.shell_texts import FORMS
from assay.extract.call_formats import text_format
from assay.judge import LocalJudge
from assay.policy.chat import as_fields, as_results
from assay.types import Message, Task, ToolCall

TEXT = text_format(BASH)
"""The format of calls that are written as text."""


@dataclass(frozen=True, slots=True)
class Conversed:
    """A conversation that came to its end, and the change that it submits."""

    messages: tuple[Message, ...]
    program: str


def success_of(observations: str) -> str:
    """How what is shown of a command that succeeded begins, in observations of this form."""
    return FORMS[observations].write(0, "").partition("0")[0] + "0"


def prompt_of(task: Task, environment: Environment) -> tuple[Message, ...]:
    """The messages that ask a chat model for the change, as a rollout's do."""
    settings = PromptSettings(template=environment.request)
    return prompts.messages(task, environment.instructions(task), settings)


async def converse(
    task: Task, judge: LocalJudge, environment: Environment, script: Script
) -> Conversed:
    """Play a script to its end. Raises UnfitScriptError where a command fails that is to succeed,
    and what the environment raises.
    """
    conversation = PlayedConversation(task, judge, environment, script)
    with suppress(OutOfRoomError):
        await environment.run(conversation)
    return Conversed(tuple(conversation.messages), conversation.program)


class PlayedConversation:
    """A rollout of `shell` as its environment sees it, whose replies come from a script."""

    def __init__(
        self, task: Task, judge: LocalJudge, environment: Environment, script: Script
    ) -> None:
        self.task, self.judge = task, judge
        self.tools = environment.tools
        self.messages = list(prompt_of(task, environment))
        self.program = ""
        self.cut_off = False
        self.calls: Sequence[ToolCall] = ()
        self._script, self._by_template = script, environment.tool_calls == "template"
        self._success = success_of(environment.parameters["observations"])
        self._may_fail = False
        self._last: StepResult | None = None

    async def reply(self, stop: Sequence[str] = ()) -> str:
        """The script's next reply. Raises OutOfRoomError at its end."""
        try:
            step = self._script.send(self._last) if self._last else next(self._script)
        except StopIteration:
            raise OutOfRoomError from None
        self._may_fail = step.may_fail
        call = ToolCall(BASH.name, {"command": step.command})
        if self._by_template:
            self.calls, text = (call,), step.text
            fields = {"tool_calls": as_fields(self.calls)}
        else:
            text, fields = f"{step.text}\n\n{TEXT.block(call)}", {}
            self.calls = TEXT.parse(text, (BASH,))
        self.messages.append(Message("assistant", text, fields=fields))
        return text

    def show_results(self, results: Sequence[str], *, correct: bool = True) -> None:
        """Note what the call gave. Raises UnfitScriptError where the command was not to fail."""
        (text,) = results
        if self._by_template:
            (fields,) = as_results(self.calls)
            self.messages.append(Message("tool", text, fields=fields))
        else:
            self.messages.append(Message("user", text))
        self._last = StepResult(text, text.startswith(self._success))
        if not (self._last.succeeded or self._may_fail):
            raise UnfitScriptError(f"a command fails: {self.calls[0].arguments['command'][:200]}")

    def drop_reply(self, text: str) -> None:
        """Raises UnfitScriptError: the reply was no call."""
        raise UnfitScriptError(f"a reply cannot be read: {text[:200]}")

    def submit(self, program: str) -> None:
        """Set the change that is judged."""
        self.program = program
