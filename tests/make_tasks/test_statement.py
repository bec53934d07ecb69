"""Statements: issues that a user would write, which show what a program does and should do."""

from __future__ import annotations

import asyncio

import pytest

from assay.errors import SettingsError
from assay.make_tasks.asking import open_asking
from assay.make_tasks.edits import SourceFile
from assay.make_tasks.reports import MOST_SNIPPETS, differing, nearest
from assay.make_tasks.snippets import Demonstration, Snippet, snippets
from assay.make_tasks.statement import (
    INSTRUCTION,
    MOST_LINES,
    IssueWording,
    body,
    documented,
    exception,
    issue,
    leaks,
    names_test,
    quotes,
    tells_of_test,
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
NATIVE = """Traceback (most recent call last):
  File "/tree/t.py", line 12, in test_d
    self.assertEqual(a, 1)
  File "/tree/pkg.py", line 5, in f
    raise ValueError
    ^^^^^^^^^^^^^^^^
pkg.Problem: first
second"""

FIRST, SECOND = "\x000\x00", "\x001\x00"
"""Where the results of the first two calls stand."""


def step(
    text: str, *needs: int, name: str = "f", kind: str = "", imports: str = ""
) -> dict[str, object]:
    """A recorded call."""
    return {"text": text, "name": name, "kind": kind, "needs": list(needs), "is_statement": False,
            "imports": [f"from pkg import {imports}"] if imports else []}  # fmt: skip


def test_a_program_prints_the_last_call_with_what_it_needs_and_imports() -> None:
    steps = [
        step("Box(2)", name="Box", kind="object", imports="Box"),
        step("f(1)", imports="f"),
        step(f"{FIRST}.add(3)", 0, name="Box.add"),
        step(f"total({FIRST}, {SECOND})", 0, 1, name="total", imports="total"),
    ]
    programs = [program.code for program in snippets(steps)]
    assert programs[1] == "from pkg import f\n\nprint(repr(f(1)))"
    assert programs[3] == (
        "from pkg import Box, f, total\n\nbox = Box(2)\nresult = f(1)\nbox.add(3)\n"
        "print(repr(total(box, result)))"
    )


def test_a_program_whose_object_was_changed_by_an_unwritable_call_is_none() -> None:
    steps = [
        step("Box(2)", name="Box", kind="object", imports="Box"),
        step("", 0, name="Box.map"),
        step(f"{FIRST}.sum()", 0, name="Box.sum"),
        step("f(1)", imports="f"),
    ]
    codes = [program.code for program in snippets(steps)]
    assert [("Box" in code, "sum" in code) for code in codes] == [(True, False), (False, False)]


def test_a_name_of_python_s_or_of_an_import_is_no_variable() -> None:
    steps = [
        step("Dict()", name="Dict", kind="object", imports="Dict"),
        step(f"result({FIRST})", 0, name="result", imports="result"),
        step(f"{SECOND}.x", 1, name="x"),
    ]
    *_, program = snippets(steps)
    assert "dict1 = Dict()\nresult1 = result(dict1)" in program.code


def test_a_generator_is_shown_by_what_it_yields() -> None:
    (program,) = snippets([step("f(1)", kind="generator", imports="f")])
    assert program.code.endswith("print(repr(list(f(1))))")


def test_an_issue_says_what_the_program_does_and_should_do() -> None:
    snippet = Snippet("from pkg import f\n\nprint(repr(f(1)))", "f")
    wrong, right = {"output": "2\n", "error": ""}, {"output": "", "error": "ValueError: 1"}
    assert issue("pkg", Demonstration(snippet, wrong, right)) == (
        "`pkg` has a bug. `f` does not do what it should:\n\n```python\nfrom pkg import f\n\n"
        "print(repr(f(1)))\n```\n\nIt prints:\n\n```\n2\n```\n\nIt should fail with:\n\n"
        "```\nValueError: 1\n```\n\nFind the cause in the package's code and fix it."
    )
    assert "It does not end within a few seconds." in issue(
        "pkg", Demonstration(snippet, {}, right)
    )


def test_programs_nearest_to_the_failure_of_each_test_are_tried_and_the_shortest_first() -> None:
    many = [Snippet(f"print({'1' * number})", "f") for number in range(1, 80)]
    other = [Snippet("print('a long one, and near')", "g")]
    found = nearest([many, other])
    assert len(found) == MOST_SNIPPETS
    assert other[0] in found
    assert found == sorted(found, key=lambda program: program.cost)
    assert many[-1] in found
    assert many[0] not in found


def test_programs_that_print_an_address_take_no_other_s_place() -> None:
    programs = [Snippet(f"print({number})", "f") for number in range(6)]
    actual = [{"output": f"<object at 0x7f12345678{number}>", "error": ""} for number in range(6)]
    expected = [result | {"output": "<object at 0x7f87654321>"} for result in actual]
    actual[5], expected[5] = {"output": "", "error": "StopIteration"}, {"output": "1", "error": ""}
    assert differing(programs, actual, expected) == [
        Demonstration(programs[5], actual[5], expected[5])
    ]


def test_a_program_that_should_print_is_taken_before_one_that_should_fail() -> None:
    programs = [Snippet("f()", "f"), Snippet("print(f())", "f")]
    actual = [{"output": "1", "error": ""}, {"output": "1", "error": ""}]
    expected = [{"output": "", "error": "ValueError"}, {"output": "2", "error": ""}]
    assert [one.snippet for one in differing(programs, actual, expected)] == programs[::-1]


def test_text_with_a_fence_is_shown_in_a_longer_one() -> None:
    snippet = Snippet("print(1)", "f")
    shown = issue("pkg", Demonstration(snippet, {"output": "```\n", "error": ""}, {}))
    assert "````\n```\n````" in shown


def test_code_that_has_a_line_of_the_test_leaks() -> None:
    source = SourceFile(FILE)
    sources = [body(source, "t.py::TestC::test_d"), body(source, "t.py::test_a[1]")]
    assert leaks("x = 1\n  assert pkg.f(x) == [", sources)
    assert not leaks("print(repr(pkg.f(1)))\n1,", sources)
    assert body(source, "t.py::test_b") == body(source, "t.py") == ""


def test_a_text_with_the_name_of_a_test_or_its_file_names_it() -> None:
    tests = ["tests/test_a.py::TestC::test_d[1]"]
    assert names_test("see tests/test_a.py", tests)
    assert names_test("in test_d:", tests)
    assert not names_test("test_data TestC", tests)


def test_of_several_exceptions_the_last_is_told_without_the_code_that_raised_it() -> None:
    assert exception(SAID) == "AssertionError: 2 != 1\n  At index 0"
    assert exception(NATIVE) == "pkg.Problem: first\nsecond"
    assert exception("") == exception("E") == exception("no more memory") == ""


def test_a_doctest_is_reported_by_its_examples_and_what_differs() -> None:
    said = "010 >>> f(1)\nExpected:\n    2\nGot:\n    3\n\n/a.py:1: DocTestFailure"
    text = documented("pkg", {"a.py::a.f": ">>> f(1)\n2\n"}, {"a.py::a.f": said})
    assert "These examples of `a.f` do not hold:\n\n```python\nf(1)\n```" in text
    assert "Expected:\n    2\nGot:\n    3\n```" in text
    long = {"a.py::a.f": ">>> a = 1\n" * 100}
    assert documented("pkg", long, {"a.py::a.f": said}).count("a = 1") == MOST_LINES


def worded(url: str, report: str) -> str:
    async def ask() -> str:
        async with open_asking(url, "m", 1) as asking:
            return await IssueWording(asking).reword("pkg", report)

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


def test_a_message_tells_no_line_of_the_test_whatever_stands_around_it() -> None:
    codes = ["def test_a():\n    assert shout('a', times=3) == 'AAA!'\n"]
    line = "assert shout('a', times=3) == 'AAA!'"
    for quoted in (
        f"> {line}",
        f"`{line}` failed",
        f">>> {line}",
        f"{line}  # was",
        line.replace(" ", ""),
    ):
        assert quotes(quoted, codes), quoted
    assert not quotes("shout repeats its text", codes)
    tests = ["tests/test_shout.py::TestShout::test_a"]
    assert tells_of_test("see TestShout", tests)
    assert tells_of_test("in test_shout.py", tests)
    assert not tells_of_test("shout is loud", tests)
