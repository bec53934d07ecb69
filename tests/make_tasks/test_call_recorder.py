"""Recorded calls: how each is written, so that it can be made again."""

from __future__ import annotations

import operator
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.make_tasks.call_recorder import Recorder
from assay.make_tasks.snippet_runner import in_fork
from assay.make_tasks.snippets import snippets

CODE = """
import functools
from dataclasses import dataclass

EMPTY = object()


def add(a, b=1, *more, sign=1, **others):
    return inner(a) + b


def inner(a):
    return a


def numbers(n):
    yield from range(n)


@functools.lru_cache
def cached(a):
    return a


def wrap(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper


@wrap
def double(a):
    return 2 * a


@wrap
def triple(a):
    return 3 * a


class Box:
    def __init__(self, size, parts=()):
        self.size, self.parts = size, list(parts)

    @property
    def half(self):
        return self.size // 2

    @classmethod
    def of(cls, text):
        return cls(len(text))

    def put(self, part):
        self.parts.append(part)
        return self

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, place):
        return self.parts[place]

    def __setitem__(self, place, part):
        self.parts[place] = part


@dataclass
class Point:
    x: int
"""


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "recorded_kit.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import recorded_kit  # type: ignore[import-not-found]

    yield recorded_kit
    del sys.modules["recorded_kit"]


def texts(kit: Any, code: str) -> list[str]:
    """The calls that code makes, by what is shown of each."""
    steps = Recorder({str(kit.__file__)}).record(lambda: exec(code, {"kit": kit}))
    return [re.sub(r"\0(\d+)\0", r"<\1>", str(step["text"])) for step in steps]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("kit.add(1, 1)", ["add(1)"]),
        ("kit.inner([1, (2,), {'a': {3}}, None, b'x'])",
         ["inner([1, (2,), {'a': {3}}, None, b'x'])"]),
        ("kit.add(1, 2, 3, c=4)", ["add(1, 2, 3, c=4)"]),
        ("kit.add(2, sign=3)", ["add(2, sign=3)"]),
        ("kit.inner(kit.EMPTY); kit.inner(int); kit.inner(kit.Box)",
         ["inner(EMPTY)", "inner(int)", "inner(Box)"]),
        ("kit.inner(open)", ["inner(open)"]),
        ("kit.inner(lambda: 1)", [""]),
        ("list(kit.numbers(3))", ["numbers(3)"]),
        ("kit.cached(4)", ["cached(4)"]),
        ("kit.double(4); kit.triple(5)", ["double(4)", "triple(5)"]),
        ("b = kit.Box(4, [1]); b.half; b.put(2).put(3); len(b); b[0]; b[0] = 5",
         ["Box(4, [1])", "<0>.half", "<0>.put(2)", "<0>.put(3)", "len(<0>)", "<0>[0]",
          "<0>[0] = 5"]),
        ("b = kit.Box.of('ab'); b.half", ["Box.of('ab')", "<0>.half"]),
        ("kit.inner(kit.Point(3))", ["Point(3)", "inner(<0>)"]),
        ("import re, datetime; kit.inner(re.compile('a', re.I)); kit.inner(datetime.date(1, 2, 3))",
         ["inner(re.compile('a', re.IGNORECASE))", "inner(datetime.date(1, 2, 3))"]),
        ("kit.inner(iter([1, 2]))", ["inner(iter([1, 2]))"]),
    ],
)  # fmt: skip
def test_a_call_is_written_as_what_makes_it_again(kit: Any, code: str, expected: list[str]) -> None:
    assert texts(kit, code) == expected


def test_a_built_in_function_needs_no_import(kit: Any) -> None:
    steps = Recorder({str(kit.__file__)}).record(lambda: kit.inner(open))
    assert [step["imports"] for step in steps] == [["from recorded_kit import inner"]]


def test_a_function_of_python_s_is_imported_from_its_public_module(kit: Any) -> None:
    steps = Recorder({str(kit.__file__)}).record(lambda: kit.inner(operator.add))
    assert "from operator import add" in steps[0]["imports"]


def test_a_subclass_of_the_test_s_own_cannot_be_written(kit: Any) -> None:
    code = "class Mine(kit.Box):\n  pass\nb = Mine(1)\nb.half\n"
    steps = Recorder({str(kit.__file__)}).record(lambda: exec(code, {"kit": kit}))
    assert [step["name"] for step in steps] == ["Mine", "Box.half"]
    assert list(snippets(steps)) == []


def test_programs_of_recorded_calls_do_what_the_test_saw(kit: Any) -> None:
    code = "b = kit.Box(4)\nb.put('x')\nb[0]\nlist(kit.numbers(3))\n"
    steps = Recorder({str(kit.__file__)}).record(lambda: exec(code, {"kit": kit}))
    results = [in_fork(program.code) for program in snippets(steps)]
    assert [one["output"] for one in results[2:]] == ["'x'\n", "[0, 1, 2]\n"]
    assert not any(one["error"] for one in results)


def test_a_program_that_raises_is_told_by_its_exception_and_one_that_hangs_by_nothing() -> None:
    assert in_fork("print(1)\nraise KeyError('a')") == {"output": "1\n", "error": "KeyError: 'a'"}
    assert in_fork("import os\nos._exit(3)") == {}
    assert in_fork("print(1)\nimport no_such_module") == {}
    assert in_fork(textwrap.dedent("import json\njson.loads('x')"))["error"].startswith(
        "json.decoder.JSONDecodeError: "
    )
