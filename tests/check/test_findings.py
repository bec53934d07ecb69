"""Findings from a task's text: several allowed answers, duplicates, and the first answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.check.attacks import lazy_programs
from assay.check.findings import Flaw, allows_several_answers, inspect_texts
from assay.tasks.cases import EQUAL, Cases, task_of_cases
from assay.types import Answer, Call, Check, Exchange, Task

CALLS = (Call("[1]", "2"),)


def asks(prompt: str, checker: str = "") -> Task:
    return Task("t", prompt, CALLS, "f", checker=checker, reference="")


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("If there are several possible answers, print any of them.",
        "If there are several possible answers"),
        ("Output a number; if several fit, output any.", "output any."),
        ("In the second line, print any valid sequence.", "print any valid"),
        ("If there are many such sequences, any of them will be accepted.",
        "any of them will be accepted"),
        ("any sequence of length at most $9$ will be accepted",
        "any sequence of length at most $9$ will be accepted"),
        ("Indices could be printed in any order.", "printed in any order"),
        ("You can print each letter in any case (upper or lower).",
        "print each letter in any case"),
        ("Return the\n  pairs in arbitrary order.", ""),
        ("Return the pairs in arbitrary\n  order.", "Return the pairs in arbitrary order"),
        ("If there are multiple answers, choose as you like.", "If there are multiple answers"),
        ("If there are multiple answers, return the smallest one.", ""),
        ("You are given an array of ages, in any order.", ""),
        ("Return True if there are any two equal numbers.", ""),
        ("From any city, you can reach any other city.", ""),
        ("If there are multiple test cases, read them all.", ""),
        ("Find one such array.", "Find one such"),
        ("Print one of them.", "Print one of them"),
        ("Print whichever you like.", "whichever you like"),
        ("Ties may be broken arbitrarily.", "Ties may be broken arbitrarily"),
        ("Break a tie in either way.", "tie in either way"),
        ("Output one possible arrangement.", "Output one possible"),
        ("Give an example of such a number.", "Give an example of such"),
        ("You may choose any.", "You may choose any"),
        ("Output a pair of your choice.", "of your choice"),
        ("Multiple answers are possible.", "Multiple answers are possible"),
        ("Several solutions may exist; the grader takes each.", "Several solutions may exist"),
        ("There may be more than one valid answer.", "There may be more than one valid answer"),
        ("The answer is not unique.", "answer is not unique"),
        ("The solution isn't necessarily unique.", "solution isn't necessarily unique"),
        ("If there are several ways, any is fine.", "If there are several ways"),
        ("If there are several, print one.", "If there are several"),
        ("The order of the output does not matter.", "order of the output does not matter"),
        ("The pairs may appear in any order.", "may appear in any order"),
        ("Print any array that satisfies this.", "Print any array that satisfies"),
        ("Output an arbitrary one.", "Output an arbitrary"),
        ("Multiple answers are possible. Print the smallest one.", ""),
        ("There may be multiple answers; output the lexicographically smallest.", ""),
        ("If there are several ways, print the last.", ""),
        ("If there is exactly one such number, print it.", ""),
        ("The edges are given in any order.", ""),
        ("The answer is unique.", ""),
        ("Print the number of solutions.", ""),
        ("Compute how many answers there are.", ""),
        ("You can choose the first element only.", ""),
    ],
)  # fmt: skip
def test_only_words_that_allow_several_answers_match(prompt: str, words: str) -> None:
    assert allows_several_answers(asks(prompt)) == words


def test_a_tolerance_that_text_is_not_compared_with_needs_a_checker() -> None:
    prompt = "The absolute or relative error must not exceed 1e-6."
    task = Task("t", prompt, (Exchange("1", "1/3"),), "", reference="")
    assert allows_several_answers(task) == "absolute or relative error must not exceed 1e-6"
    assert not allows_several_answers(replace(task, checker="floats"))
    assert allows_several_answers(replace(task, prompt="Print any of them.", checker="floats 1e-4"))
    assert not allows_several_answers(asks(prompt))  # calls have a tolerance of their own


def test_a_task_with_python_checks_or_a_checker_needs_none() -> None:
    prompt = "Print any of them."
    assert allows_several_answers(asks(prompt))
    assert not allows_several_answers(asks(prompt, checker="tokens"))
    assert not allows_several_answers(Task("t", prompt, (Check("assert f(1) == 2"),), "f"))
    assert allows_several_answers(Task("t", prompt, (Exchange("1", "2"),), ""))


def test_a_checker_that_the_form_of_a_row_chooses_accepts_one_answer() -> None:
    prompt = "Print any of them."
    calls = Cases([[1]], [2], is_function=True, name="f")
    cases = (Cases(["1"], ["0.5"]), calls, replace(calls, checker=EQUAL))
    for task in (task_of_cases("t", prompt, some) for some in cases):
        assert task.checker
        assert allows_several_answers(task)


def test_a_duplicate_names_the_first_such_task_and_a_missing_reference_is_a_finding() -> None:
    tasks = [
        Task("a", "Add  one.", CALLS, "f", reference=""),
        Task("b", "Add\none. ", (Call("[2]", "3"),), "f", reference=""),
        Task("c", "Increment.", CALLS, "f", reference=""),
        Task("d", "Increment too.", CALLS, "g"),
    ]
    found = [
        {finding.flaw: finding.detail for finding in findings} for findings in inspect_texts(tasks)
    ]
    assert found == [
        {},
        {Flaw.DUPLICATE: "has the prompt of a"},
        {Flaw.DUPLICATE: "has the checks of a"},
        {Flaw.NO_REFERENCE: "has no reference"},
    ]


def test_questions_with_one_answer_are_different_tasks_unless_they_ask_the_same() -> None:
    four, exact = (Answer("4"),), (Answer("4", exact=True),)
    tasks = [
        Task(name, prompt, checks, "", language="answer", reference="4")
        for name, prompt, checks in (
            ("a", "2 + 2?", four), ("b", "1 + 3?", four), ("c", "1 + 3?", exact),
        )
    ]  # fmt: skip
    details = [[finding.detail for finding in findings] for findings in inspect_texts(tasks)]
    assert details == [[], [], ["has the prompt of b"]]


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("assert f(1) == [2, 'a']", [2, "a"]),
        ("assert {1} == f(1)", {1}),
        ("assert f(1)", True),
        ("assert not f(1)", False),
        ("assert f(1) is None", None),
        ("x = 5\nassert x == 5\nassert f(x) == 7\nassert f(2) == 8", 7),
        (
            (
                "def check(candidate):\n    assert candidate(1) == 3\n    assert candidate(2) =="
                " 4\ncheck(f)"
            ),
            3,
        ),
    ],
)
def test_the_first_expected_value_is_read_from_the_first_assert_on_the_function(
    source: str, answer: object
) -> None:
    names: dict[str, object] = {}
    exec(
        lazy_programs(Task("t", "", (Check("import math"), Check(source)), "f"))["constant"],
        names,
    )
    made = names["f"]
    assert callable(made)
    assert made(9, k=1) == answer


@pytest.mark.parametrize(
    "source", ["assert abs(f(1) - 2) < 0.1", "f(1)", "assert g(1) == 2", "assert (", "x = '\0'"]
)
def test_where_no_assert_gives_the_value_there_is_no_program(source: str) -> None:
    assert "constant" not in lazy_programs(Task("t", "", (Check(source),), "f"))


def test_the_first_answer_of_a_call_may_be_the_references() -> None:
    def answer(call: Call, reference: str | None = None) -> object:
        names: dict[str, object] = {}
        exec(lazy_programs(Task("t", "", (call,), "f", reference=reference))["constant"], names)
        made = names["f"]
        assert callable(made)
        return made("whatever")

    assert answer(Call("[1]", '{"tuple":[1,{"float":"inf"}]}')) == (1, float("inf"))
    assert (
        answer(
            Call('[{"tuple":[2,3]}]'),
            "def f(pair):\n    return f(5) if pair == (2, 3) else pair + 1",
        )
        == 6
    )
    assert "constant" not in lazy_programs(Task("t", "", (Call("[1]"),), "f"))
    assert "constant" not in lazy_programs(Task("t", "", (Call("[1]", "[1"),), "f"))
