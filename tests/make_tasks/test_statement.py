"""Statements: what a user would report of a failure."""

from __future__ import annotations

import asyncio

import pytest

from assay.errors import SettingsError
from assay.make_tasks.operators import SourceFile
from assay.make_tasks.statement import (
    INSTRUCTION,
    MOST_LINES,
    body,
    exception,
    open_wording,
    statement,
)
from tests.endpoints import endpoint, reply

FILE = b"""import pkg

@mark
def test_a(x):
    assert pkg.f(x) == [
        1,
    ]

class TestC:
    def test_d(self):
        a = pkg.g()
        self.assertEqual(a, 1)
"""
SAID = """t.py:12: in test_d
    self.assertEqual(a, 1)
/usr/lib/unittest.py:5: in fail
    raise ValueError
E   ValueError: first

During handling of the above exception, another exception occurred:
t.py:12: in test_d
    self.assertEqual(a, 1)
E   AssertionError: 2 != 1
E     At index 0"""


def test_a_test_is_shown_by_what_it_does() -> None:
    source = SourceFile(FILE)
    assert body(source, "t.py::TestC::test_d") == "a = pkg.g()\nself.assertEqual(a, 1)"
    assert body(source, "t.py::test_a[1]") == "assert pkg.f(x) == [\n    1,\n]"
    assert body(source, "t.py::test_b") == body(source, "t.py") == ""


def test_a_long_test_is_shown_by_its_first_lines() -> None:
    source = SourceFile(b"def test_a():\n" + b"    a = 1\n" * 100)
    assert body(source, "t.py::test_a").splitlines() == ["a = 1"] * MOST_LINES + ["..."]


def test_of_several_exceptions_the_last_is_shown_without_the_code_that_raised_it() -> None:
    assert exception(SAID) == "AssertionError: 2 != 1\n  At index 0"
    assert exception("") == exception("E") == exception("no more memory") == ""


def test_the_shortest_failure_is_reported() -> None:
    failures = {
        "t.py::test_a[3]": "E   TypeError\n" * 3,
        "t.py::TestC::test_d": SAID,
        "u.py::b": SAID,
    }
    assert statement("pkg", failures, {"t.py": SourceFile(FILE)}) == (
        "`pkg` has a bug. This code, with the names of `t.py`, should run without an error:\n\n"
        "```python\na = pkg.g()\nself.assertEqual(a, 1)\n```\n\nIt fails with:\n\n"
        "```\nAssertionError: 2 != 1\n  At index 0\n```\n\n"
        "Find the cause in the package's code and fix it."
    )
    shown = statement("pkg", {"t.py::test_a[3]": "E   TypeError: no"}, {"t.py": SourceFile(FILE)})
    assert "without an error:\n\n```python\n# with 3\nassert pkg.f(x)" in shown


def test_a_failure_that_cannot_be_shown_makes_no_statement() -> None:
    assert (
        statement("pkg", {"t.py::test_b": SAID, "u.py::c": SAID}, {"t.py": SourceFile(FILE)}) == ""
    )
    assert statement("pkg", {"t.py::test_a": ""}, {"t.py": SourceFile(FILE)}) == ""


def worded(url: str, report: str) -> str:
    async def ask() -> str:
        async with open_wording(url, "m", 1) as reword:
            return await reword("pkg", report)

    return asyncio.run(ask())


def test_an_endpoint_words_the_report_and_gets_nothing_else() -> None:
    with endpoint(lambda *_: reply(" f(1) raises TypeError. ")) as stub:
        assert worded(stub.url, "the report") == "f(1) raises TypeError."
    ((path, key, body),) = stub.asked
    assert (path, key) == ("/v1/chat/completions", None)
    assert [one["content"] for one in body["messages"]] == [
        INSTRUCTION.format(name="pkg"), "the report",
    ]  # fmt: skip


def test_without_an_endpoint_or_an_answer_the_report_stays_as_it_is() -> None:
    assert worded("", "the report") == "the report"
    with endpoint(lambda *_: reply("")) as stub:
        assert worded(stub.url, "the report") == "the report"


def test_an_endpoint_that_refuses_is_the_users_fault() -> None:
    with endpoint(lambda *_: (401, {}, {})) as stub, pytest.raises(SettingsError, match="--url"):
        worded(stub.url, "the report")
