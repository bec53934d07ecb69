"""Bugs that a model writes: what is taken of a reply, what is counted, and a task of one."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from assay.errors import MachineError, RolloutLostError
from assay.judge import Job, judge_all
from assay.make_tasks.bugs import Bug, ChangedFile, Fate
from assay.make_tasks.edits import SourceFile
from assay.make_tasks.model_bugs import (
    EDIT,
    MOST_LOST,
    REWRITE,
    TIMES,
    ModelBugs,
    changed_file,
    places_in,
)
from assay.tasks import load
from assay.types import Verdict
from tests.endpoints import Answer, endpoint, reply
from tests.make_tasks.test_make_tasks import made, write

SOURCE = b'''import re


class Box:
    @property
    def first(self, default: int = 0):
        """The first value."""

        # none in an empty box
        if self.values:
            return self.values[0]
        return default


def total(values):
    result = 0
    for value in values:
        result += value
    return result


def short(value):
    return value
'''


def place(name: str, data: bytes = SOURCE) -> Any:
    places = places_in("kit.py", SourceFile(data))
    return next(place for place in places if place.function.name == name)


def block(code: str) -> str:
    return f"Here it is:\n\n```python\n{code}\n```\nIt is wrong for lists."


def changed(name: str, code: str, data: bytes = SOURCE) -> str:
    file = changed_file(place(name, data), block(code), "")
    assert isinstance(file, ChangedFile)
    assert file.original == data
    return file.changed.decode()


TOTAL = (
    "def total(values):\n    result = 0\n    for value in values[1:]:\n        result += value\n"
)


def test_functions_of_some_lines_are_shown_without_decorators_and_indents() -> None:
    names = [it.function.name for it in places_in("a.py", SourceFile(SOURCE))]
    assert names == ["total", "first"]
    assert place("first").head == (
        'def first(self, default: int = 0):\n    """The first value."""\n\n'
        "    # none in an empty box"
    )
    assert place("total").code.startswith("def total(values):\n    result = 0\n")


def test_a_reply_s_body_takes_the_place_of_the_old_one_and_its_edits_are_few() -> None:
    file = changed_file(place("total"), block(TOTAL + "    return result"), "")
    assert isinstance(file, ChangedFile)
    (edit,) = file.change
    assert SOURCE[edit.start : edit.end] == b"    for value in values:\n"
    assert edit.new == b"    for value in values[1:]:\n"


def test_a_method_keeps_its_decorator_annotations_docstring_and_indent() -> None:
    code = "def first(self, default=0):\n  '''Other.'''\n  if self.values:\n    return 1\n"
    text = changed("first", code + "  return default\n")
    head = text[text.index("    @property") : text.index("        if self")]
    assert head.encode() in SOURCE
    assert "        if self.values:\n          return 1\n        return default\n" in text


def test_a_comment_of_the_model_s_does_not_name_the_bug_and_an_old_one_stays() -> None:
    code = "def first(self, default=0):\n    # none in an empty box\n    # BUG: wrong place\n"
    text = changed("first", code + "    return self.values[1]  # off by one\n")
    assert "BUG" not in text
    assert "off by one" not in text
    assert "        return self.values[1]\n" in text


def test_line_ends_stay_as_the_file_has_them() -> None:
    data = SOURCE.replace(b"\n", b"\r\n")
    text = changed("total", TOTAL + "    return result", data)
    assert "    for value in values[1:]:\r\n" in text
    assert text.count("\r\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        ("I cannot do that.", Fate.NO_CODE),
        (block("def other(values):\n    return 1"), Fate.NO_CODE),
        (block("def total(values):\n    '''Nothing.'''"), Fate.NO_CODE),
        (block("def total(values):\n    return (1"), Fate.NO_PYTHON),
        (block(f"def total(values):\n    return {'(' * 5000}1{')' * 5000}"), Fate.NO_PYTHON),
        (block("def total(values, start=0):\n    return start"), Fate.SIGNATURE),
        (block("async def total(values):\n    return 1"), Fate.SIGNATURE),
    ],
)
def test_a_reply_that_is_of_no_use_is_counted_by_why(text: str, fate: Fate) -> None:
    assert changed_file(place("total"), text, "") is fate


async def first_of(bugs: ModelBugs, times: int = 1) -> list[Bug | Fate]:
    candidates = bugs.candidates({"kit.py": SourceFile(SOURCE)}, random.Random(0))
    return [await candidates[0]() for _ in range(times)]


def test_a_rewrite_shows_the_head_and_the_docstring_alone_and_may_be_a_body() -> None:
    questions: list[str] = []

    async def ask(instructions: str, text: str) -> str:
        questions.append(text)
        return "    return self.values[-1]"

    bugs = ModelBugs(ask, REWRITE)
    candidates = bugs.candidates({"kit.py": SourceFile(SOURCE)}, random.Random(0))
    assert len(candidates) == TIMES  # `total` has no docstring
    (bug,) = asyncio.run(first_of(bugs))
    assert isinstance(bug, Bug)
    assert bug.operator == "model_rewrite"
    assert "The first value." in questions[0]
    assert "return" not in questions[0]
    assert b"        return self.values[-1]\n" in bug.texts["kit.py"]


def test_an_endpoint_that_fails_is_counted_and_one_that_always_does_ends_the_run() -> None:
    async def ask(instructions: str, text: str) -> str:
        raise RolloutLostError("the endpoint failed")

    assert asyncio.run(first_of(ModelBugs(ask, EDIT))) == [Fate.LOST]
    with pytest.raises(MachineError, match=f"{MOST_LOST} questions in a row"):
        asyncio.run(first_of(ModelBugs(ask, EDIT), MOST_LOST))


KIT = """def clamp(value, low, high):
    if value < low:
        return low
    return min(value, high)


