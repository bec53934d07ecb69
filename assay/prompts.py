"""Tasks as models see them: messages for chat models, plain text for models that continue text."""

from __future__ import annotations

import re

from assay.types import Exchange, Message, Task


def messages(task: Task, instructions: str = "") -> tuple[Message, ...]:
    """The conversation that asks a chat model for a program in one fenced block; an environment's
    `instructions` come last.
    """
    after = instructions and f"\n\n{instructions}"
    answer = f"Answer with one ```{task.language} code block."
    if task.stub:
        request = (
            f"Complete this {task.language.capitalize()} code. {answer} It holds the whole program."
        )
        code = f"```{task.language}\n{task.stub.rstrip()}\n```"
        return (Message("user", f"{request}\n\n{code}{after}"),)
    request = f"Solve this task in {task.language.capitalize()}. {answer}{_kind_of_program(task)}"
    return (Message("user", f"{request}\n\n{task.prompt.rstrip()}{after}"),)


def plain(task: Task, instructions: str = "") -> tuple[Message, ...]:
    """What a base model continues, as the only message of its conversation."""
    return (Message("user", text(task, instructions)),)


def text(task: Task, instructions: str = "") -> str:
    """What a base model continues: the instructions as a comment, then the stub as it stands, or
    the prompt with a line end.
    """
    request = task.stub or (task.prompt if task.prompt.endswith("\n") else f"{task.prompt}\n")
    return "".join(f"# {line}\n" for line in instructions.splitlines()) + request


def _kind_of_program(task: Task) -> str:
    if isinstance(task.checks[0], Exchange):
        return " The program reads standard input and prints to standard output."
    if not task.entry_point or re.search(rf"\b{re.escape(task.entry_point)}\b", task.prompt):
        return ""
    return f" It defines `{task.entry_point}`."
