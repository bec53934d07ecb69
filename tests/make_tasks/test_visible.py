"""What a policy sees: tests that are cut out, and the answer that stands nowhere else."""

from __future__ import annotations

from assay.make_tasks.edits import Edit, SourceFile
from assay.make_tasks.visible import copy_of, names_answer, stripped, without_tests

TESTS = b"""import pytest

@pytest.mark.parametrize("a", [1, 2])
def test_a(a):
    assert a  # first

class TestB:
    def test_c(self): pass

    @d
    def test_d(self):
        pass


def helper():
    return 1
"""
CODE = b"def f(a):\n    if a:\n        return a[1:][0] + 1\n    return 0\n"
BUG = Edit(CODE.index(b"[1:]"), CODE.index(b"[1:]") + 4, b"")


def without(*tests: str) -> bytes:
    return without_tests(SourceFile(TESTS), tests)


def test_tests_are_cut_out_with_their_decorators_and_the_rest_keeps_its_bytes() -> None:
    assert without("t.py::test_a[1::2]", "t.py::TestB::test_d") == TESTS.replace(
        TESTS[15 : TESTS.index(b"class") - 1], b""
    ).replace(b"    @d\n    def test_d(self):\n        pass\n", b"")


def test_a_class_without_tests_keeps_a_body() -> None:
    cut = without("t.py::TestB::test_d", "t.py::TestB::test_c")
    assert b"class TestB:\n    pass\n\n    pass\n" in cut


def test_an_inherited_test_is_cut_out_of_the_class_that_has_it() -> None:
    assert without("t.py::TestX::test_d") == without("t.py::TestB::test_d") != TESTS


def test_a_test_that_is_no_function_of_the_file_takes_the_whole_file_along() -> None:
    assert without("t.py::test_x") == without("t.py::f.g") == b""


def test_a_text_names_the_answer_if_it_has_a_line_of_the_original_that_the_bug_changed() -> None:
    changed = BUG.apply(CODE)
    assert names_answer("I think it is `return a[1:][0] + 1`.", CODE, changed)
    assert not names_answer("`return a[0] + 1`, `return 0`, [1:]", CODE, changed)


def test_a_copy_of_the_code_is_recognised_whatever_its_indent_and_around_it() -> None:
    copy = b"class A:\n" + CODE.replace(b"\n", b"\r\n\r\n    ") + b"\nmore"
    assert copy_of({"b.py": "a", "docs/a.md": stripped(copy)}, CODE, BUG) == "docs/a.md"
    assert not copy_of({"b.py": stripped(b"return a[1:][0] + 1\nreturn 0")}, CODE, BUG)
