"""Test cases in the shapes of PRIME and verl, through `compute_score`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.errors import DataError
from assay.integrations.verl import compute_score

SUM = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
LIES = "```python\nprint(3)\n```"
PAIRS = {"inputs": ["1 2", "3 4", "0 3", "5 5"], "outputs": ["3", "7\n", "3", "10"]}
ADD: dict[str, Any] = {"fn_name": "add"}


@pytest.mark.parametrize(
    "truth", [PAIRS, json.dumps(PAIRS), {"inputs": [["1 2", ""]], "outputs": [["3"]]}]
)
def test_a_program_that_reads_and_prints_is_scored(truth: object) -> None:
    assert compute_score("codecontests", SUM, truth) == 1.0  # type: ignore[arg-type]


def test_a_wrong_program_scores_nothing_or_its_share_of_the_tests() -> None:
    assert compute_score("apps", LIES, PAIRS) == 0.0
    assert compute_score("apps", LIES, PAIRS, fraction=True) == 0.5
    assert compute_score("apps", "I do not know.", PAIRS, fraction=True) == 0.0


def test_a_program_that_prints_a_megabyte_is_compared_to_the_last_character() -> None:
    program = "```python\nprint('x' * 1_000_000 + input())\n```"
    for answer, score in (("1", 1.0), ("2", 0.0)):
        truth = {"inputs": ["1"], "outputs": ["x" * 1_000_000 + answer]}
        assert compute_score("apps", program, truth) == score


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1\n2", "3"),
        ("1\n2", "[3]"),
        ([1, 2], [3]),
        ([1, 2], 3),
        ("[1]\n[2]", "[1, 2]"),
        ("[1]\n[2]", "[[1, 2]]"),
    ],
)
def test_a_function_is_called_with_a_line_of_json_for_each_argument(
    given: object, expected: object
) -> None:
    truth = {"fn_name": "add", "inputs": [given], "outputs": [expected]}
    method = (
        "class Solution:\n    def add(self, a: List[int], b: Optional[int]):\n        return a + b"
    )
    assert compute_score("taco", f"```python\n{method}\n```", truth) == 1.0
    assert compute_score("taco", "```python\ndef add(a, b): return a\n```", truth) == 0.0


def test_tuples_count_as_lists_and_numbers_that_are_not_numbers_are_the_judges_own() -> None:
    pair = {"fn_name": "f", "inputs": ["1"], "outputs": ["[[1, [2]]]"]}
    assert compute_score("taco", "```python\ndef f(x): return (1, (2,))\n```", pair) == 1.0
    infinite = {"fn_name": "f", "inputs": ["1"], "outputs": ["Infinity"]}
    assert compute_score("taco", "```python\ninf = 1\ndef f(x): return 1\n```", infinite) == 0.0


@pytest.mark.parametrize(
    ("expected", "program"), [("[0, 1]", "return 0"), ("[[0, 1], [5, 6]]", "return [0, 1]")]
)
def test_the_first_item_of_a_list_is_no_answer_for_the_list(expected: str, program: str) -> None:
    pair = {"fn_name": "two_sum", "inputs": ["1"], "outputs": [expected]}
    assert compute_score("taco", f"```python\ndef two_sum(x): {program}\n```", pair) == 0.0


@pytest.mark.parametrize("wrap", [list, lambda tests: {"assert_case": tests}, json.dumps])
def test_asserts_are_run_as_they_stand(wrap: Any) -> None:
    tests = ["assert sorted(twice([1])) == [1, 1]", "assert twice([]) == []"]
    assert (
        compute_score("kodcode", "```python\ndef twice(xs): return xs * 2\n```", wrap(tests)) == 1.0
    )
    assert (
        compute_score(
            "kodcode", "```python\ndef twice(xs): return xs\n```", wrap(tests), fraction=True
        )
        == 0.5
    )
    cheat = "```python\ndef twice(xs): return xs\ndef sorted(xs): return xs * 2\n```"
    assert compute_score("kodcode", cheat, wrap(tests), fraction=True) == 0.5


@pytest.mark.parametrize(
    ("truth", "why"),
    [
        ("{", "not JSON"),
        ("3", "inputs"),
        ({"inputs": ["1"], "outputs": []}, "do not go together"),
        ({"inputs": [], "outputs": []}, "without tests"),
        ({"fn_name": "f", "inputs": ["one"], "outputs": ["1"]}, "no JSON"),
        ({"fn_name": "f()", "inputs": ["1"], "outputs": ["1"]}, "name no function"),
        ({"fn_name": "f", "inputs": [1], "outputs": ["1"]}, "no arguments"),
        ([], "no assert"),
        (["assert ("], "no valid Python"),
        (["assert len([]) == 0"], "no assert calls"),
    ],
)
def test_a_ground_truth_that_is_none_is_refused(truth: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        compute_score("apps", SUM, truth)


def test_a_sample_that_the_judge_cannot_judge_is_the_users_to_mend_and_no_zero() -> None:
    crossing = ["assert apply(object(), 1) == 1"]
    with pytest.raises(DataError, match=r"apps: the task cannot be judged \(carry\): this test"):
        compute_score("apps", "```python\ndef apply(f, x): return f(x)\n```", crossing)
