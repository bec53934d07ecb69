"""What can be wrong with a task, and the flaws that its text alone shows."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay.judge.kinds.find import kind_of
from assay.tasks.cases import ONE_ANSWER
from assay.types import Task


class Flaw(StrEnum):
    """One kind of finding. The first twelve drop a task from the output, the others only warn."""

    INVALID_ROW = "invalid_row"
    """The row is not a task; for example, it has no tests."""
    REFERENCE_FAILS = "reference_fails"
    """The task's own reference does not pass."""
    FLAKY = "flaky"
    """The reference passes once and fails once."""
    SET_ORDER = "set_order"
    """The reference passes under one hash seed and fails under another."""
    NOT_JUDGED = "not_judged"
    """The judge could not run a program: the task's setup fails, a check passes an object that
    cannot enter the sandbox or asks the program nothing, or the machine failed."""
    EMPTY_PASSES = "empty_passes"
    """A program that does nothing passes."""
    RAISE_PASSES = "raise_passes"
    """A program that only raises passes: the checks do not depend on the program."""
    CONSTANT_PASSES = "constant_passes"
    """A program that always returns the first test's answer passes."""
    ECHO_PASSES = "echo_passes"
    """A program that returns its first argument, or prints its input, passes."""
    ATTACK_PASSES = "attack_passes"
    """A program that cheats passes."""
    ANSWER_SHOWN = "answer_shown"
    """A repository's box shows the right change: in git, or as an installed release."""
    NEEDS_CHECKER = "needs_checker"
    """The prompt allows several answers, but the tests accept only one."""
    WEAK_CHECKS = "weak_checks"
    """Some checks pass for a program that only raises."""
    DUPLICATE = "duplicate"
    """An earlier task has the same prompt or the same checks."""
    NO_REFERENCE = "no_reference"
    """There is no reference to show that the task can be solved."""
    FORGEABLE = "forgeable"
    """A pass rests on the program's word: training pays such passes only with
    `judge.allow_forgeable`."""
    SLOW_REFERENCE = "slow_reference"
    """The reference uses more than a quarter of the CPU time limit."""


WARNINGS = frozenset([*Flaw][12:])
"""Flaws of a task that can still be trained on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One flaw of one task."""

    flaw: Flaw
    detail: str
    """One line of text."""


GIVE = r"\b(?:print|output|return|report|display|give|find)\w*"
SHOW = r"\b(?:print|output|return|report|display)\w*"
SEVERAL_ANSWERS = re.compile(
    rf"{GIVE}\s+(?:out\s+)?any(?:\s*[.,;)]|\s+(?:one\b|of\s+(?:them|those|these|the)\b"
    r"|(?:valid|such|possible|correct|suitable|optimal|solution|answer)\b))"
    r"|\bany\b[^.\n]{0,80}\b(?:accepted|acceptable)\b"
    rf"|{SHOW}\b[^.\n]{{0,60}}\bin\s+(?:any|arbitrary)\s+(?:order|case|register)\b"
    r"|\bif\s+(?:there\s+(?:are|is|exist)\s+)?(?:multiple|several|many|more\s+than\s+one)\s+(?:\w+\s+){0,2}?"
    r"(?:answer|solution|output)s?\b(?![^.\n]{0,90}\b(?:the\s+one|first|last|all|\w+est|minim\w+|maxim\w+)\b)",
    re.IGNORECASE,
)
"""Words that allow more than one answer, except where they say which one is wanted."""


def allows_several_answers(task: Task) -> str:
    """The words of the prompt that allow several answers; empty if there are none.

    Also empty for tasks with Python checks or a checker that the row names: those decide what they
    accept.
    """
    if task.checker not in ONE_ANSWER or any(kind_of(check).code(check) for check in task.checks):
        return ""
    match = SEVERAL_ANSWERS.search(task.prompt)
    return " ".join(match.group().split()) if match else ""


def inspect_texts(tasks: Sequence[Task]) -> list[list[Finding]]:
    """Findings for each task from its text, without running anything."""
    first: dict[Hashable, str] = {}
    return [list(_inspect_text(task, first)) for task in tasks]


def _inspect_text(task: Task, first: dict[Hashable, str]) -> Iterator[Finding]:
    """`first` maps prompts and checks to the id of the first task that has them; it is updated."""
    if task.reference is None:
        yield Finding(Flaw.NO_REFERENCE, "has no reference")
    if words := allows_several_answers(task):
        yield Finding(Flaw.NEEDS_CHECKER, f'the prompt says "{words}"')
    prompt, checks = " ".join(task.prompt.split()), (task.entry_point, task.setup, task.checks)
    earlier = {"prompt": first.setdefault(prompt, task.id)}
    if all(kind_of(check).identifies for check in task.checks):
        earlier["checks"] = first.setdefault(checks, task.id)
    for what, name in earlier.items():
        if name != task.id:
            yield Finding(Flaw.DUPLICATE, f"has the {what} of {name}")
            break
