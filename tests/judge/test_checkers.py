"""What counts as the right output."""

from __future__ import annotations

import pytest

from assay.judge.checkers import CHECKERS, difference

WANTED = "1 2\n3.5\n"
CASES = {
    "1 2\n3.5\n": "exact lines tokens floats unordered",
    "1 2\n3.5": "lines tokens floats unordered",
    "1 2  \r\n3.5\n\n \n": "lines tokens floats unordered",
    "3.5\n1 2\n": "unordered",
    "1\n2 3.5": "tokens floats",
    "1 2\n3.5000001\n": "floats",
    "1.0 2\n35e-1\n": "floats",
    "1 2\n3.50001\n": "",
    "1 2\n": "",
    "1 2\n3.5\n3.5\n": "",
    "1 2\n3_5\n": "",
    " 1 2\n3.5\n": "tokens floats",
    "": "",
}


@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize("output", CASES)
def test_a_checker_forgives_just_what_it_should(name: str, output: str) -> None:
    assert CHECKERS[name](output, WANTED) is (name in CASES[output].split())


@pytest.mark.parametrize(
    ("output", "expected", "right"),
    [
        ("10000000000000001", "10000000000000002", False),
        ("9007199254740993.0", "9007199254740992", False),  # 2**53 + 1 is no float
        ("9.007199254740993e15", "9007199254740993", True),
        ("1e9999999999999999999999", "1.5", False),
        ("1000000.5", "1000001", False),
        ("1000000.5", "1000001.0", True),
        ("1000001.0000001", "1000001", True),
        ("1000000999.", "1000000007", False),
        ("0.0000005", "0.0", True),
        ("nan", "nan", True),
        ("nan", "0.5", False),
        ("inf", "1e999", False),
        ("0.5", "9" * 400, False),
        ("9" * 400, "0.5", False),
        ("1_0", "10", False),
        ("٣", "3", False),
        ("YES", "yes", False),
    ],
)
def test_numbers_are_close_only_as_numbers(output: str, expected: str, right: bool) -> None:
    assert CHECKERS["floats"](output, expected) is right


def test_the_first_difference_is_shown() -> None:
    assert difference("1\n2", "1\n3\n4") == "line 2 is '2', not '3'"
    assert difference("1", "1\n3") == "line 2 is missing, not '3'"
    assert difference("1 ", "1") == "spaces or line ends differ"
    assert len(difference("x" * 10_000, "y")) < 200
