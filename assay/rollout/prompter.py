"""Asks a model for programs: tasks to conversations, and conversations to tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from assay import prompts
from assay.config.generation import PromptSettings
from assay.environments import Environment
from assay.environments.single_turn import single_turn
from assay.errors import SettingsError
from assay.extract.call_formats import CallFormat, text_format
from assay.judge.kinds.find import demonstration_of
from assay.languages import language_named
from assay.policy.call_style import styled
from assay.policy.chat import Chat, as_fields, as_results
from assay.rollout.samples import dialogues
from assay.tasks.rows import warn_once
from assay.tools import Tool
from assay.types import Completion, Message, Sample, Task, ToolCall, Turn, as_dicts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prompter:
    """Makes the prompts of one model in one environment."""

    chat: Chat
    environment: Environment = single_turn
    settings: PromptSettings = prompts.DEFAULT
    call_format: CallFormat | None = field(init=False, default=None)
    """The format of its calls; None without tools."""

    def __post_init__(self) -> None:
        """Raises SettingsError for arguments that the chat template does not use, and for tools
        that it cannot show, or whose calls cannot be read.
        """
        for name in self.settings.chat_template_kwargs:
            if not self.chat.takes(name):
                raise SettingsError(
                    f"setting 'prompt.chat_template_kwargs.{name}': the model's chat template does"
                    " not use it; leave it out"
                )
        if tools := self.environment.tools:
            by_template = self.environment.tool_calls == "template"
            form = self._format_of_template(tools) if by_template else None
            object.__setattr__(self, "call_format", form or text_format(*tools))

    def _format_of_template(self, tools: Sequence[Tool]) -> CallFormat:
        try:
            return self.chat.call_format(tools, self._arguments())
        except SettingsError as error:
            why = f"setting 'environment.tool_calls' = 'template': {error}; or use 'text'"
            raise SettingsError(why) from None

    def _arguments(self, task: Task | None = None) -> dict[str, Any]:
        """What the chat template gets beside the messages: the tools of the environment, and of the
        task those that the environment has not.
        """
        ours = self.environment.tools if self.environment.tool_calls == "template" else ()
        schemas: list[Mapping[str, Any]] = [tool.schema() for tool in ours]
        names = {tool.name for tool in ours}
        others = task.tools if task else ()
        schemas += [tool for tool in others if tool["function"]["name"] not in names]
        if others and not self.chat.call_style.shows_tools:
            how = "chat template shows" if self.chat.has_template else "prompt of plain text has"
            warn_once(f"the model's {how} no tools: it never sees the 'tools' of the rows")
        return self.settings.chat_template_kwargs | ({"tools": schemas} if schemas else {})

    def conversation(self, task: Task, turns: Sequence[Turn] = ()) -> tuple[Message, ...]:
        """The messages up to the next reply."""
        instructions = self.environment.instructions(task) if task.checks else ""
        ask = prompts.messages if self.chat.has_template else prompts.plain
        template = self.settings.template or (self.environment.request if task.checks else "")
        settings = self.settings.model_copy(update={"template": template})
        messages = ask(task, instructions, settings)
        for turn in turns:
            reply = () if turn.is_dropped else (self._shown(turn),)
            messages = (*messages, *reply, *self.observations(task, turn))
        return messages

    def _shown(self, turn: Turn) -> Message:
        """An earlier reply as the chat template takes it: its text, or its calls alone where their
        results would be refused or dropped behind a text.
        """
        by_template = turn.results and self.environment.tool_calls == "template"
        if by_template and self.chat.call_style.results_need_calls:
            return Message("assistant", "", fields={"tool_calls": as_fields(turn.calls)})
        return self.chat.reply(turn)

    def observations(self, task: Task, turn: Turn) -> tuple[Message, ...]:
        """The messages of the environment after a turn: the result of each call, or a text."""
        if turn.results and self.environment.tool_calls == "template":
            fields = as_results(turn.calls)
            pairs = zip(turn.results, fields, strict=True)
            return tuple(Message("tool", result, fields=each) for result, each in pairs)
        text = turn.observation
        if not self.chat.has_template:
            text = prompts.text(task, text, self.settings.template)
        return (Message("user", text),)

    def prompt(self, task: Task, turns: Sequence[Turn] = ()) -> tuple[int, ...]:
        """[P] token ids of the conversation so far: those of the prompt and completion of the last
        turn that is still in it as they are, and what is shown after it.

        Where the chat template rewrites what came before, all is rendered again, and what follows
        is a sample of its own (rollout/samples.py).
        """
        staying = [number for number, turn in enumerate(turns) if not turn.is_dropped]
        if not staying:
            return self._encoded(task, self.chat.encode_prompt, self.conversation(task, turns))
        last, before = turns[staying[-1]], self.conversation(task, turns[: staying[-1]])
        reply = self._shown(last)
        after = [row for turn in turns[staying[-1] :] for row in self.observations(task, turn)]
        return self._encoded(task, self.chat.encode_next, last, before, reply, after)

    def calls(self, completion: Completion, stop: Sequence[str] = ()) -> tuple[ToolCall, ...]:
        """The tool calls of a completion; a string of `stop` that ended it belongs to it."""
        if self.call_format is None:
            return ()
        end = "" if completion.ended == "length" else "".join(stop[:1])
        return self.call_format.parse(completion.text + end, self.environment.tools)

    def written(self, call: ToolCall) -> str:
        """A reply that is a tool call."""
        return self.call_format.block(call) if self.call_format else ""

    def card(self, task: Task) -> str:
        """What `prompt.json` beside a checkpoint's weights says of the prompt, with one task's."""
        messages = styled(as_dicts(self.conversation(task)), self.chat.call_style)
        tools = self._arguments(task).get("tools", ())
        return prompts.card(task, messages, self.settings, self.chat.has_template, tools)

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

    def _encoded(self, task: Task, encode: Callable[..., T], *messages: object) -> T:
        """What `encode` makes of messages. Raises SettingsError that names the task."""
        try:
            return encode(*messages, self._arguments(task))
        except SettingsError as error:
            raise SettingsError(f"task {task.id!r}: {error}") from error

    def answers(self, task: Task) -> list[str]:
        """The task's demonstrations as replies, or its reference where there is none."""
        replies = [self._reply(task, answer) for answer in task.demonstrations]
        return replies or self.reference(task)

    def reference(self, task: Task) -> list[str]:
        """The task's reference as a reply; empty where it has none that a model can write."""
        program = demonstration_of(task)
        if not program:
            return []
        fenced = language_named(task.language).reply.format(program=program)
        return [self._reply(task, fenced or program.removeprefix(task.stub))]

    def _reply(self, task: Task, answer: str) -> str:
        fenced = "```" in answer or not language_named(task.language).is_code
        if not (fenced or not self.chat.has_template or not task.checks):
            answer = f"```{task.language}\n{task.stub}{answer.rstrip()}\n```"
        tag = self.settings.reasoning
        return prompts.in_tags(task, answer, tag) if tag else answer


def completion(text: str, tokens: tuple[int, ...]) -> Completion:
    """A demonstrated reply in the form of a sampled one."""
    return Completion(text, tokens, (0.0,) * len(tokens), "stop", (0,) * len(tokens))
