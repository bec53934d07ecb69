"""Rows of problems in q, as the pipeline that they come from keeps and publishes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.judge.kinds.find import kind_of
from assay.prompts import messages
from assay.tasks import load
from assay.tasks.exact import row_of, task_of
from assay.tasks.rows import Row
from assay.types import PrintTest

OWN = {
    "id": 7,
    "description": "Write a number in Roman digits.",
    "tests": [
        {"test_idx": 1, "test_code": "show solve[58]", "expected_output": '"LVIII"\n'},
        {"test_idx": 2, "test_code": "result:solve 0;\nshow result;", "expected_output": ""},
    ],
}
PUBLISHED = {
    "problem_id": "p1",
    "problem_name": "roman",
    "problem_description": "Write a number in Roman digits.",
    "q_solution": 'solve:{"LVIII"}',
    "test_cases": [{"q_test_code": "show roman 58", "q_expected_output": '"LVIII"'}],
}
WITHOUT = {"id": 8, "description": "Nothing to check.", "tests": []}


def written(folder: Path, *rows: object) -> str:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"q:{file}"


def test_a_row_becomes_tests_that_print(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own, published = load(written(tmp_path, OWN, PUBLISHED, WITHOUT))
    assert own.checks == (
        PrintTest("show solve[58]", '"LVIII"'),
        PrintTest("result:solve 0;\nshow result;", '""'),
    )
    assert (own.id, own.language, own.entry_point, own.reference) == ("q/7", "q", "solve", None)
    assert published.checks == (PrintTest("show roman 58", '"LVIII"'),)
    assert (published.id, published.entry_point) == ("q/p1", "")
    assert published.reference == 'solve:{"LVIII"}'
    assert "left out 1 of 3 rows: 1 without tests" in caplog.text


def test_a_model_is_told_which_function_the_tests_call(tmp_path: Path) -> None:
    (task,) = load(written(tmp_path, OWN))
    (asked,) = messages(task)
    assert "Solve this task in q. Answer with one ```q code block. It defines `solve`." in (
        asked.content
    )


def test_a_task_of_tests_that_print_is_written_and_read_back(tmp_path: Path) -> None:
    (task,) = load(written(tmp_path, OWN))
    fields = json.loads(json.dumps(row_of(task)))
    assert task_of(Row({k: v for k, v in fields.items() if k != "format"}, "here")) == task


def test_a_model_is_shown_the_test_and_what_it_must_print(tmp_path: Path) -> None:
    (task,) = load(written(tmp_path, OWN))
    shown = kind_of(task.checks[0]).show(task.checks[0], task)
    assert shown == 'Test:\nshow solve[58]\nOutput:\n"LVIII"'
