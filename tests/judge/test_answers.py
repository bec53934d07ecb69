"""Final answers: numbers are compared as they stand, formulas by a normal form."""

from __future__ import annotations

import asyncio
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.judge.answer_text import plain_number
from assay.judge.kinds import answers
from assay.judge.kinds.answers import Answers, by_text, points_seed
from assay.types import Answer, Cause, Execution, Task, Verdict
from tests.judge.scripted_bench import ScriptedBench

needs_maths = pytest.mark.skipif(not find_spec("math_verify"), reason="needs math-verify")


def pairs(section: str) -> list[tuple[str, str]]:
    """Right answers and what replies give; a line end within one is written as its symbol."""
    text = Path(__file__).with_name("answer_pairs.txt").read_text()
    lines = text.partition(f"# {section}\n")[2].partition("\n# ")[0].strip("\n").split("\n")
    found = [line.replace("\u23ce", "\n").split(" | ") for line in lines]
    return [(right, given) for right, given in found]


def question(answer: str, exact: bool = False, ordered: bool = False) -> Task:
    return Task("q", "q", (Answer(answer, exact, ordered),), "", language="answer")


def judged(*asked: tuple[str, str], exact: bool = False, ordered: bool = False) -> list[Execution]:
    jobs = [Job(question(right, exact, ordered), given) for right, given in asked]
    return judge_all(jobs, slots=1)


@pytest.mark.long
@needs_maths
@pytest.mark.parametrize(
    ("same", "different", "ordered"),
    [("same", "different", False), ("same order", "other order", True)],
    ids=["in any order", "in the order of a list"],
)
def test_two_ways_to_write_an_answer_are_the_same_and_two_answers_are_not(
    same: str, different: str, ordered: bool
) -> None:
    right = [(pair, Verdict.PASS) for pair in [*pairs(same), ("p - q", "p - q\n")]]
    wrong = [(pair, Verdict.WRONG) for pair in pairs(different)]
    ended = judged(*(pair for pair, _ in right + wrong), ordered=ordered)
    both = zip(right + wrong, ended, strict=True)
    assert [(pair, one) for (pair, verdict), one in both if one.verdict is not verdict] == []


@pytest.mark.parametrize(("right", "given"), pairs("same number"))
def test_a_number_counts_with_what_is_said_around_it(right: str, given: str) -> None:
    assert decision(right, given) is Verdict.PASS


@pytest.mark.parametrize(("right", "given"), pairs("other number"))
def test_a_number_does_not_count_where_what_stands_around_it_changes_it(
    right: str, given: str
) -> None:
    assert decision(right, given) is Verdict.WRONG


def test_a_failure_says_what_is_not_what() -> None:
    wrong = Execution(Verdict.WRONG, 0, 1, "'x=2' is not '1'")
    assert by_text(Answer("1"), "x=2") == wrong


def test_the_points_of_a_formula_follow_from_the_right_answer_alone() -> None:
    seeds = {right: points_seed(right) for right in ("p-q", "p+q")}
    assert len(set(seeds.values())) == 2
    bench = ScriptedBench("answer")
    for reply in ("2p", "q"):
        asyncio.run(Answers().judge(bench, [Answer("p-q")], question("p-q"), reply))
    assert seeds["p-q"] in bench.runs[0].source
    assert len({asked.source for asked in bench.runs}) == 1


@needs_maths
def test_a_polynomial_that_vanishes_at_the_points_of_one_answer_does_not_at_anothers() -> None:
    normal_form = importlib.import_module("assay.judge.normal_form")
    roots = [normal_form.Form(False, "known").place("x", at, *signs)
             for at, signs in enumerate(normal_form.RANGES)]  # fmt: skip
    zero = "".join(f"(x-({root.p})/{root.q})" for root in roots)
    other = f"x+{zero}"
    assert normal_form.normal_form(other, seed="known") == normal_form.normal_form(
        "x", seed="known"
    )
    assert normal_form.normal_form(other, seed="p-q") != normal_form.normal_form("x", seed="p-q")


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
    decided = by_text(Answer(right, exact=True), given)
    assert isinstance(decided, Execution)
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
    with pytest.raises(DataError, match=r"pip install -e '\.\[maths\]'"):
        judged((r"\frac12", "0.5"))


def test_a_task_whose_exact_answer_is_no_number_is_refused() -> None:
    for answer in ("", "eighteen", "1 or 2"):
        (refused,) = judged((answer, "1"), exact=True)
        assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, Cause.TASK)


def test_a_number_of_thousands_of_digits_is_no_plain_number() -> None:
    assert plain_number("9" * 201) is None
