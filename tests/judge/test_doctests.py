"""Doctests in the file that is to be repaired: the right change counts, and its examples decide."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from assay.judge import Job
from assay.judge.doctests import docstrings, doctest_canary, examples
from assay.judge.kinds.repository import protected
from assay.judge.kinds.repository_cheats import diff_of
from assay.types import Execution, RepositoryTests, Task, Verdict
from tests.judge.opened import judge_all

SOURCE = '''"""Numbers.

>>> add(0, 0)
0
"""


def add(a, b):
    """Add.

    >>> add(1, 2)
    3
    >>> for n in range(2):
    ...     print(add(n, 1))
    1
    2
    """
    return a - b


class Number:
    """No example."""

    @property
    def half(self):
        """
        >>> Number().half
        2.0
        >>> Number().nothing
        Traceback (most recent call last):
        AttributeError: ...
        """
        return 2.0
'''
RIGHT = SOURCE.replace("a - b", "a + b")
FORGED = "\nimport doctest\ndoctest.OutputChecker.check_output = lambda *_: True\n"
PATHS = {
    "calc.py": "calc",
    "src/kit/calc.py": "kit.calc",
    "kit/calc/__init__.py": "kit.calc",
    "tools/calc.py": "tools.calc",
}


def task_of(tree: Path, path: str, reference: str = RIGHT) -> Task:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(SOURCE)
    for folder in (tree / path).relative_to(tree).parents:
        if str(folder) not in (".", "src"):
            (tree / folder / "__init__.py").touch()
    name = f"{path}::{PATHS[path]}"
    check = RepositoryTests(
        str(tree), (f"{name}.add",), (name, f"{name}.Number.half"),
        pytest_arguments=("--doctest-modules", "--doctest-ignore-import-errors", "-o",
                          "doctest_optionflags=ELLIPSIS"),
    )  # fmt: skip
    right = diff_of(tree, {path: reference})
    return Task("calc", "Repair add.", (check,), "", language="diff", reference=right)


def judged(tree: Path, path: str, *sources: str) -> list[Execution]:
    task = task_of(tree, path)
    programs = [diff_of(tree, {path: source}) for source in sources]
    return judge_all([Job(task, program) for program in programs], stop_early=False)


@pytest.mark.parametrize("path", PATHS)
def test_a_right_change_of_the_file_with_the_doctest_passes(tmp_path: Path, path: str) -> None:
    right, unchanged = judged(tmp_path, path, RIGHT, SOURCE + "\n# nothing\n")
    assert (right.verdict, right.passed, right.detail) == (Verdict.PASS, 3, "")
    assert (unchanged.verdict, unchanged.passed) == (Verdict.WRONG, 2)


def test_examples_that_a_change_rewrites_or_removes_do_not_count(tmp_path: Path) -> None:
    rewritten = SOURCE.replace("    3\n", "    -1\n").replace("    1\n    2\n", "    -1\n    0\n")
    without = SOURCE.replace(SOURCE[SOURCE.index('    """Add.') : SOURCE.index("    return a")], "")
    skipped = SOURCE.replace("add(1, 2)", "add(1, 2)  # doctest: +SKIP").replace(
        "range(2):", "range(2):  # doctest: +SKIP"
    )
    more = RIGHT.replace("    3\n", "    4\n")
    runs = judged(tmp_path, "calc.py", rewritten, without, skipped, more, RIGHT + FORGED)
    assert [run.verdict for run in runs] == [Verdict.WRONG] * 3 + [Verdict.PASS, Verdict.FORBIDDEN]


def test_examples_are_those_of_the_right_change(tmp_path: Path) -> None:
    other = RIGHT.replace("add(1, 2)\n    3", "add(2, 2)\n    4")
    task = task_of(tmp_path, "calc.py", other)
    old = SOURCE.replace("return a - b", "return 3 if b == 2 else a + b")  # passes the old ones
    programs = [diff_of(tmp_path, {"calc.py": text}) for text in (RIGHT, old)]
    right, wrong = judge_all([Job(task, program) for program in programs], stop_early=False)
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.WRONG)


def test_examples_of_the_dictionary_of_a_module_leave_its_file_to_the_change(
    tmp_path: Path,
) -> None:
    table = """
__test__: dict[str, object] = {"more": '''
>>> add(5, 5)
10
''', "a.b": add}
"""
    source = SOURCE + table
    (tmp_path / "calc.py").write_text(source)
    check = RepositoryTests(
        str(tmp_path), ("calc.py::calc.__test__.more",), ("calc.py::calc.Number.half",),
        pytest_arguments=("--doctest-modules", "-o", "doctest_optionflags=ELLIPSIS"),
    )  # fmt: skip
    programs = [
        diff_of(tmp_path, {"calc.py": text})
        for text in (source.replace("a - b", "a + b"), source.replace("10\n", "0\n"))
    ]
    task = Task("calc", "Repair add.", (check,), "", language="diff", reference=programs[0])
    right, rewritten = judge_all([Job(task, program) for program in programs], stop_early=False)
    assert (right.verdict, right.passed, right.detail) == (Verdict.PASS, 2, "")
    assert (rewritten.verdict, rewritten.passed) == (Verdict.WRONG, 1)
    ids = [f"calc.py::calc.__test__.{name}" for name in ("more", "a.b", "c", "__test__.more")]
    assert [*docstrings(ids, {"calc.py": source})] == ids[:2]
    assert not docstrings(ids, {"calc.py": SOURCE + "__test__ = dict(more='>>> 1')\n"})


def test_files_that_have_other_tests_or_no_examples_stay_protected(tmp_path: Path) -> None:
    ids = ("calc.py::calc.add", "calc.py::test_add", "docs/use.rst::use.rst", "kit/a.py::kit.a.b",
           "kit/c.py::kit.c.d")  # fmt: skip
    check = RepositoryTests(str(tmp_path), ids[:1], ids[1:])
    sources = {"calc.py": RIGHT, "kit/a.py": "def b():\n    pass\n",
               "kit/c.py": 'def d():\n    ">>> 1"\n'}  # fmt: skip
    texts = docstrings(ids, sources)
    assert set(texts) == {"calc.py::calc.add", "kit/c.py::kit.c.d"}
    is_ours = protected(check, tmp_path, texts)
    assert [is_ours(path) for path in ("calc.py", "docs/use.rst", "kit/a.py", "kit/c.py")] == [
        True, True, True, False
    ]  # fmt: skip


def test_the_canary_of_a_doctest_expects_what_nothing_prints() -> None:
    text = docstrings(["calc.py::calc.add"], {"calc.py": SOURCE})["calc.py::calc.add"]
    turned = doctest_canary("calc.py::calc.add", text, Random(0))
    assert turned
    *before, last = examples(turned[1])
    assert before == examples(text)
    assert last.source == before[-1].source
    assert last.want.strip() not in text
    for without in (">>> x = 1\n", "nothing", ">>> 1  # doctest: +NUMBER\n1\n"):
        assert doctest_canary("calc.py::calc", without, Random(0)) is None
