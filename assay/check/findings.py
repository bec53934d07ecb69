"""What may be wrong with a task, and what its text alone tells."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay.types import Check, Task


class Flaw(StrEnum):
    """One kind of finding; the first ten take a task out of the filtered file, the others are
    told.
    """

    UNUSABLE = "unusable"
    """The row is no task: it has no tests, say."""
    REFERENCE_FAILS = "reference_fails"
    """The task's own reference does not pass."""
    FLAKY = "flaky"
    """The reference passes one time and not the other."""
    UNJUDGED = "unjudged"
    """A program could not be judged: the task's setup fails, a check cannot cross the wall, or the
    machine failed."""
    EMPTY_PASSES = "empty_passes"
    """A program passes that does nothing."""
    RAISE_PASSES = "raise_passes"
    """A program passes that only raises: the checks do not depend on it."""
    CONSTANT_PASSES = "constant_passes"
    """A program passes that gives the first test's answer, whatever it is asked."""
    ECHO_PASSES = "echo_passes"
    """A program passes that gives back its first argument, or what it reads."""
    ATTACK_PASSES = "attack_passes"
    """A program passes that cheats."""
    NEEDS_CHECKER = "needs_checker"
    """The prompt allows several answers, and the tests know one."""
    IDLE_CHECKS = "idle_checks"
    """Some checks hold for a program that only raises."""
    DUPLICATE = "duplicate"
    """An earlier task has the same prompt, or the same checks."""
    UNPROVEN = "unproven"
    """There is no reference to prove that the task can be solved."""
    SLOW_REFERENCE = "slow_reference"
    """The reference uses more than a quarter of the CPU time allowed."""


TOLD = frozenset((Flaw.IDLE_CHECKS, Flaw.DUPLICATE, Flaw.UNPROVEN, Flaw.SLOW_REFERENCE))
"""Flaws of a task that can still be trained on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One flaw of one task."""

    flaw: Flaw
    detail: str
    """One line for people."""


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
"""Words that allow more than one answer; not those that say which of several is meant."""


def allows_several_answers(task: Task) -> str:
    """The words of the prompt that do, where the tests compare with one answer; else empty.

    A task of Python checks decides itself what it accepts, and one with a checker has what it
    needs.
    """
    if task.checker or any(isinstance(check, Check) for check in task.checks):
        return ""
    found = SEVERAL_ANSWERS.search(task.prompt)
    return " ".join(found.group().split()) if found else ""


def read(tasks: Sequence[Task]) -> list[list[Finding]]:
    """What the tasks say of themselves: findings for each, without running anything."""
    first: dict[Hashable, str] = {}
    return [list(_read(task, first)) for task in tasks]


def _read(task: Task, first: dict[Hashable, str]) -> Iterator[Finding]:
    """`first` has, by prompts and by checks, the first task with them, and gets this one's."""
    if task.reference is None:
        yield Finding(Flaw.UNPROVEN, "has no reference")
    if words := allows_several_answers(task):
        yield Finding(Flaw.NEEDS_CHECKER, f'the prompt says "{words}"')
    prompt, checks = " ".join(task.prompt.split()), (task.entry_point, task.setup, task.checks)
    earlier = {
        "prompt": first.setdefault(prompt, task.id),
        "checks": first.setdefault(checks, task.id),
    }
    if repeated := [
        f"has the {what} of {name}" for what, name in earlier.items() if name != task.id
    ]:
        yield Finding(Flaw.DUPLICATE, repeated[0])
