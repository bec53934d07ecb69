"""Final answers: what a reply gives in the place of a program. Plain numbers are compared here, as
text; any other answer is brought into a normal form by a sandboxed process (judge/normal_form.py)
that does not know the right one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from functools import partial
from importlib.util import find_spec

from assay.bounded import bounded_cache
from assay.errors import NotInstalledError
from assay.judge.answer_text import disagree, plain_number, reading, same_number, unnamed
from assay.judge.checkers import shortened
from assay.judge.kinds.kind import Kind
from assay.judge.kinds.workbench import Workbench, ruled
from assay.judge.verdict import CHECKER
from assay.sandbox.program import Pool
from assay.types import Answer, Cause, Execution, Task, Verdict

FORM = "from assay.judge.normal_form import main\nmain({}, {!r})\n"
MATHS = Pool("assay.judge.normal_form")
LONGEST = 5_000
"""Characters of an answer beyond four times those of the right one."""


def decided(same: bool, right: str, reply: str) -> Execution:
    """How an answer ends that is the same as the right one, or not."""
    if same:
        return Execution(Verdict.PASS, 1, 1)
    return Execution(Verdict.WRONG, 0, 1, f"{shortened(reply)} is not {shortened(right)}")


@bounded_cache(512, 8)
def points_seed(answer: str) -> str:
    """What draws the points at which formulas are compared: nobody can know them who does not know
    the right answer, and whoever sees them cannot try many answers in the time of a run.
    """
    salt, text = b"points of assay's normal form", answer.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=2**13, r=8, p=1, dklen=16).hex()


def by_text(check: Answer, program: str) -> Execution | tuple[str, str]:
    """No run decides between plain numbers and letters of choices; else the right answer and the
    reply, of which the normal forms are to be compared.
    """
    if program.strip() == check.answer.strip():
        return decided(True, check.answer, program)
    if len(program) > LONGEST + 4 * len(check.answer):
        return decided(False, check.answer, program)
    right = reading(check.answer)
    reply = reading(program)
    letters_differ = right.letter and reply.letter and right.letter != reply.letter
    empty = not (reply.body or reply.letter)
    if letters_differ or empty or disagree(right.unit, reply.unit):
        return decided(False, check.answer, program)
    if right.letter == reply.letter and right.letter and not (right.body and reply.body):
        return decided(True, check.answer, program)
    right_text, reply_text = unnamed(right.body or right.letter, reply.body or reply.letter)
    number, other = (plain_number(text, check.exact) for text in (right_text, reply_text))
    if check.exact or (number and other):
        same = number is not None and other is not None and same_number(number, other)
        return decided(same, check.answer, program)
    return right_text, reply_text


async def compared(workbench: Workbench, check: Answer, right: str, reply: str) -> Execution:
    """Whether the normal forms of two texts are equal, each of which a process of its own prints:
    that of the reply is not told the right one.
    """
    source = FORM.format(check.ordered, points_seed(check.answer))
    ran = await workbench.run(source, reply, pool=MATHS)
    if ran.execution.verdict is not Verdict.PASS:
        return ran.execution
    form = await workbench.run_once(source, right, MATHS)
    if form.execution.verdict is Verdict.INFRA:
        return ruled(ran, form.execution)
    if form.execution.verdict is not Verdict.PASS:
        why = f"{CHECKER}the right answer: {form.execution.verdict} {form.execution.detail}"
        return ruled(ran, Execution(Verdict.UNJUDGED, 0, 1, why, cause=Cause.TASK))
    expected = form.result.stdout.decode("utf-8", "surrogateescape")
    execution = await workbench.compare(ran, expected, reply)
    if execution.verdict is not Verdict.WRONG:
        return execution
    return ruled(ran, decided(False, right, reply))


class Answers(Kind[Answer], judges=Answer):
    """Each is compared as text, or as the normal form that a run prints."""

    async def judge(
        self, workbench: Workbench, checks: Sequence[Answer], task: Task, program: str
    ) -> Execution:
        """What the texts decide comes first."""
        readings = [by_text(check, program) for check in checks]
        if len(readings) == 1 and isinstance(readings[0], Execution):
            return readings[0]
        order = sorted(range(len(readings)), key=lambda at: not isinstance(readings[at], Execution))

        async def test(at: int) -> Execution:
            texts = readings[at]
            if isinstance(texts, Execution):
                return texts
            return await compared(workbench, checks[at], *texts)

        return await workbench.in_turn({at: partial(test, at) for at in order})

    def same(self, check: Answer, task: Task) -> Hashable:
        """The question too: many have the answer 4."""
        return task.prompt, check

    def count(self, check: Answer) -> int:
        """One. Raises NotInstalledError without math-verify, ValueError without an answer."""
        if not check.exact and find_spec("math_verify") is None:
            raise NotInstalledError(
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
