"""Failures: which of them only say what line to undo."""

from __future__ import annotations

from assay.make_tasks.edits import Edit
from assay.make_tasks.failures import all_crash, changed_lines

SHORT = """tests/t.py:3: in test_a
    f(1)
pkg/core.py:7: in f
    return a + b
E   TypeError: no
"""
NATIVE = """Traceback (most recent call last):
  File "/box/tests/t.py", line 3, in test_a
    f(1)
  File "/box/pkg/core.py", line 7, in f
    return a + b
           ~~^~~
NameError: name 'b' is not defined
"""
DOCTEST = """UNEXPECTED EXCEPTION: AttributeError("no")
Traceback (most recent call last):
  File "/usr/lib/doctest.py", line 3, in run
  File "/box/pkg/core.py", line 7, in f
    return a.b
AttributeError: no
/box/pkg/core.py:1: UnexpectedException"""


def test_failures_that_all_crash_on_the_changed_line_are_crashes() -> None:
    assert all_crash([SHORT, NATIVE, DOCTEST], {"pkg/core.py": {7}})


def test_one_failure_elsewhere_or_of_another_kind_tells_that_behaviour_changed() -> None:
    assert not all_crash([SHORT], {"pkg/core.py": {6}})
    assert not all_crash([SHORT], {"pkg/other.py": {7}})
    assert not all_crash([SHORT, SHORT.replace("TypeError", "KeyError")], {"pkg/core.py": {7}})
    assert not all_crash(["tests/t.py:3: in test_a\nE   AssertionError"], {"pkg/core.py": {3}})
    assert not all_crash([""], {"pkg/core.py": {7}})


def test_the_lines_of_a_change_are_those_of_its_statements_in_the_changed_file() -> None:
    data = b"a = 1\nb = (\n  1 +\n  2)\nif a < b:\n  c\n  d\ne\n"
    plus, less = data.index(b"2"), data.index(b"<")
    assert changed_lines((Edit(plus, plus + 1, b"3"),), data) == {2, 3, 4}
    assert changed_lines((Edit(less, less + 1, b"<="),), data) == {5, 6, 7}
    first = Edit(0, 6, b"")
    assert changed_lines((first, Edit(less, less + 1, b"<=")), data) >= {4}
