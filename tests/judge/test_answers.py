"""Final answers: numbers are compared as they stand, formulas by a normal form."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.judge.answer_text import plain_number
from assay.judge.kinds import answers
from assay.judge.kinds.answers import run_of
from assay.languages import language_named
from assay.types import Answer, Execution, Task, Verdict

needs_maths = pytest.mark.skipif(not find_spec("math_verify"), reason="needs math-verify")
SAME = r"""
0.5 | \frac{1}{2}
x^2-1 | (x+1)(x-1)
5 | x=5
(3,\infty) | x > 3
[1,2] | 1 \le x \le 2
2x+3 | y = 2x+3
\sqrt{2} | 2^{1/2}
\sqrt2 | $\sqrt{2}$.
\left( 3, \frac{\pi}{2} \right) | (3, \pi/2)
1,2,3 | \{3, 2, 1\}
x=1, y=2 | y=2, x=1
x^2+y^2=4 | 8 = 2x^2 + 2y^2
y < 2x | 2x > y
1 | (\sqrt2+1)(\sqrt2-1)
\begin{pmatrix} 1 & 2 \\ 3 & 4\end{pmatrix} | \begin{bmatrix}1&2\\3&4\end{bmatrix}
\text{Evelyn} | Evelyn
no solution | \text{No solution}
5\text{ cm} | 5
5 | 5 \text{ cm}
90^\circ | 90
2+\sqrt{3}i | 2+i\sqrt3
(-\infty,1)\cup(2,\infty) | x < 1 \text{ or } x > 2
50\% | \frac{1}{2}
p - q | -q + p
"""
DIFFERENT = r"""
1,2 | (1,2)
[1,2] | (1,2)
(1,2] | [1,2]
(1,2) | (2,1)
x>3 | x\ge 3
y<2x | y\le 2x
p-q | q-p
x | y
x | \sqrt{x^2}
x=1, y=2 | x=2, y=1
10^{60} | 1000000000000000000000000000000000000000000000000000000000001
\frac13 | 0.333
\pi | 3.14159
0 | 10^{-50}
\text{Evelyn} | \text{Carla}
x=2 | x \ne 2
"""


def pairs(text: str) -> list[tuple[str, str]]:
    found = [line.split(" | ") for line in text.strip().splitlines()]
    return [(right, given) for right, given in found]


def question(answer: str, exact: bool = False) -> Task:
    return Task("q", "q", (Answer(answer, exact),), "", language="answer")


def judged(*asked: tuple[str, str], exact: bool = False) -> list[Execution]:
    return judge_all([Job(question(right, exact), given) for right, given in asked], slots=1)


@pytest.mark.long
@needs_maths
def test_two_ways_to_write_an_answer_are_the_same_and_two_answers_are_not() -> None:
    same, different = [*pairs(SAME), ("p - q", "p - q\n")], pairs(DIFFERENT)
    ended = judged(*same, *different)
    verdicts = [(pair, one.verdict) for pair, one in zip(same + different, ended, strict=True)]
    assert [pair for pair, said in verdicts[: len(same)] if said is not Verdict.PASS] == []
    assert [pair for pair, said in verdicts[len(same) :] if said is not Verdict.WRONG] == []
    assert ended[-1].detail == r"test 1: 'x \\ne 2' is not 'x=2'"


@pytest.mark.parametrize(
    ("right", "given"),
    [("18", "18.00"), ("18", "$18"), ("18", "18 dollars a day."), ("1,080", "1080"),
     ("1080", "1,080"), ("0.5", "1/2"), ("-3", r"\$-3"), ("10", "10%"), ("0.1", "10%"),
     ("10", r"10\%"), ("0.75", r"\frac{3}{4}"), (".5", "0.50"), ("25", "025"),
     ("7", r"\boxed{7}")],
)  # fmt: skip
def test_plain_numbers_are_compared_exactly_and_without_a_library(right: str, given: str) -> None:
    assert decision(right, given) is Verdict.PASS


@pytest.mark.parametrize(
    ("right", "given"),
    [("18", "18.01"), ("18", "-18"), ("18", "1 or 18"), ("18", "18, 19"), ("18", "10^18"),
     ("18", "18/0"), ("18", "\uff11\uff18"), ("18", "nan"), ("18", "1e1"), ("1080", "10,80"),
     ("10", "0.1%"), ("18", ""), ("18", "1" * 5000), ("0.3333333333", "1/3")],
)  # fmt: skip
def test_any_other_number_or_more_than_one_is_wrong(right: str, given: str) -> None:
    assert decision(right, given) is Verdict.WRONG


def decision(right: str, given: str) -> Verdict:
    """What is decided without a run."""
    decided = run_of(Answer(right, exact=True), given, language_named("answer")).decided
    assert decided is not None
    return decided.verdict


def test_a_number_passes_in_the_judge_and_a_reply_without_an_answer_has_no_program() -> None:
    task = question("1,080", exact=True)
    right, wrong, none = judge_all([Job(task, one) for one in ("$1080", "1081", None)], slots=1)
    assert right.proven
    assert right.wall_seconds == wrong.wall_seconds == 0.0, "no process runs"
    assert (wrong.verdict, wrong.detail) == (Verdict.WRONG, "'1081' is not '1,080'")
    assert none.verdict is Verdict.NO_CODE


def test_without_math_verify_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'assay\[maths\]'"):
        judged((r"\frac12", "0.5"))


def test_a_task_whose_exact_answer_is_no_number_is_refused() -> None:
    for answer in ("", "eighteen", "1 or 2"):
        with pytest.raises(DataError, match="no plain number"):
            judged((answer, "1"), exact=True)


def test_a_number_of_thousands_of_digits_is_no_plain_number() -> None:
    assert plain_number("9" * 201) is None
