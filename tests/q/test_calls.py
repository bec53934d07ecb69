"""Functions in q, called from their arguments, with a value of JSON in return."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from assay.judge.codec import Packer
from assay.languages import language_named
from assay.languages.q import literal
from assay.tasks import load
from assay.types import Call, Execution, Task, Verdict
from tests.q.test_q import judged

LITERALS: list[tuple[Any, str]] = [
    (None, "(::)"),
    (True, "1b"),
    (-7, "-7"),
    (2**63, "9223372036854775808f"),
    (2.0, "2.0"),
    (1e16, "1e16"),
    (1e-07, "1e-07"),
    (math.inf, "0w"),
    (-math.inf, "-0w"),
    (math.nan, "0n"),
    ("", '""'),
    ("a", 'enlist "a"'),
    ("né", '"né"'),
    ('say "a\\b"\n', '"say \\042a\\134b\\042\\012"'),
    ([], "()"),
    ([3], "enlist 3"),
    ([1, -2], "(1;-2)"),
    ([1, 2.5], "(1.0;2.5)"),
    ([True, False], "(1b;0b)"),
    (["a", "bc"], '(enlist "a";"bc")'),
    ([[1, 2], []], "((1;2);())"),
    ([[1]], "enlist enlist 1"),
    ([4, {}, "x"], '(4;(())!();enlist "x")'),
    ({"p": 1, "q": "r"}, '((enlist "p";enlist "q"))!(1;enlist "r")'),
]


@pytest.mark.parametrize(("value", "spelled"), LITERALS)
def test_a_value_is_spelled_as_q_writes_it(value: Any, spelled: str) -> None:
    assert literal(value) == spelled


def test_the_arguments_of_a_call_are_a_list_of_values_as_they_are() -> None:
    source, _ = language_named("q").drive("f:{x}", "f", [[1, 2.5], ["ab"]])
    assert source.splitlines()[-3:] == [
        ".assay.call (1;2.5);", '.assay.call enlist "ab";', ".assay.end[];"
    ]  # fmt: skip


def task(*calls: tuple[list[Any], Any]) -> Task:
    pack = Packer().text
    checks = tuple(Call(pack(given), pack(expected)) for given, expected in calls)
    return Task("f", "", checks, "f", language="q")


SUM = task(([20, 22], 42), ([[1, 2], [3, 4]], [4, 6]))
ATTACKS = {
    "writes answers of its own and exits": (
        '`:answers 0: ("[41]";"[[4,6]]");\nexit 0;\nf:{0}', Verdict.WRONG, 1
    ),
    "writes too many": (
        '`:answers 0: ("[42]";"[[4,6]]";"[1]");\nexit 0;\nf:{0}', Verdict.FORBIDDEN, 0
    ),
    "forges JSON": ('f:{[x;y] "42"}', Verdict.WRONG, 0),
    "another JSON": ('.j.j:{"42],[[4,6]"}\nf:{[x;y] 0}', Verdict.FORBIDDEN, 0),
    "does not write": ("f:{[x;y] exit 0}", Verdict.ERROR, 0),
    "raises": ("f:{[x;y] x-`a}", Verdict.ERROR, 0),
    "has no such function": ("g:{[x;y] x+y}", Verdict.ERROR, 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def found(any_q: None) -> list[Execution]:
    programs = ["f:{[x;y] x+y}\nexit 0", *(source for source, *_ in ATTACKS.values())]
    return judged(SUM, *programs)


def test_a_function_is_called_with_each_list_of_arguments(found: list[Execution]) -> None:
    assert (found[0].proven, found[0].passed, found[0].total) == (True, 2, 2), found[0]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_the_answers_does_not_pass(attack: str, found: list[Execution]) -> None:
    _, verdict, passed = ATTACKS[attack]
    one = found[1 + list(ATTACKS).index(attack)]
    assert (one.verdict, one.passed) == (verdict, passed), one


def test_texts_truth_and_nothing_come_back_as_they_are(any_q: None) -> None:
    values = ["a", "", "two\nlines", True, None, 0.1, [1, [2, 3]], ["b", "cd"]]
    (one,) = judged(task(*(([value], value) for value in values)), "f:{[x] x}")
    assert one.proven, one


@pytest.mark.data("q_humaneval")
def test_the_asserts_of_q_humaneval_become_calls(caplog: pytest.LogCaptureFixture) -> None:
    tasks = {one.id: one for one in load("q_humaneval")}
    assert len(tasks) == 158
    assert "left out 6 of 164 rows: 6 whose asserts are no plain calls" in caplog.text

    def calls(number: int) -> list[tuple[Any, Any, float]]:
        return [
            (json.loads(one.arguments), json.loads(one.expected), one.tolerance)
            for one in tasks[f"q_humaneval/{number}"].checks
            if isinstance(one, Call) and one.expected
        ]

    assert calls(2) == [([3.5], 0.5, 0), ([1.33], 0.33, 1e-6), ([123.456], 0.456, 1e-6)]
    assert calls(8)[3] == ([[3, 5, 7]], [15, 105], 0)
    assert calls(44)[-1] == ([7, 8], "7", 0)
    assert calls(52)[1] == ([[1, 20, 4, 10], 5], False, 0)
    assert calls(90)[5] == ([[1, 1]], None, 0)
