"""Operators: the exact edits of each, and the bytes that stay."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from assay.make_tasks.operators import OPERATORS, Edit, SourceFile, sites

EDITS = {
    "comparison": [
        ("a < b", ["a <= b"]),
        ("a <= b > c", ["a < b > c", "a <= b >= c"]),
        ("(a) == (b)", ["(a) != (b)"]),
        ("a is not b", ["a is b"]),
        ("a is b", ["a is not b"]),
        ("a not  in b", ["a in b"]),
        ("(a # == c\n == b)", ["(a # == c\n != b)"]),
    ],
    "arithmetic": [
        ("a + b * c", ["a - b * c", "a + b // c"]),
        ("a -= 1", ["a += 1"]),
        ("x = a ** 2", ["x = a * 2"]),
        ("'%s' % a", []),
        ("a + f'{b}'", []),
    ],
    "connective": [("a and b or c", ["a and b and c", "a or b or c"])],
    "dropped_condition": [("a and b", ["b", "a"]), ("a or (b)", ["b)", "a)"])],
    "negation": [
        ("not a", ["a"]),
        ("not(a)", ["(a)"]),
        ("if a:\n  b", ["if not a:\n  b"]),
        ("if a == b:\n  c", []),
    ],
    "constant": [("1", ["2", "0"]), ("0", ["1"]), ("True", ["False"]), ("0x10", []), ("'1'", [])],
    "removed_branch": [
        ("if a:\n  b\nc", ["c"]),
        ("if a: # why\n  b\nelse: # or\n  c\nd", ["if a: # why\n  b\nd"]),
        ("if a:\n  b\nelif c:\n  d\n", ["if a:\n  b\n"]),
        ("def f():\n  if a:\n    b\n", ["def f():\n  pass\n"]),
        ("x = a if b else c", ["x = a", "x = c"]),
        (
            "try:\n  a\nexcept B:\n  b\nexcept C:\n  c\n",
            ["try:\n  a\nexcept C:\n  c\n", "try:\n  a\nexcept B:\n  b\n"],
        ),
    ],
    "dropped_statement": [
        ("def f():\n  g(\n    a)\n  return b\n",
         ["def f():\n  return b\n", "def f():\n  g(\n    a)\n"]),
        ("def f(): a = 1; b = 2\n", ["def f(): pass; b = 2\n", "def f(): a = 1; pass\n"]),
        ("for a in b:\n  continue # so\n", ["for a in b:\n  pass # so\n"]),
        ("a = 1\n", []),
    ],
    "wrong_name": [
        ("def f(a, b):\n  return a + b\n",
         ["def f(a, b):\n  return b + b\n", "def f(a, b):\n  return a + a\n"]),
        ("def f(a):\n  b = a\n  return g(b)\n",
         ["def f(a):\n  b = b\n  return g(b)\n", "def f(a):\n  b = a\n  return g(a)\n"]),
        ("def f(self, a):\n  return a\n", []),
        ("class A:\n  def f(self):\n    self.a = self.b = 1\n    return self.a\n",
         ["class A:\n  def f(self):\n    self.a = self.b = 1\n    return self.b\n"]),
    ],
    "swapped_arguments": [
        ("f(a, b, c)", ["f(b, a, c)", "f(a, c, b)"]),
        ("f(a, *b)", []),
        ("isinstance(a, b)", []),
    ],
    "dropped_argument": [("f(a, b=1, c=2)", ["f(a, c=2)", "f(a, b=1)"]), ("f(b=1)", [])],
    "boundary": [
        ("x[a:b]", ["x[:b]", "x[a + 1:b]", "x[a:b - 1]"]),
        ("x[1:]", ["x[:]"]),
        ("range(n)", ["range(n - 1)"]),
        ("range(a, n, 2)", ["range(a + 1, n, 2)", "range(a, n - 1, 2)"]),
    ],
    "wrong_call": [("min(a)", ["max(a)"]), ("é.x.find(a)", ["é.x.rfind(a)"]), ("f(min)", [])],
}  # fmt: skip
TABLE = [(name, *row) for name, rows in EDITS.items() for row in rows]


def edited(name: str, code: str) -> list[str]:
    source = SourceFile(code.encode())
    return [one.apply(source.data).decode() for kind, one in sites(source) if kind == name]


@pytest.mark.parametrize(("name", "code", "expected"), TABLE)
def test_an_operator_makes_exactly_these_edits(name: str, code: str, expected: list[str]) -> None:
    assert edited(name, code) == expected


def test_each_operator_is_shown_by_a_row_of_the_table_and_there_are_more_than_eight() -> None:
    assert set(EDITS) == set(OPERATORS)
    assert len(OPERATORS) == 13


def test_an_edit_keeps_every_other_byte_of_a_file_with_crlf_and_other_letters() -> None:
    code = "# é\r\ndef f(a):\r\n    'ü'\r\n    return a  <  1  # ö\x0c\r\n".encode()
    (edit,) = [one for name, one in sites(SourceFile(code)) if name == "comparison"]
    assert edit == Edit(code.index(b"<"), code.index(b"<") + 1, b"<=")
    assert edit.apply(code) == code.replace(b"<", b"<=")


def test_annotations_decorators_and_f_strings_are_left_alone() -> None:
    code = "@d(1 < 2)\ndef f(a: x[1:2]) -> y(3, 4):\n    return f'{a < 1}'\n"
    assert edited("comparison", code) == edited("constant", code) == edited("boundary", code) == []


@pytest.mark.parametrize("data", [b"\xef\xbb\xbfa = 1", b"a = '\xff'", b"def", b"a\x00"])
def test_a_file_that_is_no_plain_python_in_utf8_is_refused(data: bytes) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        SourceFile(data)


def test_sites_come_in_the_same_order_each_time() -> None:
    code = Path(ast.__file__).read_bytes()
    assert list(sites(SourceFile(code))) == list(sites(SourceFile(code)))
