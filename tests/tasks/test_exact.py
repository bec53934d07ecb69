"""Exact rows: whatever a task holds is read back equal, and an odd row is blamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError
from assay.tasks import load
from assay.tasks.exact import row_of
from assay.types import Call, Check, Exchange, Message, Task

CHECKED = Task(
    id="a/1", prompt="Añade\r\n uno.", checks=(Check("assert f(1) == 2"), Check("f(0)",
    hidden=False)),
    entry_point="f", language="python", stub="def f(n):\n", setup="k = '\r'\n",
    reference="def f(n): return n + 1",
    checker="x", demonstrations=("def f(n): 1", ""), stop=("\nassert ", "\r\n"),
)  # fmt: skip
CALLED = Task(
    "a/2", "", (Call("[1]"), Call("[2]", "3", 1e-6, hidden=False), Check("f")), "f", reference=""
)
TALKED = Task(
    "a/3",
    "",
    (Exchange("1\r\n", "2\n", hidden=False), Exchange("", "")),
    "",
    messages=(Message("system", "Be brief."), Message("user", "Hi", fields={"name": "Al"})),
    demonstration_fields={"reasoning_content": "They greet."},
)


def written(file: Path, *rows: object) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_tasks_of_every_kind_are_read_back_equal(tmp_path: Path) -> None:
    tasks = [CHECKED, CALLED, TALKED]
    file = written(tmp_path / "exact.jsonl", *map(row_of, tasks))
    assert load(file) == load(f"jsonl:{file}") == tasks


@pytest.mark.data("humaneval", "mbpp")
@pytest.mark.parametrize("spec", ["humaneval", "mbpp:all", "mbpp_sanitized:all"])
def test_public_tasks_are_read_back_equal(tmp_path: Path, spec: str) -> None:
    tasks = load(spec)
    assert load(written(tmp_path / "exact.jsonl", *map(row_of, tasks))) == tasks


def test_drills_are_read_back_equal(tmp_path: Path) -> None:
    tasks = load("drills:train", limit=50)
    assert load(written(tmp_path / "exact.jsonl", *map(row_of, tasks))) == tasks


def test_fields_that_are_absent_have_the_defaults_of_a_task(tmp_path: Path) -> None:
    row = {
        "format": "assay",
        "id": "x",
        "prompt": "p",
        "checks": [{"source": "f()"}],
        "entry_point": "f",
    }
    assert load(written(tmp_path / "exact.jsonl", row)) == [Task("x", "p", (Check("f()"),), "f")]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": None}, "missing 1 required positional argument: 'id'; add it"),
        ({"promt": "p"}, "unknown field 'promt'; did you mean 'prompt'?"),
        ({"stop": "\n"}, "it must be tuple[str, ...]"),
        ({"checks": "f()"}, "'checks' is a str (f()); make it a list of objects"),
        ({"checks": [{"hidden": True}]}, "a check has none of after, answer, arguments"),
        ({"checks": [{"hidden": True, "sorce": "f()"}]}, "did you mean 'source'?"),
        ({"checks": [{"std_in": "", "stdout": ""}]}, "did you mean 'stdin'?"),
        ({"checks": [{"source": "f()", "hidden": 1}]}, "'hidden' is '1'; it must be bool"),
        (
            {"checks": [{"arguments": "[]", "tolerance": True}]},
            "'tolerance' is 'True'; it must be float",
        ),
        ({"checks": [{"stdin": ""}]}, "missing 1 required positional argument: 'stdout'; add it"),
        (
            {"checks": [{"source": "f()"}, {"stdin": "", "stdout": ""}]},
            "mixes exchanges with others",
        ),
    ],
)
def test_an_odd_row_is_blamed_with_its_line(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    file = written(tmp_path / "exact.jsonl", row_of(CALLED), {**row_of(CHECKED), **change})
    with pytest.raises(DataError) as caught:
        load(file)
    assert str(caught.value).startswith((f"{file}, line 2: ", f"{file}, line 2, 'checks' 1: "))
    assert why in str(caught.value)
