"""No decision of the package rests on the words of a detail: the whole suite would fail."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict
from typing import Any

import pytest

from assay.types import Execution, Verdict
from tests.details import PACKAGE

EXECUTION = Execution(Verdict.WRONG, detail="the reference fails")


def in_the_package(expression: str) -> Any:
    """What the expression gives where it stands in a file of the package."""
    code = compile(expression, f"{PACKAGE}/judge/verdict.py", "eval")
    return eval(code, {"execution": EXECUTION})  # noqa: S307


@pytest.mark.parametrize("expression", [
    "execution.detail == 'the reference fails'", "'the' != execution.detail",
    "'reference' in execution.detail", "execution.detail.startswith('the reference')",
    "execution.detail.find('fails') > 0", "execution.detail in ('a', 'b')",
])  # fmt: skip
def test_a_decision_of_the_package_on_the_words_of_a_detail_fails_in_all_tests(
    expression: str,
) -> None:
    with pytest.raises(AssertionError, match="decide by the cause"):
        in_the_package(expression)


def test_the_package_shows_details_and_tests_read_them() -> None:
    assert in_the_package("f'wrong: {execution.detail}'") == "wrong: the reference fails"
    assert in_the_package("execution.detail or 'nothing'") == EXECUTION.detail
    assert "reference" in EXECUTION.detail
    carried = pickle.loads(pickle.dumps(EXECUTION))  # noqa: S301
    for again in (copy.deepcopy(EXECUTION), carried):
        assert again == EXECUTION
    assert json.loads(json.dumps(asdict(EXECUTION)))["detail"] == "the reference fails"
