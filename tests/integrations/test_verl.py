"""verl's own client of SandboxFusion, given the address of our service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integrations.server import serving

scores = pytest.importorskip("verl.utils.reward_score", reason="verl is not installed")

SUM = "a, b = map(int, input().split())\nprint(a + b)\n"
PAIRS = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("--cpu-seconds", "1") as server:
        yield f"http://127.0.0.1:{server.port}/run_code"


def score(url: str, code: str, truth: dict[str, Any]) -> float:
    given = {"sandbox_fusion_url": url, "memory_limit_mb": 1024}
    found: float = scores.default_compute_score(
        "codecontests", f"```python\n{code}\n```", truth, **given
    )
    return found


def test_its_score_of_a_right_program_is_one(url: str) -> None:
    assert score(url, SUM, PAIRS) == 1.0


def test_its_score_of_a_program_that_is_right_once_in_two_is_a_half(url: str) -> None:
    assert score(url, "print(3)", PAIRS) == 0.5


def test_its_score_of_a_right_program_that_prints_a_megabyte_is_one(url: str) -> None:
    many = {"inputs": ["1"], "outputs": ["x" * 1_000_000 + "1"]}
    assert score(url, "print('x' * 1_000_000 + input())", many) == 1.0


@pytest.mark.parametrize("code", ["print(", "1 / 0", "import sys; sys.exit(1)", "exit(3)"])
def test_its_score_of_a_program_that_dies_is_nothing(url: str, code: str) -> None:
    assert score(url, code, PAIRS) == 0.0


def test_its_way_of_calling_functions_works(url: str) -> None:
    truth = {"inputs": ["1\n2"], "outputs": ["3"], "fn_name": "add"}
    assert score(url, "class Solution:\n    def add(self, a, b): return a + b", truth) == 1.0


def test_its_way_of_running_asserts_works(url: str) -> None:
    assert score(url, "def f(x): return x", {"assert_case": ["assert f(1) == 1"]}) == 1.0
    assert score(url, "def f(x): return x", {"assert_case": ["assert f(1) == 2"]}) == 0.0


def test_its_loader_finds_compute_score() -> None:
    from verl.utils.import_utils import load_extern_object

    found = load_extern_object("pkg://assay.integrations.verl", "compute_score")
    assert found("apps", f"```python\n{SUM}```", PAIRS, extra_info={"num_turns": 1}) == 1.0