def total(numbers):
    result = 0
    for number in numbers:
        result = result + number
    return result


def double(number):
    result = number
    return result + number
"""
KIT_TESTS = """from kit.core import clamp, double, total


def test_clamp():
    assert clamp(1, 2, 3) == 2


def test_high():
    assert clamp(9, 2, 3) == 3


def test_total():
    assert total([1, 2]) == 3


def test_double():
    assert double(2) == 4
"""
REPLIES = {
    "clamp": "def clamp(value, low, high):\n    if value < low:\n        return low\n"
    "    return max(value, high - 1)  # BUG\n",
    "total": "def total(numbers):\n    return sum(numbers)\n",
    "double": "def double(number, times):\n    return number * times\n",
}


@pytest.mark.long
def test_a_model_s_edit_is_kept_where_tests_fail_and_the_others_are_counted(
    tmp_path: Path,
) -> None:
    package = write(tmp_path / "kit", **{"kit/core.py": KIT, "tests/test_core.py": KIT_TESTS})

    def answer(path: str, body: dict[str, Any]) -> Answer:
        name = body["messages"][1]["content"].split("def ")[1].split("(")[0]
        return reply(block(REPLIES[name]))

    with endpoint(answer) as stub:
        words = ["--bugs", "edits", "--url", stub.url, "--model", "m", "--no-reword"]
        result = made(package, tmp_path / "out", *words, "--slots", "1", "--count", "2")
    (report,) = result["packages"]
    assert report["sites"] == len(stub.asked) == 3 * TIMES
    assert (report["tried"], report["kept"], report["no test fails"]) == (2, 1, 1)
    assert (report["same code"], report["signature changed"]) == (2 * (TIMES - 1), TIMES)
    (task,) = load(str(tmp_path / "out" / "tasks.jsonl"))
    assert task.tags["operator"] == "model_edit"
    assert "BUG" not in str(task)
    right, empty = judge_all([Job(task, task.reference), Job(task, "")])
    assert (right.verdict, empty.verdict) == (Verdict.PASS, Verdict.WRONG)
