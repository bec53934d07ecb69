"""docs/grpo.md quotes the package's own code, and its worked example runs."""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "grpo.md"
SIX = (
    "algorithms/grpo.py",
    "algorithms/shared_settings.py",
    "algorithms/policy_gradient.py",
    "algorithms/reward_shaping.py",
    "maths/losses.py",
    "maths/advantages.py",
)


def functions(source: str) -> dict[str, str]:
    """Every function and method of some source by name, without its docstring."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            if ast.get_docstring(node):
                node.body = node.body[1:]
            found[node.name] = ast.unparse(node)
    return found


QUOTES = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(("file", "block"), QUOTES, ids=[block[4:24] for _, block in QUOTES])
def test_the_code_on_the_page_is_the_code_of_the_package(file: str, block: str) -> None:
    source, quoted = functions((ROOT / file).read_text()), functions(block)
    assert quoted
    for name, text in quoted.items():
        assert text == source[name], f"{file} has another {name}"


def test_every_block_of_code_says_its_file() -> None:
    assert len(QUOTES) == PAGE.read_text().count("```python") > 6


def test_the_learners_lines_on_the_page_are_in_the_learner() -> None:
    learner = (ROOT / "assay" / "train" / "learner.py").read_text()
    shown = re.findall(
        r"^    (\S.*(?:algorithm\.loss|masked_sum|backward).*)$", PAGE.read_text(), re.M
    )
    assert len(shown) == 3
    for line in shown:
        assert line in learner


def test_the_worked_example_gives_the_numbers_on_the_page() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0


def test_formula_loss_and_advantage_of_grpo_are_in_six_files() -> None:
    reached: set[str] = set()
    for name in SIX:
        reached |= functions((ROOT / "assay" / name).read_text()).keys()
    assert {
        "grpo",
        "loss",
        "compute_advantages",
        "shape_rewards",
        "drop_zero_variance",
        "ratio",
        "importance_weights",
        "clipped_surrogate",
        "completion_advantages",
        "group_advantages",
    } <= reached
