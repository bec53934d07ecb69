"""Final answers: what a reply gives in the place of a program. Plain numbers are compared here, as
text; any other answer is brought into a normal form by a sandboxed process (judge/normal_form.py)
that does not know the right one.
"""

from __future__ import annotations

import re
from fractions import Fraction
from importlib.util import find_spec
from typing import TYPE_CHECKING

from assay.judge.checkers import shortened
from assay.judge.kinds.kind import Decision, Kind, ProgramRun
from assay.sandbox.program import MATHS
from assay.types import Answer, Verdict

if TYPE_CHECKING:
    from assay.languages import Language

FORM = "from assay.judge.normal_form import main\nmain()\n"
MARKUP = re.compile(r"\\?\$|\\[,;! ()\[\]]|\{(,)\}|\s")
NUMBER = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+")
PLAIN = re.compile(rf"([-+]?)({NUMBER.pattern})(?:/({NUMBER.pattern}))?(\\?%)?\.?")
FRACTION = re.compile(r"\\[dt]?frac\{([-+]?[0-9.]+)\}\{([0-9.]+)\}")
BOX = re.compile(r"\s*\\boxed\{([^{}]*)\}\s*\Z")
AROUND = re.compile(r"^\s*[a-zA-Z]\s*=|\\(?:text|mathrm|mbox)\s*\{[^{}]*\}\.?\s*$")
"""What may stand around a number: a letter that it is, and its unit."""
APART = re.compile(r"[0-9](?:\s*\\[dt]?frac|\s+(?![0-9]{3}(?:\D|\Z))[0-9]|\\?[;!]\s*[0-9])")
"""Digits that are no part of one number: of a mixed fraction, or after a space."""
OPERATORS = re.compile(r"[\\^!_(=<>*|~]")
LONG = 200
"""Characters; no plain number has more."""


def plain_number(text: str, anywhere: bool = False) -> tuple[Fraction, bool] | None:
    """A number that is written out in digits, and whether as a percentage; None for anything else.
    With `anywhere`, words may stand around the only number.
    """
    text = BOX.sub(r"\1", text)
    text = AROUND.sub("", text.replace("\N{MINUS SIGN}", "-"))
    if len(text) > LONG or APART.search(text):
        return None
    bare = MARKUP.sub(r"\1", FRACTION.sub(r"\1/\2", text))
    found = PLAIN.fullmatch(bare)
    words = anywhere and not OPERATORS.search(bare)
    if found is None and words and len(NUMBER.findall(text)) == 1:
        found = PLAIN.search(bare)
    if found is None:
        return None
    sign, over, under, percent = found.groups()
    above, below = (Fraction((one or "1").replace(",", "")) for one in (over, under))
    return ((-above if sign == "-" else above) / below, bool(percent)) if below else None


def same_number(one: tuple[Fraction, bool], other: tuple[Fraction, bool]) -> bool:
    """Whether two numbers are equal; 50% is the same as 50 and as 0.5."""
    values = [{value, value / 100 if percent else value} for value, percent in (one, other)]
    return one[0] == other[0] if one[1] == other[1] else bool(values[0] & values[1])


def run_of(check: Answer, program: str, _: Language) -> ProgramRun:
    """No run decides between plain numbers; else one prints the answer's normal form."""
    given, right = (plain_number(one, check.exact) for one in (program, check.answer))
    equal = program.strip() == check.answer.strip()
    if check.exact or equal or (given and right):
        same = same_number(given, right) if given and right else equal
        wrong = f"{shortened(program)} is not {shortened(check.answer)}"
        decided = Decision(Verdict.PASS, passed=1) if same else Decision(Verdict.WRONG, wrong)
        return ProgramRun(decided=decided)
    known = ProgramRun(FORM, check.answer, warm=MATHS)
    return ProgramRun(FORM, program, warm=MATHS, expected=known)


def count(check: Answer) -> int:
    """One. Raises ValueError where what compares is not installed, or where no answer is given."""
    if not check.exact and find_spec("math_verify") is None:
        raise ValueError(
            "a formula is the answer, which needs math-verify: pip install 'assay[maths]'"
        )
    if not check.answer.strip() or (check.exact and plain_number(check.answer, True) is None):
        raise ValueError(f"the answer {check.answer!r} is empty, or no plain number")
    return 1


ANSWERS: Kind[Answer] = Kind(
    field="answer",
    show=lambda check, task: f"The answer is {check.answer}",
    answer=lambda check, task: check.answer,
    run_of=run_of,
    count=count,
    identifies=False,
)
