"""Lines of source text."""

from __future__ import annotations

import ast
import io

import pytest

from assay.extract import program
from assay.extract.statements import blocks_of
from assay.judge.test_code import describe
from assay.languages import language_named
from assay.lines import source_lines
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Check, Task

OTHERS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Where `str.splitlines` ends a line, and Python's parser does not."""


@pytest.mark.parametrize(
    "text", ["", "a", "a\n", "a\r\nb\rc\n\n", f"a{OTHERS}b\n{OTHERS}", "\r\n\r"]
)
def test_lines_are_those_of_universal_newlines(text: str) -> None:
    lines = io.StringIO(text, newline="").readlines()
    assert source_lines(text, keepends=True) == lines
    assert source_lines(text) == [line.rstrip("\r\n") for line in lines]


@pytest.mark.parametrize("sign", OTHERS)
def test_python_counts_lines_in_the_same_way(sign: str) -> None:
    source = f"a = '{sign}'\nb = 2\n"
    last = ast.parse(source).body[-1]
    assert source_lines(source)[last.lineno - 1] == "b = 2"


@pytest.mark.parametrize("sign", OTHERS)
def test_a_failing_check_is_shown_by_its_own_line(sign: str) -> None:
    source = f"a = '{sign}'\nassert 1 == 2\n"
    with pytest.raises(AssertionError) as caught:
        exec(compile(source, "<check>", "exec"), {})
    assert describe(caught.value, source, "<check>").endswith("`assert 1 == 2`")


@pytest.mark.parametrize("sign", "\x85\u2028\u2029")
def test_a_case_of_json_may_hold_signs_that_split_text(sign: str) -> None:
    cases = f'[["a{sign}b"], 1]\n[["c"], 2]\n'
    task = task_of(Row({"prompt": "Write f.", "entry_point": "f", "cases": cases}, "the row"))
    assert len(task.checks) == 2


def test_a_definition_may_follow_a_form_feed() -> None:
    code = "def f():\n    return 1\n\n\x0c\ndef g():\n    pass\n\x0cdef h():\n    pass\n"
    assert [block.name for block in blocks_of(code)] == ["f", "g", "h"]
    python = language_named("python")
    assert all(python.defines(code, name) for name in "fgh")


def test_a_reply_that_begins_with_a_form_feed_does_not_continue_the_stub() -> None:
    task = Task("t", "p", (Check("assert f()"),), "f", stub="def f():\n")
    for reply in ("\x0cdef f():\n    return 1\n", "```python\n\x0cdef f():\n    return 1\n```"):
        assert (program(task, reply) or "").lstrip("\x0c") == "def f():\n    return 1\n"
