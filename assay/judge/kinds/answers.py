"""Final answers: what a reply gives in the place of a program. Plain numbers are compared here, as
text; any other answer is brought into a normal form by a sandboxed process (judge/normal_form.py)
that does not know the right one.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from assay.judge.answer_text import disagree, plain_number, reading, same_number, unnamed
from assay.judge.checkers import shortened
from assay.judge.kinds.kind import Decision, Kind, ProgramRun
from assay.sandbox.program import Pool
from assay.types import Answer, Task, Verdict

if TYPE_CHECKING:
    from assay.languages import Language

FORM = "from assay.judge.normal_form import main\nmain({}, {!r})\n"
MATHS = Pool("assay.judge.normal_form")
LONGEST = 5_000
"""Characters of an answer beyond four times those of the right one."""


def decided(same: bool, check: Answer, program: str) -> ProgramRun:
    """What needs no run."""
    wrong = f"{shortened(program)} is not {shortened(check.answer)}"
    decision = Decision(Verdict.PASS, passed=1) if same else Decision(Verdict.WRONG, wrong)
    return ProgramRun(decided=decision)


@lru_cache(maxsize=512)
def points_seed(answer: str) -> str:
    """What draws the points at which formulas are compared: nobody can know them who does not know
    the right answer, and whoever sees them cannot try many answers in the time of a run.
    """
    salt, text = b"points of assay's normal form", answer.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=2**13, r=8, p=1, dklen=16).hex()


class Answers(Kind[Answer], judges=Answer):
    """Each is compared as text, or as the normal form that a run prints."""

    identifies = False

    def run(self, check: Answer, program: str, language: Language) -> ProgramRun:
        """No run decides between plain numbers and letters of choices; else one prints the answer's
        normal form.
        """
        if program.strip() == check.answer.strip():
            return decided(True, check, program)
        if len(program) > LONGEST + 4 * len(check.answer):
            return decided(False, check, program)
        right, reply = reading(check.answer), reading(program)
        letters_differ = right.letter and reply.letter and right.letter != reply.letter
        empty = not (reply.body or reply.letter)
        if letters_differ or empty or disagree(right.unit, reply.unit):
            return decided(False, check, program)
        if right.letter == reply.letter and right.letter and not (right.body and reply.body):
            return decided(True, check, program)
        right_text, reply_text = unnamed(right.body or right.letter, reply.body or reply.letter)
        number, other = (plain_number(text, check.exact) for text in (right_text, reply_text))
        if check.exact or (number and other):
            same = number is not None and other is not None and same_number(number, other)
            return decided(same, check, program)
        source = FORM.format(check.ordered, points_seed(check.answer))
        as_maths = ProgramRun(source, right_text, pool=MATHS)
        return ProgramRun(source, reply_text, pool=MATHS, expected=as_maths)

    def count(self, check: Answer) -> int:
        """One. Raises ValueError where math-verify is not installed, or without an answer."""
        if not check.exact and find_spec("math_verify") is None:
            raise ValueError(
                "a formula as the answer needs math-verify: pip install -e '.[maths]' in assay's"
                " checkout"
            )
        number = check.exact and plain_number(unnamed(reading(check.answer).body, "")[0], True)
        if not check.answer.strip() or number is None:
            raise ValueError(f"the answer {check.answer!r} is empty, or no plain number")
        return 1

    def show(self, check: Answer, task: Task) -> str:
        """The right one."""
        return f"The answer is {check.answer}"

    def answer(self, check: Answer, task: Task) -> str:
        """The right one."""
        return check.answer
