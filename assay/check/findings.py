"""What can be wrong with a task, and the flaws that its text alone shows."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay.judge.kinds.find import kind_of
from assay.tasks.cases import AS_JSON, ONE_ANSWER
from assay.tasks.tolerances import stated_tolerance
from assay.types import Exchange, Task


class Flaw(StrEnum):
    """One kind of finding. The first thirteen drop a task from the output, the others only warn."""

    INVALID_ROW = "invalid_row"
    """The row is not a task; for example, it has no tests."""
    REFERENCE_FAILS = "reference_fails"
    """The task's own reference does not pass."""
    FLAKY = "flaky"
    """The reference passes once and fails once."""
    SET_ORDER = "set_order"
    """The reference passes under one hash seed and fails under another."""
    NOT_JUDGED = "not_judged"
    """The machine failed: it could not run a program, or not search a box."""
    UNJUDGED = "unjudged"
    """The task cannot be judged: its row cannot be used, its setup fails, a check passes an object
    that cannot enter the sandbox, asks the program nothing or ends its own process."""
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
    """The prompt allows several answers, or a tolerance, but the tests accept only one."""
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


WARNINGS = frozenset([*Flaw][13:])
"""Flaws of a task that can still be trained on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One flaw of one task."""

    flaw: Flaw
    detail: str
    """One line of text."""


GIVE = r"\b(?:print|output|return|report|display|give|find)\w*"
SHOW = r"\b(?:print|output|return|report|display)\w*"
NOUN = (
    r"(?:(?:answer|solution|output|result|way|option|choice|variant)s?|possibilities"
    r"|(?:valid|possible|correct|optimal|suitable|acceptable)\s+\w+)\b"
)
SEVERAL = r"(?:multiple|several|many|more\s+than\s+one)"
WANTED = r"(?:the\s+one|first|last|all|\w+est|minim\w+|maxim\w+)\b"
UNLESS = (
    rf"(?![^.\n]{{0,90}}\b{WANTED})"
    rf"(?!\s*[.;]\s*(?:so\s+|then\s+|please\s+)?{GIVE}\b[^.\n]{{0,60}}\b{WANTED})"
)
"""Not where the same sentence, or the request after it, says which answer is wanted."""
YOU_CHOOSE = (
    r"\b(?:whichever|whatever|any(?:\s+one)?)\s+(?:\w+\s+)?(?:you\s+)?(?:like|want|wish|prefer|choose)\b"
    r"|\bof\s+your\s+(?:own\s+)?choice\b|\byou\s+(?:may|can|are\s+free\s+to)\s+(?:choose|pick|select)\s+"
    r"(?:any|whichever|freely|arbitrar\w+)"
)
SEVERAL_ANSWERS = re.compile(
    rf"{GIVE}\s+(?:out\s+)?any(?:\s*[.,;)]|\s+(?:one\b|of\s+(?:them|those|these|the)\b"
    r"|(?:valid|such|possible|correct|suitable|optimal|solution|answer)\b"
    r"|\w+\s+(?:that\s+(?:satisf|meet|fulfil)\w+|satisfying|meeting|fulfilling)))"
    rf"|{GIVE}\s+(?:out\s+)?one\s+(?:such|possible|valid|suitable)\b"
    rf"|{SHOW}\s+(?:out\s+)?one\s+of\s+(?:them|those|these)\b"
    rf"|{SHOW}\s+(?:out\s+)?(?:an|some)\s+arbitrary\b"
    r"|\bany\b[^.\n]{0,80}\b(?:accepted|acceptable)\b"
    r"|\bties?\b[^.\n]{0,40}\b(?:arbitrar\w+|(?:any|either)\s+(?:way|order))\b"
    rf"|{GIVE}\s+(?:out\s+)?(?:an\s+)?example\s+of\s+such\b"
    rf"|{SHOW}\b[^.\n]{{0,60}}\bin\s+(?:any|arbitrary)\s+(?:order|case|register)\b"
    r"|\b(?:may|can|could)\s+appear\s+in\s+(?:any|arbitrary)\s+order\b"
    r"|\border\s+(?:of\s+(?:the\s+)?(?:output|answer|result|line|element|pair|solution)\w*\s+)?"
    r"(?:does\s+not|doesn't|is\s+not|isn't)\s+(?:matter|important|relevant)\b"
    rf"|\bif\s+(?:there\s+(?:are|is|exist)\s+)?{SEVERAL}\s+(?:\w+\s+){{0,2}}?{NOUN}{UNLESS}"
    rf"|\bif\s+there\s+(?:are|is|exist)\s+{SEVERAL}(?=\s*[,;]){UNLESS}"
    rf"|\b(?:there\s+(?:may|might|can|could)\s+(?:be|exist)|there\s+exist)\s+{SEVERAL}\s+"
    rf"(?:\w+\s+){{0,2}}?(?:answer|solution|output)s?\b{UNLESS}"
    rf"|\b{SEVERAL}\s+(?:\w+\s+){{0,2}}?(?:answer|solution|output)s?\s+(?:are|is|may\s+be|can\s+be)\s+"
    rf"(?:possible|allowed|valid|correct|accepted|acceptable){UNLESS}"
    rf"|\b{SEVERAL}\s+(?:\w+\s+){{0,2}}?(?:answer|solution|output)s?\s+(?:may|might|can|could)?\s*exists?\b{UNLESS}"
    r"|\b(?:answer|solution|output)s?\s+(?:is|are|may|might|need)\s*(?:not|n't)\s+(?:be\s+)?(?:necessarily\s+)?"
    rf"unique\b{UNLESS}"
    rf"|{YOU_CHOOSE}",
    re.IGNORECASE,
)
"""Words that allow more than one answer, except where they say which one is wanted."""


def allows_several_answers(task: Task) -> str:
    """The words of the prompt that allow several answers, or any within a tolerance where the
    checker compares text; empty if there are none.

    Also empty for tasks with Python checks or a checker that the row names: those decide what they
    accept.
    """
    is_text = task.checker == "" and any(isinstance(check, Exchange) for check in task.checks)
    by_form = task.checker in ONE_ANSWER or task.checker.endswith(AS_JSON)
    of_one = by_form or task.checker.startswith("floats ")
    if not of_one or any(kind_of(check).code(check) for check in task.checks):
        return ""
    match = SEVERAL_ANSWERS.search(task.prompt)
    tolerance = stated_tolerance(task.prompt) if is_text else None
    words = match.group() if match else tolerance.words if tolerance else ""
    return " ".join(words.split())


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
    prompt = " ".join(task.prompt.split())
    checks = (kind_of(check).same(check, task) for check in task.checks)
    rules = task.entry_point, task.setup, *checks
    earlier = {
        "prompt": first.setdefault(prompt, task.id), "checks": first.setdefault(rules, task.id),
    }  # fmt: skip
    for what, name in earlier.items():
        if name != task.id:
            yield Finding(Flaw.DUPLICATE, f"has the {what} of {name}")
            break
