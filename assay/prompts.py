"""Tasks as models see them: messages for chat models, raw text for models that continue text."""

from __future__ import annotations

import re

from assay.types import Exchange, Message, Task


def messages(task: Task) -> tuple[Message, ...]:
    """The dialogue that asks a chat model for a program in one fenced block."""
    answer = f"Answer with one ```{task.language} code block."
    if task.stub:
        request = f"Complete this {task.language.capitalize()} code. {answer} It holds the whole program."
        return (Message("user", f"{request}\n\n```{task.language}\n{task.stub.rstrip()}\n```"),)
    request = f"Solve this task in {task.language.capitalize()}. {answer}{_what_it_is(task)}"
    return (Message("user", f"{request}\n\n{task.prompt.rstrip()}"),)


def text(task: Task) -> str:
    """What a base model continues: the stub as it stands, or the prompt with a line end."""
    if task.stub:
        return task.stub
    return task.prompt if task.prompt.endswith("\n") else f"{task.prompt}\n"


def text_after(task: Task, shown: str) -> str:
    """What a base model continues after a reply: what it is shown, as a comment, and the beginning once more."""
    return "".join(f"# {line}\n" for line in shown.splitlines()) + text(task)


def _what_it_is(task: Task) -> str:
    if isinstance(task.checks[0], Exchange):
        return " The program reads standard input and prints to standard output."
    if not task.entry_point or re.search(rf"\b{re.escape(task.entry_point)}\b", task.prompt):
        return ""
    return f" It defines `{task.entry_point}`."
