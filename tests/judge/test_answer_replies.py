"""Answers that a reply gives in tags, in a word, with a reason, or after an introduction."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from assay.extract import program
from assay.judge import Job, judge_all
from assay.types import Answer, Task, Verdict

FORMS = ("{}", "#### {}", "The answer is {}.", "\\boxed{{{}}}", "<answer>{}</answer>")
"""Ways in which a reply gives an answer."""
SAME = [
    ("5", r"\boxed{\text{The answer is } 5}"), ("5", r"\boxed{The answer is 5.}"),
    (r"\frac12", r"\boxed{\text{Final answer: }\frac{1}{2}}"),
    ("1", "<final_answer>1</final_answer>"),
    ("A", "<solution>A</solution>"), ("A", "<solution>\nA\n</solution>"),
    ("12", "<solution>3*4=12. The answer is 12, since so.</solution>"),
    ("12", "<FINAL_ANSWER>12</FINAL_ANSWER>"), ("12", "<result>12 because 3*4=12</result>"),
    ("5", "<final_answer>\\boxed{5}</final_answer>"),
    ("3", "\\boxed{2} so far. <final_answer>3</final_answer>"),
    ("3", "<final_answer>2</final_answer> No: \\boxed{3}"),
    ("B", "B"), ("B", "**B**"), ("B", "(B)"), ("B", "B."), ("yes", "yes"), ("yes", "Yes."),
    ("no", "No!"), ("True", "true"), ("no solution", "No solution"), ("x-axis", "x-axis"),
    ("12", "The final answer is 12, since 3*4=12."), ("12", "The answer is 12 because 3*4=12."),
    ("12", "The answer is 12, so 13 is wrong."), ("B", "The correct option is B."),
    ("B", "The answer is (B), as A is wrong."), ("5", "<answer>The answer is 5</answer>"),
    ("12", "<answer>12, since 3*4=12</answer>"), ("B", "(B) 12"), ("B", "B) 12"), ("12", "B. 12"),
    ("12", "12 (3*4=12)"), ("12", "12; 3*4=12"), ("12", "The answer is 12 (3*4=12)."),
    ("12", "12 - since 3*4 = 12"), ("12", "12 (because 3*4=12)"), ("12", "12; since 3*4=12."),
    ("12", "<answer>12 (2*6 = 3*4 = 12)</answer>"), ("12", "The answer is 12; 10+2=12."),
    ("B", "B, since 3*4=12."), ("yes", "Yes, because 3 < 4."), ("C", "Option C"),
    ("13", "13, since 3*4=12"), ("13", "13 (since 3*4=12)"), ("13", "13 because 3*4=12."),
    ("12", "12 apples (3*4=12)"), ("12", "12 (3 * 4 = 12)."), ("12", "**12** (3*4=12)"),
    ("12", "x = 12 (3*4=12)"), ("12", "$12$ ($3*4=12$)"), ("12", "12 [3*(2+2)=12]"),
    ("1200", "1,200 (3*400=1,200)"), ("1/2", "1/2 (2/4=1/2)"), ("12", "12 (= 12)"),
    ("5", "5 (1 hour = 60 minutes)"), ("12", "12 (3 x 4 = 12.0)"),
    ("50", "50% (1/2 = 0.5)"), ("3", "3 hours (1 hour = 60 minutes)"),
    ("12", "The total is 12 kg (3*4=12 kg)."), ("12", "She bought 3 boxes (3*4=12)."),
    ("12", "So the total (3*4=12)"), ("12", "3*4 = 12"), ("12", "12 at (x=12)"),
    *[(right, form.format(answer)) for right, answer in (
        ("5", "5 (1 hour = 60 minutes)"), ("12", "12 (3*4=12)"), ("12", "12 (12)"),
        ("12", "12 (or 12.0)"), ("12", "12 apples (12)"), ("12", "12 (i.e. a dozen)"),
        ("12", "12 (twelve apples)"), ("24", "24 (twenty-four)"), ("5", "5 (five)"),
        ("12", "12 (months)"), ("12", "12 (in cm)"), ("1200", "1,200 (1200)"),
        ("50", "50% (0.5)"), ("12", "12 hours (720 minutes)"), ("3", "x = 3 (x = 3.0)"),
        ("1/2", "1/2 (0.5)"), ("0.5", "\\frac{1}{2} (or 0.5)"), ("1/2", "\\frac{1}{2} (50\\%)"),
        ("12", "12 (all 12 of them)"), ("12", "12 (exactly 12)"), ("12", "12 apples (12 in all)"),
        ("12", "12 (i)"), ("12", "12 (iii)"), ("12", "12 (a)"), ("12", "12 (*)"),
        ("12", "12 (see above)"), ("12", "12 (by the theorem)"), ("12", "12 (the only solution)"),
        ("12", "12 (from step 3)"), ("12", "12 (eq. 3)"), ("12", "12 (option B)"),
        ("12", "12 [final]"), ("24", "24 (two dozen)"), ("112", "112 (one hundred and twelve)"),
        ("2300000", "2300000 (two million three hundred thousand)"), ("12", "twelve (12)"),
        ("12", "12, as required"), ("12", "12 i.e. twelve"),
    ) for form in FORMS],
    ("12", "12 apples (i)"), ("12", "There are 12 apples (see above) in the box."),
    ("\\sqrt{2}", "$\\sqrt{2}$ (exact)"), ("\\sqrt{2}", "#### $\\sqrt{2}$ (see equation 3)"),
    ("12", "12 (\\text{cm})"), ("1/2", "It is $\\frac12$ (or $0.5$)."),
    ("5\\text{ cm}", "#### 5 cm (50 mm)"), ("12 years", "#### 12 (years)"),
    ("(3, 4)", "(3, 4)"), ("(1, 2]", "(1, 2]."), ("f(2)", "#### f(2)"), ("6.0", "#### 2 (3)"),
    ("(x+1)(x+2)", "#### (x+1) (x+2)"),
]  # fmt: skip
"""Right answers, and replies that give them."""
OTHER = [
    ("5", r"\boxed{\text{The answer is not } 5}"),
    ("5", r"\boxed{\text{The answer is either } 5 \text{ or } 6}"),
    ("1", "<final_answer>1</final_answer><final_answer>2</final_answer>"),
    ("2", "<final_answer>1</final_answer> <final_answer>2</final_answer>"),
    ("A", "<solution>A</solution>\n\nNo, <solution>B</solution>"),
    ("A", "<solution>A, B, C, D</solution>"),
    ("A", "<solution>A</solution>, <solution></solution>"),
    ("2", r"\boxed{2} <final_answer>3</final_answer>"), ("2", "<solution>2"),
    ("B", "A B C D"), ("B", "A, B, C, D"), ("B", "A or B"), ("B", "A\nB"), ("B", "Be"),
    ("A", "A. 1 B. 2 C. 3"), ("A", "(A) 1 (B) 2"), ("A", "B, since A. is wrong"), ("13", "C. 12"),
    ("yes", "No, because yes is wrong."), ("yes", "yes or no"), ("yes", "yes no"),
    ("yes", "I think"), ("no", "not"),
    ("12", "12 or 13"), ("12", "12 (or 13)"), ("12", "12; 13"), ("12", "12 - 3"),
    ("12", "12 (3*5=15)"), ("12", "12; x=13"), ("12", "12; 3*4=13"),
    ("12", "The answer is 12 (not 13)."), ("A", "a lot"), ("A", "b"), ("A", "a or b"), ("A", "a b"),
    ("12", "The final answer is 12 or 13, since 3*4=12."),
    ("12", "The answer is not 12, since 3*4=13."), ("12", "The answer is 13, since 3*4=12."),
    *[(right, f"{answer}{tail}") for right in ("12", "13") for answer, tail in (
        ("13", " (3*4=12)"), ("13", " (3 * 4 = 12)."), ("**13**", " (3*4=12)"),
        ("$13", " (3*4=12)"),
        ("13", "; 3*4=12"), ("13 apples", " (3*4=12)"), ("13 kg", " (3*4=12 kg)"),
        ("The total is 13", " (3*4=12)."), ("Total: 13 apples", " (3*4=12)"), ("13", " [3*4=12]"),
        ("x = 13", " (3*4=12)"), ("13", " (2*6=3*4=12)"), ("13", " (= 12)"), ("13.", " (3*4=12)"),
        ("$13$", " ($3*4=12$)"), ("13", " (3*(2+2)=12)"), ("-13", " (3*4=12)"),
        ("13", " (which is 3*4=12)"), ("The answer is 13", " (3*4=12)."),
        ("<answer>13", " (3*4=12)</answer>"),
    )],
    ("12", "13, since 3*4=12"), ("12", "13 because 3*4=12."), ("12", "13 (since 3*4=12)"),
    *[(right, form.format(answer)) for answer, *several in (
        ("13 (or 12)", "12", "13"), ("13 (12)", "12", "13"), ("13 [12]", "12", "13"),
        ("13 (not 12)", "12", "13"), ("13 apples (or 12 apples)", "12", "13"),
        ("13 (i.e. 12)", "12", "13"), ("-12 (12)", "12"), ("13, or 12", "12", "13"),
        ("13 (12 or 13)", "12", "13"), ("13 (not 13)", "13"), ("13 - or 12", "12", "13"),
        ("13 (3*4=12)", "12", "13"), ("x = 3 (or x = 5)", "3", "5"), ("(3, 4)", "3", "4"),
        ("(1, 2]", "1", "2"), ("f(2)", "2"), ("12 hours (720 minutes)", "720"),
        ("5 (million)", "5"), ("5 (mod 7)", "5", "7"), ("\\frac{1}{3} (or 0.5)", "0.5", "1/3"),
        ("7 (2 remain)", "2"), ("3 (x > 2)", "2", "3"),
        ("13 (twelve)", "12", "13"), ("13 (or twelve)", "12", "13"), ("13 [twelve]", "12", "13"),
        ("13 (a dozen)", "12", "13"), ("13, twelve", "12", "13"), ("13 - twelve", "12", "13"),
        ("twelve (13)", "12", "13"), ("120 (one hundred twenty-one)", "120", "121"),
        ("12 (or none)", "12"), ("12 (no solution)", "12"), ("12 (or infinity)", "12"),
        ("12, or none", "12"), ("12 or none", "12"), ("none (12)", "12"), ("12 (or more)", "12"),
        ("12 (undefined)", "12"), ("12 (negative)", "12"), ("12 (squared)", "12"), ("12 (x)", "12"),
        ("12 (two of them)", "2", "12"), ("12 (at least)", "12"), ("12 (thousand)", "12", "12000"),
    ) for right in several for form in FORMS],
    ("\\sqrt{2}", "$\\sqrt{2}$ (or none)"), ("x+1", "$x+1$ (i)"), ("B", "#### (B) (or (C))"),
    ("13", "13 (twelve)\nHope this helps."), ("13", "The total is 13 (twelve) apples."),
    ("12", "#### 12 (two dozen)"), ("12 months", "#### 12 (years)"), ("12", "The total is not 12."),
    ("5\\text{ cm}", "#### 5 cm (6 cm)"), ("4", "The point is (3, 4)."),
    ("no", "The answer is yes, because no."), ("A", "The correct option is B, as A is wrong."),
]  # fmt: skip
"""Right answers, and replies that give another, several or none."""


def question(right: str, exact: bool = False) -> Task:
    return Task("q", "q", (Answer(right, exact),), "", language="answer")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<solution>A</solution>", "A"), ("<final>1</final> and <final>2</final>", "1, 2"),
        ("<final>1</final>. No, <final>2</final>", "2"), ("<solution></solution>", None),
        ("<solution><final>7</final></solution>", "7"), ("<solution>7", None),
        ("Yes.", "Yes"), ("**B**", "B"), ("I do not know it.", None), ("A B C D", None),
        ("The answer is 12, since 3*4=12.", "12"),
    ],
)  # fmt: skip
def test_the_answer_of_a_reply_is_cut(reply: str, answer: str | None) -> None:
    assert program(question("5"), reply) == answer


def unexpected(exact: bool) -> list[tuple[str, str]]:
    """The pairs that pass and should not, or should and do not."""
    pairs = [pair for pair in SAME + OTHER if pair[0].isdecimal() or not exact]
    tasks = [(question(right, exact), reply) for right, reply in pairs]
    runs = judge_all([Job(task, program(task, reply)) for task, reply in tasks], slots=1)
    passes = [run.verdict is Verdict.PASS for run in runs]
    return [pair for pair, passed in zip(pairs, passes, strict=True) if passed != (pair in SAME)]


def test_a_number_is_right_whatever_stands_around_it() -> None:
    assert unexpected(exact=True) == []


@pytest.mark.long
@pytest.mark.skipif(not find_spec("math_verify"), reason="needs math-verify")
def test_replies_in_all_forms_are_right_and_others_are_not() -> None:
    assert unexpected(exact=False) == []
