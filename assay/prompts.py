"""Tasks as models see them: messages for chat models, raw text for models that continue text."""

from __future__ import annotations

import re

from assay.types import Exchange, Message, Task


def messages(task: Task, told: str = "") -> tuple[Message, ...]:
    """The dialogue that asks a chat model for a program in one fenced block, what it is `told` with
    that behind it.
    """
    told = told and f"\n\n{told}"
    answer = f"Answer with one ```{task.language} code block."
    if task.stub:
        request = (
            f"Complete this {task.language.capitalize()} code. {answer} It holds the whole program."
        )
        return (
            Message("user", f"{request}\n\n```{task.language}\n{task.stub.rstrip()}\n```{told}"),
        )
    request = f"Solve this task in {task.language.capitalize()}. {answer}{_what_it_is(task)}"
    return (Message("user", f"{request}\n\n{task.prompt.rstrip()}{told}"),)


def text(task: Task, told: str = "") -> str:
    """What a base model continues: what it is `told` as a comment, the stub as it stands or the
    prompt with its end.
    """
    asked = task.stub or (task.prompt if task.prompt.endswith("\n") else f"{task.prompt}\n")
    return "".join(f"# {line}\n" for line in told.splitlines()) + asked


def _what_it_is(task: Task) -> str:
    if isinstance(task.checks[0], Exchange):
        return " The program reads standard input and prints to standard output."
    if not task.entry_point or re.search(rf"\b{re.escape(task.entry_point)}\b", task.prompt):
        return ""
    return f" It defines `{task.entry_point}`."
