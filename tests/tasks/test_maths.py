"""Questions with one answer: the sets' own solutions pass as replies, other rows' answers fail."""

from __future__ import annotations

import json
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from assay.check import ProgramRunner, check
from assay.errors import DataError
from assay.extract import program
from assay.judge import Job, judge_all
from assay.prompts import messages
from assay.tasks import load
from assay.types import Answer, Message, Task, Verdict

needs_maths = pytest.mark.skipif(not find_spec("math_verify"), reason="needs math-verify")
SETS = ("math", "aime", "nemo_gym_math")


def verdicts(pairs: list[tuple[Task, str]]) -> list[Verdict]:
    jobs = [Job(task, program(task, reply)) for task, reply in pairs]
    return [one.verdict for one in judge_all(jobs, slots=1)]


@pytest.mark.data("gsm8k")
@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.long)])
def test_each_solution_of_gsm8k_passes_and_the_next_rows_fails(
    public_data: Path, step: int
) -> None:
    tasks = load("gsm8k:test")
    assert len(tasks) == 1319
    some = tasks[::step]
    assert set(verdicts([(one, one.demonstrations[0]) for one in some])) == {Verdict.PASS}
    others = [
        (one, other.demonstrations[0])
        for one, other in pairwise(some)
        if one.reference != other.reference
    ]
    assert set(verdicts(others)) == {Verdict.WRONG}


@pytest.mark.data("gsm8k")
def test_a_solution_of_gsm8k_is_shown_without_what_it_tells_a_calculator(public_data: Path) -> None:
    (first,) = load("gsm8k:test", limit=1)
    assert first.id == "gsm8k/test/line_1"
    assert first.checks == (Answer("18", exact=True),)
    assert first.demonstrations[0].startswith("Janet sells 16 - 3 - 4 = 9 duck eggs a day.\n")
    assert first.demonstrations[0].endswith("\n#### 18")
    assert len(load("gsm8k:train")) == 7473


@pytest.mark.data("math", "nemo_gym")
@pytest.mark.long
@needs_maths
def test_each_answer_of_a_set_passes_in_a_box_and_in_a_sentence_and_the_next_rows_fails(
    public_data: Path,
) -> None:
    tasks = [task for spec in SETS for task in load(spec)]
    assert [len(load(spec)) for spec in SETS] == [10, 5, 5]
    boxed = [(one, rf"So it is \boxed{{{one.reference}}}.") for one in tasks]
    said = [(one, f"The answer is ${one.reference}$.") for one in tasks]
    others = [(one, f"#### {other.reference}") for one, other in pairwise(tasks)]
    found = verdicts(boxed + said + others)
    assert set(found[:40]) == {Verdict.PASS}
    assert set(found[40:]) == {Verdict.WRONG}


@pytest.mark.data("math", "nemo_gym")
def test_a_question_asks_for_a_box_unless_its_row_has_a_dialogue(public_data: Path) -> None:
    (first,), (row,) = load("math", limit=1), load("nemo_gym_math", limit=1)
    (asked,) = messages(first)
    assert asked.content == f"{first.prompt}\n\nPut the final answer in \\boxed{{}}."
    (told,) = messages(row)
    assert told.content.startswith("Solve the following math problem. Make sure to put")
    assert isinstance(told, Message)


@pytest.mark.data("gsm8k")
@pytest.mark.long
def test_questions_with_equal_answers_are_no_duplicates(public_data: Path) -> None:
    reports = check("gsm8k:test", limit=40, runner=ProgramRunner(slots=1))
    assert [list(report.findings) for report in reports] == [[]] * 40


def test_rows_of_ones_own_have_an_expected_answer(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    half = {"id": "half", "prompt": "1/2 as a decimal?", "expected_answer": "0.5"}
    file.write_text(f"{json.dumps(half)}\n{json.dumps({**half, 'id': 2, 'expected_answer': 0.5})}")
    task, number = load(str(file))
    assert number.checks == task.checks
    assert (task.language, task.reference, task.checks) == ("answer", "0.5", (Answer("0.5"),))


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("math", {"problem": "1 + 1?", "answer": 2}),
        ("nemo_gym_math", {"question": "1 + 1?", "expected_answer": 2}),
    ],
)
def test_an_answer_may_be_a_number(tmp_path: Path, name: str, row: dict[str, Any]) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (task,) = load(f"{name}:{tmp_path}/rows.jsonl")
    assert task.checks == (Answer("2"),)


@pytest.mark.parametrize(
    ("asked", "ordered"),
    [("List them in increasing order.", True), ("Order them from least to greatest.", True),
     ("Find all roots, separated by commas.", False), ("How many orders are there?", False)],
)  # fmt: skip
def test_the_order_of_a_list_counts_where_the_question_asks_for_one(
    tmp_path: Path, asked: str, ordered: bool
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"id": "a", "prompt": asked, "expected_answer": "1, 2"}))
    (task,) = load(str(file))
    assert task.checks == (Answer("1, 2", ordered=ordered),)


@pytest.mark.parametrize(
    ("more", "why"),
    [({"tests": ["assert f() == 1"]}, "'expected_answer' beside tests; make it two rows"),
     ({"language": "rust"}, "'expected_answer', but in rust; leave the language out")],
)  # fmt: skip
def test_an_answer_beside_tests_or_in_a_language_is_refused_and_neither_is_left_out(
    tmp_path: Path, more: dict[str, object], why: str
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"id": "both", "prompt": "?", "expected_answer": "1"} | more))
    with pytest.raises(DataError, match=why):
        load(str(file))


@pytest.mark.parametrize(
    ("spec", "row", "why"),
    [
        (
            "gsm8k",
            {"question": "?", "answer": "4"},
            "has no line '#### NUMBER'; add it, or write 'prompt' and 'expected_answer'",
        ),
        ("math", {"problem": "?"}, "'answer' is missing"),
        ("nemo_gym_math", {"question": "?", "answer": "4"}, "'expected_answer' is missing"),
    ],
)
def test_a_row_without_an_answer_is_refused(
    tmp_path: Path, spec: str, row: dict[str, str], why: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(DataError, match=why):
        load(f"{spec}:{file}")
