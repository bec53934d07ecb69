"""Asks a model for programs: tasks to conversations, and conversations to tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay import prompts
from assay.config.generation import PromptSettings
from assay.environments import no_text
from assay.errors import SettingsError
from assay.languages import language_named
from assay.policy.chat import Chat
from assay.rollout.samples import dialogues
from assay.tasks.rows import warn_once
from assay.types import Completion, Message, Sample, Task, Turn


@dataclass(frozen=True, slots=True)
class Prompter:
    """Makes the prompts of one model in one environment."""

    chat: Chat
    instructions: Callable[[Task], str] = no_text
    """What the environment adds to a task's prompt (`Environment.instructions`)."""
    settings: PromptSettings = prompts.DEFAULT

    def __post_init__(self) -> None:
        """Raises SettingsError for arguments that the chat template does not use."""
        for name in self.settings.chat_template_kwargs:
            if not self.chat.takes(name):
                raise SettingsError(
                    f"setting 'prompt.chat_template_kwargs.{name}': the model's chat template does"
                    " not use it; leave it out"
                )

    def conversation(self, task: Task, turns: Sequence[Turn] = ()) -> tuple[Message, ...]:
        """The messages up to the next reply."""
        chat, instructions = self.chat.has_template, self.instructions(task) if task.checks else ""
        ask = prompts.messages if chat else prompts.plain
        messages = ask(task, instructions, self.settings)
        for turn in turns:
            shown = (
                turn.observation
                if chat
                else prompts.text(task, turn.observation, self.settings.template)
            )
            reply = Message("assistant", self.chat.reply(turn.completion))
            messages = (*messages, reply, Message("user", shown))
        return messages

    def prompt(self, task: Task, turns: Sequence[Turn] = ()) -> tuple[int, ...]:
        """[P] token ids of the conversation so far, rendered again from its messages.

        After a turn they may differ from the sampled tokens: a template may drop thoughts, and a
        text may have been sampled in other tokens. Then what follows is a sample of its own
        (rollout/samples.py).
        """
        tokens: tuple[int, ...] = self._encoded(
            task, self.chat.encode_prompt, self.conversation(task, turns)
        )
        return tokens

    def card(self, task: Task) -> str:
        """What `prompt.json` beside a checkpoint's weights says of the prompt, with one task's."""
        chat = self.chat.has_template
        return prompts.card(task, self.conversation(task), self.settings, chat)

    def stop(self, task: Task) -> tuple[str, ...]:
        """Strings that end a completion. A chat model ends its turns itself, and may use these
        strings inside its answer.
        """
        return () if self.chat.has_template else task.stop

    def samples(self, task: Task, *, last_only: bool = False) -> list[Sample]:
        """SFT samples of each demonstration, or of the reference where there is none; the prompt is
        masked, but for earlier replies of a conversation, unless `last_only`.
        """
        messages = self.conversation(task)
        earlier = [
            self.turn(messages[:at], message, task)
            for at, message in enumerate(messages)
            if message.role == "assistant" and message.learned and not last_only
        ]
        samples = []
        for answer in self.answers(task):
            reply = Message("assistant", answer, fields=task.demonstration_fields)
            rows = dialogues([*earlier, self.turn(messages, reply, task)], task.id)
            if len(rows) > 1:
                warn_once(
                    "later prompts change earlier replies: SFT makes each reply a sample of its own"
                )
            samples += rows
        return samples

    def turn(self, messages: Sequence[Message], reply: Message, task: Task) -> Turn:
        """A reply to messages as SFT learns it, in the tokens of the chat template's rendering."""
        prompt, tokens = self._encoded(task, self.chat.encode_turn, messages, reply)
        return Turn(prompt, completion(reply.content, tokens))

    def _encoded(self, task: Task, encode: Callable[..., Any], *messages: object) -> Any:
        """What `encode` makes of messages. Raises SettingsError that names the task."""
        try:
            return encode(*messages, self.settings.chat_template_kwargs)
        except SettingsError as error:
            raise SettingsError(f"task {task.id!r}: {error}") from error

    def answers(self, task: Task) -> list[str]:
        """The task's demonstrations as replies, or its reference where there is none."""
        given = [self._reply(task, answer) for answer in task.demonstrations]
        return given or self.reference(task)

    def reference(self, task: Task) -> list[str]:
        """The task's reference as a reply; empty where it has none."""
        if not task.reference:
            return []
        shown = language_named(task.language).reply.format(program=task.reference)
        return [self._reply(task, shown or task.reference.removeprefix(task.stub))]

    def _reply(self, task: Task, answer: str) -> str:
        fenced = "```" in answer or not language_named(task.language).is_code
        if not (fenced or not self.chat.has_template or not task.checks):
            answer = f"```{task.language}\n{task.stub}{answer.rstrip()}\n```"
        tag = self.settings.reasoning
        return prompts.in_tags(task, answer, tag) if tag else answer


def completion(text: str, tokens: tuple[int, ...]) -> Completion:
    """A demonstrated reply in the form of a sampled one."""
    return Completion(text, tokens, (0.0,) * len(tokens), "stop", (0,) * len(tokens))
