"""Tests that run in the program's own process are forgeable."""

from __future__ import annotations

import shutil

import pytest

from assay.judge import Job
from assay.judge.kinds.own_tests import with_tests
from assay.languages import language_named
from assay.types import OwnTests, Task, Verdict
from tests.judge.opened import judge_all

pytestmark = pytest.mark.skipif(not shutil.which("node"), reason="needs node")
TESTS = OwnTests(
    after='if (add(1, 2) !== 3) throw new Error("not 3");', before='const unused = require("fs");\n'
)
ADD = Task("add", "", (TESTS,), "add", language="javascript")
RIGHT = "const add = (a, b) => a + b"
ENDS_EARLY = "process.exit(0)"


def test_a_program_is_forgeable_since_it_can_end_the_tests() -> None:
    right, wrong, early, other = judge_all(
        [Job(ADD, text) for text in (RIGHT, RIGHT.replace("+", "-"), ENDS_EARLY, "let a = (")],
    )
    for passed in (right, early):
        assert (passed.verdict, passed.forgeable) == (Verdict.PASS, True)
        assert not passed.proven
    assert (wrong.verdict, wrong.forgeable) == (Verdict.ERROR, False)
    assert "Error: not 3" in wrong.detail
    assert other.verdict is Verdict.ERROR


def test_what_stands_before_the_program_is_there_once() -> None:
    source, _ = with_tests(TESTS, TESTS.before + RIGHT, language_named("javascript"))
    assert source.count("require") == 1


def test_go_gets_the_imports_that_it_uses_and_no_others() -> None:
    check = OwnTests("", "package main\n\n", 'package main\n\nimport "os"\n\nfunc main() { F() }\n')
    program = 'import (\n\t"fmt"\n\t"sort"\n)\n// math.Pi\nfunc F() { fmt.Println("time.Now") }'
    source, beside = with_tests(check, program, language_named("go"))
    assert source.count("import") == 1
    assert 'import fmt "fmt"' in source
    assert "import" not in beside
