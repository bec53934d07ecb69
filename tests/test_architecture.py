"""The shape of the house: layers, budgets, and no torch where none belongs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "assay"
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS = [
    "types", "errors", "openmp", "registry", "files", "config", "maths", "sandbox", "judge", "tasks", "check",
    "prompts", "extract", "rewards", "environments", "policy", "engines", "rollout", "algorithms", "evaluate",
    "trackers", "train", "doctor", "integrations", "cli",
]  # fmt: skip
TORCH_ALLOWED = ("maths", "policy", "engines/torch", "algorithms", "train")
FOR_A_PACKAGE = "integrations/verifiers.py"
FILE_LINES, FUNCTION_LINES, PACKAGE_LINES = 400, 60, 17_900


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "assay" else None


def imports(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_only_point_up_the_list_of_layers(file: Path) -> None:
    layer = name_of(file).removesuffix(".py").split("/")[0]
    if layer == "__init__":
        return
    assert layer in LAYERS, f"{layer} has no place in LAYERS"
    below = {found for found in imports(ast.parse(file.read_text())) if layer_of(found) in LAYERS}
    too_low = sorted(m for m in below if LAYERS.index(str(layer_of(m))) > LAYERS.index(layer))
    assert not too_low, f"{name_of(file)} imports {too_low}, which stand below it"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_files_and_functions_stay_within_their_budgets(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) <= FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES, f"{node.name} is too long"


def test_the_package_stays_within_its_budget() -> None:
    assert sum(len(file.read_text().splitlines()) for file in FILES) <= PACKAGE_LINES


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_file_says_in_its_first_line_what_it_is_for(file: Path) -> None:
    assert (ast.get_docstring(ast.parse(file.read_text())) or "").strip() or not file.read_text().strip()


def test_judging_evaluating_and_the_command_line_import_without_torch() -> None:
    without = [
        "assay." + name_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file in FILES
        if not name_of(file).startswith(TORCH_ALLOWED) and name_of(file) not in ("__init__.py", FOR_A_PACKAGE)
    ]
    without.append("assay.maths.estimates")
    code = f"import sys, importlib\nfor m in {without!r}: importlib.import_module(m)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_no_lint_or_type_check_is_switched_off_for_a_whole_file() -> None:
    for file in FILES:
        assert "# mypy: ignore" not in file.read_text()
        assert "# ruff: noqa" not in file.read_text()
