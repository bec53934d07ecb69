"""Operators: the exact edits of each, and the bytes that stay."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from assay.make_tasks.edits import Edit, SourceFile, applied
from assay.make_tasks.operators import OPERATORS, sites
from assay.make_tasks.pairs import PAIR_OPERATORS, changes

EDITS = {
    "comparison": [
        ("a < b", ["a <= b"]),
        ("a <= b > c", ["a < b > c", "a <= b >= c"]),
        ("(a) != (b)", ["(a) == (b)"]),
        ("a == b", []),
        ("a is not b", ["a is b"]),
        ("if a.b is not None:\n  c = a.b(d)", []),
        ("if a is not None and b:\n  a.b()", []),
        ("c = a.b if a is not None else d", []),
        ("if a is not None and b:\n  c()", ["if a is None and b:\n  c()"]),
        ("a is b", []),
        ("a not  in b", ["a in b"]),
        ("(a # < c\n < b)", ["(a # < c\n <= b)"]),
    ],
    "arithmetic": [
        ("def f(a: int, b: int):\n  return a + 1 - b\n",
         ["def f(a: int, b: int):\n  return a + 1 + b\n",
          "def f(a: int, b: int):\n  return a - 1 - b\n"]),
        ("a -= 1", ["a += 1"]),
        ("x = len(a) ** 2", ["x = len(a) * 2"]),
        ("def f(a, b):\n  return a.strip() + b\n", []),
        ("a + b", []),
        ("a * 2", []),
        ("'%s' % a", []),
        ("a + f'{b}'", []),
        ("isinstance(a, int | None)", []),
        ("x = len(a) | len(b)", []),
        ("x = set(a) | b", ["x = set(a) & b"]),
    ],
    "connective": [
        ("if a and b or c: pass", ["if a and b and c: pass", "if a or b or c: pass"]),
        ("x = a or {}", []),
        ("if a is not None and a.b: pass", []),
        ("if isinstance(a, b) and a.c == 1 or not d: pass",
         ["if isinstance(a, b) and a.c == 1 and not d: pass"]),
        ("if a and a.b: pass", []),
        ("if a.b and a: pass", ["if a.b or a: pass"]),
        ("x = a == 1 and b == 2", ["x = a == 1 or b == 2"]),
    ],
    "dropped_condition": [
        ("if a and b: pass", ["if b: pass", "if a: pass"]),
        ("if a or (b): pass", ["if b): pass", "if a): pass"]),
        ("x = a or b", []),
    ],
    "negation": [
        ("not a", ["a"]),
        ("not(a)", ["(a)"]),
        ("if a:\n  b", []),
        ("x = not callable(a)", []),
    ],
    "constant": [
        ("1", ["2", "0"]), ("0", ["1"]), ("True", ["False"]), ("0x10", []), ("'1'", []),
        ("x[:-1]", ["x[:-2]"]),
        ("19", ["20", "18"]), ("10", []), ("21", []),
        ("a << 8", []), ("a += 1", []), ("a += 2", ["a += 3", "a += 1"]),
        ("64", ["63"]), ("255", ["256"]), ("1000", ["100"]),
        ("365", []),
        ("x[::2]", []),
        ("x % 1", ["x % 2"]),
        ("while True: pass", []),
        ("def f(a=1): pass", []),
    ],
    "wrong_default": [
        ("def f(a=1, *, b=False): pass",
         ["def f(a=2, *, b=False): pass", "def f(a=0, *, b=False): pass",
          "def f(a=1, *, b=True): pass"]),
        ("def f(a=''): pass", ['def f(a=" "): pass']),
        ("def f(a=None): pass", []),
        ("x.get(a, 3)", ["x.get(a)"]),
        ("x.get(a, None)", []),
    ],
    "removed_branch": [
        ("if a:\n  b\nc", ["c"]),
        ("if a: # why\n  b\nelse: # or\n  c\nd", ["if a: # why\n  b\nd"]),
        ("if a:\n  b\nelif c:\n  d\n", ["if a:\n  b\n"]),
        ("def f():\n  if a:\n    b\n", []),
        ("c\n# why\n# so\nif a: # and\n  b\n", ["c\n"]),
        ("  # other\n\n# why\nif a:\n  b\nc", ["  # other\n\nc"]),
        ("def f():\n  if a:\n    return 1\n  else:\n    return 2\n", []),
        ("def f():\n  if a:\n    b\n  elif c:\n    return 1\n  else:\n    d\n  return 2\n",
         ["def f():\n  if a:\n    b\n  return 2\n",
          "def f():\n  if a:\n    b\n  elif c:\n    return 1\n  return 2\n"]),
        ("x = a if b else c", ["x = a", "x = c"]),
        ("x = a if b else None", ["x = a"]),
        ("if a:\n  import b\n", []),
        ("if a:\n" + "  b\n" * 7, []),
        ("if a is None:\n  b\n", []),
    ],
    "removed_case": [
        ("if a is None:\n  b\nc", ["c"]),
        ("if not a:\n  b\nc", ["c"]),
        (
            "try:\n  a\nexcept B:\n  b\nexcept C:\n  c\n",
            ["try:\n  a\nexcept C:\n  c\n", "try:\n  a\nexcept B:\n  b\n"],
        ),
        ("try:\n  a\n  b\nexcept B:\n  c\nd", ["a\nb\nd"]),
        ("def f():\n  try:\n    if a:\n      b\n  except B: pass\n  d",
         ["def f():\n  if a:\n    b\n  d"]),
        ("try:\n  a = '''\n  '''\nexcept B:\n  c\n", []),
        ("try: a\nexcept B: c\nfinally: d\n", []),
        ("try:\n  a\nexcept (B, C):\n  c\nfinally:\n  d\n",
         ["try:\n  a\nexcept C:\n  c\nfinally:\n  d\n",
          "try:\n  a\nexcept B:\n  c\nfinally:\n  d\n"]),
    ],
    "dropped_statement": [
        ("def f():\n  g(\n    a)\n  return b\n", ["def f():\n  return b\n"]),
        ("def f(a): a = 1; b = 2\n", []),
        ("def f():\n  if a:\n    b = 1\n    return b\n  return 2\n",
         ["def f():\n  if a:\n    b = 1\n  return 2\n"]),
        ("def f():\n  if a:\n    return 1\n  return 2\n", []),
        ("def f(a):\n  b = 1\n  b = a\n", ["def f(a):\n  b = 1\n"]),
        ("def f(a):\n  if a:\n    b = 1\n  return b\n", []),
        ("class A:\n  def __init__(self):\n    self.a = 1\n", []),
        ("for a in b:\n  continue # so\n", []),
        ("a = 1\n", []),
    ],
    "wrong_name": [
        ("def f(a: int, b: int):\n  return a + g(b)\n",
         ["def f(a: int, b: int):\n  return a + g(a)\n"]),
        ("def f(a, b):\n  return a.x + b.x\n",
         ["def f(a, b):\n  return b.x + b.x\n", "def f(a, b):\n  return a.x + a.x\n"]),
        ("def f(a, b):\n  return a.x + b[0]\n", []),
        ("def f(a: int, b: int):\n  return a - b\n", []),
        ("def f(a: int, b: int):\n  return g(b=b)\n", []),
        ("def f(a: list):\n  for b in a:\n    a.append(b)\n", []),
        ("def f(a: int):\n  if a:\n    b = 1\n  return g(a)\n", []),
        ("def f(a, b):\n  a[0]\n  for c in a:\n    c[0]\n",
         ["def f(a, b):\n  a[0]\n  for c in a:\n    a[0]\n"]),
        ("def f(self, a):\n  return a\n", []),
        ("class A:\n  def f(self):\n    self.a = self.b = 1\n    return self.a\n",
         ["class A:\n  def f(self):\n    self.a = self.b = 1\n    return self.b\n"]),
    ],
    "swapped_arguments": [
        ("a.f('a', 'b', 1)", ["a.f('b', 'a', 1)"]),
        ("f('a', 'b')", []),
        ("f(1, 'a')", []),
        ("f(a, b)", []),
        ("def f(a: str, b: str, c: int):\n  g(a, b, c)\n",
         ["def f(a: str, b: str, c: int):\n  g(b, a, c)\n"]),
        ("def f(a, b):\n  g(a, b, a.x + b.x)\n", ["def f(a, b):\n  g(b, a, a.x + b.x)\n"]),
        ("def f(a: str):\n  g(a, 'b')\n", []),
        ("f(a, *b)", []),
        ("isinstance(1, 2)", []),
    ],
    "dropped_argument": [("f(a, b=1, c=2)", ["f(a, c=2)", "f(a, b=1)"]), ("f(b=1)", [])],
    "boundary": [
        ("x[a:b]", ["x[:b]", "x[a + 1:b]", "x[a:b - 1]"]),
        ("x[1:]", []),
        ("x[:a + 1]", ["x[:a]"]),
        ("x[:-1]", []),
        ("x[len(a) - 1]", ["x[len(a)]"]),
        ("range(n)", ["range(n - 1)"]),
        ("range(a, n + 1, 2)", ["range(a + 1, n + 1, 2)", "range(a, n, 2)"]),
    ],
    "wrong_call": [
        ("min(a)", ["max(a)"]), ("a.get(b)", []), ("a.setdefault(b, 1)", ["a.get(b, 1)"]),
        ("é.x.find(a)", ["é.x.rfind(a)"]), ("f(min)", []),
        ("a.pop()", []), ("a.popleft()", ["a.pop()"]),
    ],
    "missed_copy": [
        ("x = a.copy()", ["x = a"]), ("x = a[:]", ["x = a"]), ("x = a[1:]", []), ("a[:] = b", []),
    ],
}  # fmt: skip
TABLE = [(name, *row) for name, rows in EDITS.items() for row in rows]


def edited(name: str, code: str) -> list[str]:
    source = SourceFile(code.encode())
    return [one.apply(source.data).decode() for kind, one in sites(source) if kind == name]


@pytest.mark.parametrize(("name", "code", "expected"), TABLE)
def test_an_operator_makes_exactly_these_edits(name: str, code: str, expected: list[str]) -> None:
    assert edited(name, code) == expected


def test_each_operator_is_shown_by_a_row_of_the_table() -> None:
    assert set(EDITS) == set(OPERATORS)
    assert len(OPERATORS) == 16


def paired(name: str, code: str) -> list[str]:
    source = SourceFile(code.encode())
    return [applied(change, source.data).decode() for kind, change in changes(source)
            if kind == name]  # fmt: skip


def test_a_bug_of_two_places_changes_two_lines_of_one_function() -> None:
    code = "def f(a):\n  if a < 1:\n    return min(a)\n  return 2\n\n\ndef g():\n  return 3\n"
    pairs = paired("two_places", code)
    assert code.replace("min", "max").replace("return 2", "return 3") in pairs
    assert all("return 3" in pair for pair in pairs)
    assert all(
        len([1 for old, new in zip(code.splitlines(), pair.splitlines(), strict=False)
             if old != new]) >= 2 for pair in pairs
    )  # fmt: skip


def test_a_helper_and_its_caller_are_both_changed_and_no_others() -> None:
    code = "def f(a):\n  return min(a)\n\n\ndef g(a):\n  return f(a) < 1\n\n\ndef h():\n  1\n"
    pairs = paired("helper_and_caller", code)
    assert code.replace("min", "max").replace("<", "<=") in pairs
    assert all(("max" in pair, "  1\n" in pair) == (True, True) for pair in pairs)
    method = "class A:\n  def f(self):\n    return 1\n  def g(self):\n    return self.f() < 2\n"
    assert method.replace("1", "2").replace("<", "<=") in paired("helper_and_caller", method)


def test_each_operator_of_two_places_has_a_test() -> None:
    assert set(PAIR_OPERATORS) == {"two_places", "helper_and_caller"}


@pytest.mark.parametrize("code", ["for x in y:\n  pass", "self[:-1]", "a = 'x' + b"])
def test_what_nobody_writes_is_no_bug(code: str) -> None:
    code = "def f(self: list, y: list, b, x):\n  " + code.replace("\n", "\n  ") + "\n  x.a, y.a\n"
    source = SourceFile(code.encode())
    bugs = [one.apply(source.data).decode() for _, one in sites(source)]
    assert not [bug for bug in bugs if "x in x" in bug or ":-0" in bug or "'x' - b" in bug]


def test_a_script_s_end_is_left_alone() -> None:
    assert edited("comparison", "if __name__ == '__main__':\n  a < b\n") == []


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
    assert list(changes(SourceFile(code))) == list(changes(SourceFile(code)))


def test_all_bugs_of_a_module_of_python_s_are_python() -> None:
    source = SourceFile(Path(textwrap.__file__).read_bytes())
    bugs = [applied(change, source.data) for _, change in changes(source)]
    assert len(bugs) > 300
    fails = 0
    for bug in bugs:
        try:
            ast.parse(bug)
        except SyntaxError:
            fails += 1
    assert fails <= len(bugs) // 50
