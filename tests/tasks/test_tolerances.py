"""Tolerances that prompts state, and rows of one's own that are compared with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.judge.checkers import checker_named
from assay.tasks import load, tolerances
from assay.tasks.tolerances import stated_tolerance
from assay.types import Call


@pytest.mark.parametrize(
    ("prompt", "checker"),
    [
        ("Its absolute or relative error must not exceed 10^{-6}.", "floats"),
        ("The absolute or relative error does not exceed 10 - 6.", "floats"),
        ("an absolute or relative error of at most $10^{-4}$", "floats 1e-4 either"),
        ("absolute error below $10^{-9}$ or relative error below $10^{-9}$", "floats 1e-9 either"),
        ("error (absolute or relative) not exceeding 1e-4", "floats 1e-4 either"),
        ("Answers within $10^{-5}$ absolute or relative error pass.", "floats 1e-5 either"),
        ("The answer must be within 1e-6 of the right one.", "floats 1e-6 absolute"),
        ("within 10\u207b\u2075 of the judge's", "floats 1e-5 absolute"),
        ("The relative error may be 1E-9.", "floats 1e-9 relative"),
        ("The absolute difference is at most 1e-5.", "floats 1e-5 absolute"),
        ("An error less than 0.001 is fine.", "floats 1e-3 either"),
        ("It may differ from ours by no more than 10^\u22126.", "floats 1e-6 absolute"),
        ("Errors of up to 5 * 10^-7 are allowed.", "floats 5e-7 either"),
        ("We allow a tolerance of 2\xd710\u207b\xb3.", "floats 2e-3 either"),
        ("with a precision of 10**-8", "floats 1e-8 either"),
        ("Print it accurate to 6 decimal places.", "floats 5e-7 absolute"),
        ("The answer is correct to two decimal places.", "floats 5e-3 absolute"),
        ("Print the answer with up to 6 decimal places.", "floats 5e-7 absolute"),
        ("Small rounding errors are accepted.", "floats"),
        ("Absolute or relative error is checked.", "floats"),
        ("Print at most 5 numbers within 1 second.", ""),
        ("Print it within 0.05 seconds.", ""),
        ("Within 10 moves, print up to 10 numbers.", ""),
        ("Round to 2 decimal places.", ""),
        ("The input numbers have up to 3 decimal places.", ""),
        ("The error rate is 0.05; the standard error of 10 values.", ""),
        ("Move within the range 0.1 to 0.9.", ""),
        ("An error of 50 is too much.", ""),
        ("Add the numbers.", ""),
    ],
)
def test_a_prompt_states_a_tolerance(prompt: str, checker: str) -> None:
    stated = stated_tolerance(prompt)
    assert (stated.checker if stated else "") == checker
    assert not checker or checker_named(checker)


@pytest.mark.parametrize(
    "unit", ["within ", "print within 5 decimal. ", "absolute error of ", "a "]
)
def test_a_prompt_is_read_a_few_times_however_many_cues_it_has(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The characters that are read beyond each cue's own are those of the text, not of a window
    around each cue.
    """
    read: list[int] = []

    class Counted:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self.pattern = pattern

        def finditer(self, text: str) -> Iterator[re.Match[str]]:
            read.append(len(text))
            return self.pattern.finditer(text)

        def search(self, text: str) -> re.Match[str] | None:
            read.append(len(text))
            return self.pattern.search(text)

        def match(self, text: str) -> re.Match[str] | None:
            assert len(text) <= tolerances.REACH
            return self.pattern.match(text)

    for name in ("ENDS", "OF_ANSWER", "OF_INPUT", "CUE", "FORGIVEN", "SMALL", "PLACES"):
        monkeypatch.setattr(tolerances, name, Counted(getattr(tolerances, name)))
    monkeypatch.setattr(tolerances, "LARGEST", 0)  # so that no cue ends the reading
    text = unit * 2_000
    stated_tolerance(text)
    assert sum(read) <= 8 * len(text)


@pytest.mark.parametrize(
    ("checker", "output", "expected", "right"),
    [
        ("floats 1e-4 either", "0.33335", "0.333333333", True),
        ("floats 1e-4 either", "0.3335", "0.333333333", False),
        ("floats 1e-4 either", "100001", "100000.5", True),
        ("floats 1e-4 absolute", "100001", "100000.5", False),
        ("floats 1e-4 absolute", "100000.50009", "100000.5", True),
        ("floats 1e-4 relative", "0.00012", "0.0001", False),
        ("floats 1e-4 relative", "0.000100005", "0.0001", True),
        ("floats 1e-4 relative", "0.00005", "0.0", True),
        ("floats 1e-9", "0.3333333333", "0.333333", True),
        ("floats 1e-9", "0.3333339", "0.333333", False),
        ("floats 1e-9", "0.51", "0.5", False),
        ("floats 1e-4 either", "3.00001", "3", True),
        ("floats 1e-4 either", "4", "3", False),
        ("floats 1e-4 either", "300001", "300000", False),
        ("floats 1e-4 either", "nan", "0.5", False),
        ("floats 1e-4 either", "inf", "0.5", False),
        ("floats 1e-4 either", "0.5 0.5", "0.5", False),
        ("floats 1e-4 either", "1e999999999", "0.5", False),
        ("floats 1e-4 relative", "0.5", "1e-999999999", False),
    ],
)
def test_a_checker_has_the_tolerance_of_its_name(
    checker: str, output: str, expected: str, right: bool
) -> None:
    compare = checker_named(checker)
    assert compare is not None
    assert compare(output, expected) is right


@pytest.mark.parametrize("name", ["floats 1", "floats", "floats 1e-4 both", "floats e-4", "float"])
def test_any_other_name_has_none(name: str) -> None:
    assert (checker_named(name) is not None) is (name == "floats")


ROW = {"prompt": "Halve it, within 1e-4.", "exchanges": [{"stdin": "1", "stdout": "0.5"}]}
CALL = {"prompt": ROW["prompt"], "entry_point": "f", "inputs": [[1]], "expected": [0.5]}


def test_rows_are_compared_with_the_tolerance_of_their_prompt(tmp_path: Path) -> None:
    words = [{"stdin": "1", "stdout": "yes"}]
    rows = [
        ROW, {**ROW, "prompt": "Halve it."}, {**ROW, "exchanges": words},
        {**ROW, "checker": "lines"}, {**ROW, "checker": "floats 1e-3"},
        CALL, {**CALL, "tolerance": 0}, {**CALL, "prompt": "Halve it."},
    ]  # fmt: skip
    file = tmp_path / "my.jsonl"
    file.write_text(json.dumps(rows))
    tasks = load(str(file))
    assert [task.checker for task in tasks] == [
        "floats 1e-4 absolute", "", "", "lines", "floats 1e-3", "", "", "",
    ]  # fmt: skip
    tolerances = [check.tolerance for task in tasks for check in task.checks if type(check) is Call]
    assert tolerances == [1e-4, 0, 1e-6]
