"""Tasks as models see them: messages for chat models, plain text for models that continue text."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from pprint import pformat
from typing import Any

from assay.config.generation import PromptSettings
from assay.errors import ModelError
from assay.judge.kinds.find import kind_of
from assay.languages import language_named
from assay.registry import one_line
from assay.types import Message, Task

COMPLETE = (
    "Complete this {dialect} code. Answer with one ```{language} code block. It holds {whole}.\n\n"
    "```{language}\n{stub}\n```"
)
"""The default template of a chat model's prompt for a task with a stub."""
WHOLE, PART = "the whole program", "all of this code, but no main function and no tests"
"""What is judged: in some languages, tests bring the main function."""
SOLVE = (
    "Solve this task in {dialect}. Answer with one ```{language} code block.{interface}\n\n{prompt}"
)
"""The default template of a chat model's prompt for any other task."""
REASON = (
    "First reason between <{tag}> and </{tag}>. Then write what is asked for between <answer> and"
    " </answer>."
)
"""What `prompt.reasoning` adds to a prompt."""
CARD = "prompt.json"
"""File beside a checkpoint's weights that describes its prompt."""
DEFAULT = PromptSettings()


def messages(
    task: Task, instructions: str = "", settings: PromptSettings = DEFAULT
) -> tuple[Message, ...]:
    """Returns the conversation that asks a chat model for a program in one fenced block. An
    environment's `instructions` come last.
    """
    asks = language_named(task.language).request or (COMPLETE if task.stub else SOLVE)
    default = asks if task.checks else ""
    template = settings.template or default
    request = _fill(template, task) if template else task.prompt
    messages = task.messages or (Message("user", request),)
    system: tuple[Message, ...] = ()
    if settings.system:
        system = (Message("system", settings.system),)
    if messages[0].role == "system":
        system, messages = messages[:1], messages[1:]
    examples = [
        message
        for prompt, answer in settings.examples
        for message in (Message("user", prompt), Message("assistant", answer, learned=False))
    ]
    if instructions := with_reasoning(instructions, settings):
        last = replace(messages[-1], content=f"{messages[-1].content}\n\n{instructions}")
        messages = (*messages[:-1], last)
    return (*system, *examples, *messages)


def plain(
    task: Task, instructions: str = "", settings: PromptSettings = DEFAULT
) -> tuple[Message, ...]:
    """Returns what a base model continues, as the only message: system prompt, examples and task,
    with an empty line between them. A task that is a conversation stays one, and each message
    begins on a new line.
    """
    if task.messages:
        return tuple(
            message
            if message.role == "assistant" or message.content.endswith("\n")
            else replace(message, content=f"{message.content}\n")
            for message in messages(task, instructions, settings)
        )
    before = [part for part in (settings.system, *map("".join, settings.examples)) if part]
    head = "".join(f"{part.rstrip()}\n\n" for part in before)
    instructions = with_reasoning(instructions, settings)
    return (Message("user", head + text(task, instructions, settings.template)),)


def with_reasoning(instructions: str, settings: PromptSettings) -> str:
    """Returns the instructions, and those to reason where the settings ask for that."""
    tag = settings.reasoning
    return "\n\n".join(filter(None, [instructions, tag and REASON.format(tag=tag)]))


def in_tags(task: Task, reply: str, tag: str) -> str:
    """Returns a reply in the tags. If its answer is cut from it, the reply is the reasoning. Code
    has no reasoning.
    """
    if "<answer>" in reply:
        return reply
    language = language_named(task.language)
    thought, answer = ("", reply) if language.is_code else (reply, language.cut(reply, False) or "")
    return f"<{tag}>\n{thought}\n</{tag}>\n<answer>\n{answer}\n</answer>"


def text(task: Task, instructions: str = "", template: str = "") -> str:
    """Returns the task for a base model. It has the instructions as a comment, then the filled
    template, or by default the stub as it stands, or else the prompt with a line end.
    """
    default = task.stub or (task.prompt if task.prompt.endswith("\n") else f"{task.prompt}\n")
    request = _fill(template, task) if template else default
    return "".join(f"# {line}\n" for line in instructions.splitlines()) + request


def card(
    task: Task, messages: Sequence[Mapping[str, Any]], settings: PromptSettings, chat: bool,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:  # fmt: skip
    """Returns what the file `prompt.json` of a checkpoint holds: its prompt settings and, for one
    task, the messages and the tools that it shows. `chat` says whether they go through the chat
    template.
    """
    fields = {
        "settings": settings.model_dump(), "chat": chat, "task": task.id,
        "messages": list(messages), **({"tools": list(tools)} if tools else {}),
    }  # fmt: skip
    return json.dumps(fields, indent=1) + "\n"


def settings_of(model: Path | None) -> PromptSettings:
    """Returns the prompt settings that a checkpoint was trained with. It returns the defaults for
    any other model, and for one that is no folder.

    Raises ModelError for a file of that name that is not assay's.
    """
    file = model / CARD if model else None
    if file is None or not file.is_file():
        return DEFAULT
    settings = _read(file)[1]
    if settings != DEFAULT:
        logging.getLogger(__name__).warning("the prompt settings are those of %s", file)
    return settings


def transformers_code(model: Path) -> str:
    """Returns Python that encodes the prompt of a checkpoint's card with transformers, mostly in
    lines of up to 80 columns.
    """
    fields, settings = _read(model / CARD)
    prompt = fields["messages"]
    arguments = "".join(
        f", {name}={value!r}" for name, value in settings.chat_template_kwargs.items()
    )
    if tools := fields.get("tools"):
        arguments += f",\n    tools={pformat(tools, width=70, sort_dicts=False)}"
    if fields["chat"]:
        text = (
            f"tokenizer.apply_chat_template(\n    {pformat(prompt, width=76, sort_dicts=False)},\n"
            f"    add_generation_prompt=True, tokenize=False{arguments})"
        )
    else:
        end = {"assistant": " + tokenizer.eos_token"}
        pieces = (
            pformat(message["content"], width=72) + end.get(message["role"], "")
            for message in prompt
        )
        text = " + ".join(pieces)
    special = ", add_special_tokens=False" if fields["chat"] else ""
    return (
        f"model = {str(model)!r}\n"
        "tokenizer = transformers.AutoTokenizer.from_pretrained(model)\n"
        f'text = {text}\ntokens = tokenizer(text{special})["input_ids"]'
    )


def _read(file: Path) -> tuple[dict[str, Any], PromptSettings]:
    try:
        fields = json.loads(file.read_text())
        return fields, PromptSettings.model_validate(fields["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{file} is not the prompt of a checkpoint of assay's ({one_line(error)}); move it away"
        ) from error


def _fill(template: str, task: Task) -> str:
    return template.format(
        prompt=task.prompt.rstrip(), stub=task.stub.rstrip(), entry_point=task.entry_point,
        language=task.language, Language=language_named(task.language).title,
        dialect=language_named(task.language).title_here(),
        interface=_interface(task),
        whole=PART if any(kind_of(check).started_by_tests for check in task.checks)
        and not language_named(task.language).warm else WHOLE,
    )  # fmt: skip


def _interface(task: Task) -> str:
    if task.checks and not (task.stub or task.entry_point):
        return kind_of(task.checks[0]).interface(task.checks[0])
    if not task.entry_point or re.search(rf"\b{re.escape(task.entry_point)}\b", task.prompt):
        return ""
    return f" It defines `{task.entry_point}`."
