"""JSON that assay writes for other programs."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from assay.strict_json import strict_json


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (nan, None),
        (inf, None),
        (-inf, None),
        (1e308 * 10, None),
        ({"a": nan, 1: 0.5}, {"a": None, "1": 0.5}),
        ([1, nan, "nan", True, None], [1, None, "nan", True, None]),
        ({"a": ({"b": (inf, 2)},)}, {"a": [{"b": [None, 2]}]}),
        ({"é": "\ud800"}, {"é": "\ud800"}),
    ],
    ids=str,
)
def test_a_number_that_is_not_finite_is_null(value: Any, written: Any) -> None:
    assert json.loads(strict_json(value), parse_constant=refuse) == written
    assert json.loads(strict_json(value, indent=1), parse_constant=refuse) == written
