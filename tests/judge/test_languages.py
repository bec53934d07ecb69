"""Programs in other languages read and print, and are judged as Python's are."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace

import pytest

from assay.errors import DataError
from assay.judge import Job, Judge, judge_all
from assay.judge.builds import Builds
from assay.languages import language_named, languages
from assay.sandbox.program import Program, Result
from assay.tasks import task_from_dict
from assay.types import Check, Exchange, Task, Verdict
from tests.judge.jobs import programs_run


def is_there(name: str) -> bool:
    return all(map(shutil.which, language_named(name).tools))


INSTALLED = [name for name in languages if is_there(name)]
SUM = Task("sum", "", (Exchange("1 2\n", "3\n"), Exchange("5 6", "11")), "", language="cpp")
ADDS = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
needs_cpp = pytest.mark.skipif("cpp" not in INSTALLED, reason="needs g++")


@pytest.mark.parametrize("name", INSTALLED)
def test_a_language_says_hello_and_its_lazy_programs_do_not(name: str) -> None:
    language = language_named(name)
    task = Task(name, "", (Exchange("", "hello\n"),), "", language=name)
    hello, broken, *lazy = judge_all(
        [Job(task, source) for source in (language.hello, "((", *language.lazy.values())]
    )
    assert hello.verdict is Verdict.PASS, hello
    assert broken.verdict in (Verdict.COMPILE, Verdict.ERROR)
    assert {execution.verdict for execution in lazy} <= {Verdict.WRONG}


@needs_cpp
def test_verdicts_are_those_of_python() -> None:
    programs = {
        ADDS: (Verdict.PASS, 2, ""),
        ADDS.replace("+", "-"): (Verdict.WRONG, 0, "test 1: line 1 is '-1', not '3'"),
        "int main() { return 3; }": (Verdict.ERROR, 0, "test 1: exited with status 3"),
        "int main() { *(volatile int *)0 = 1; }": (Verdict.ERROR, 0, "test 1: killed by SIGSEGV"),
        "int main() { for (;;); }": (Verdict.TIMEOUT, 0, "used more than"),
        "int main() { retrun 0; }": (Verdict.COMPILE, 0, "main.cpp:1:14: error: 'retrun'"),
    }
    for execution, (verdict, passed, detail) in zip(
        judge_all([Job(SUM, source) for source in programs]), programs.values(), strict=True
    ):
        assert (execution.verdict, execution.passed, execution.total) == (verdict, passed, 2)
        assert detail in execution.detail.replace("\u2018", "'").replace("\u2019", "'")


@needs_cpp
def test_equal_programs_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = programs_run(monkeypatch)
    tasks = [replace(SUM, id=str(n), checks=(Exchange(f"{n} {n}", f"{2 * n}"),)) for n in range(8)]
    assert {one.verdict for one in judge_all([Job(task, ADDS) for task in tasks])} == {Verdict.PASS}
    assert [program.fetch for program in runs].count(("program",)) == 1
    assert len(runs) == 9


@needs_cpp
def test_a_program_without_a_task_may_be_of_any_language() -> None:
    async def run() -> tuple[str, Verdict]:
        async with Judge(slots=1) as judge:
            run = await judge.execute(ADDS, "20 22", language="c++")
            broken = await judge.execute("int main(", language="cpp")
            return run.execution.output, broken.execution.verdict

    assert asyncio.run(run()) == ("42", Verdict.COMPILE)


def test_an_unknown_language_and_tests_that_it_cannot_have_are_refused() -> None:
    with pytest.raises(DataError, match="the language 'lua' cannot be judged; known:"):
        task_from_dict({"exchanges": [{"stdin": "", "stdout": ""}], "language": "lua"})
    asserts = Task("f", "", (Check("assert f()"),), "f", language="c")
    with pytest.raises(DataError, match="task 'f': a program in C can only read and print"):
        judge_all([Job(asserts, "int f() { return 1; }")])


def test_a_tool_that_is_absent_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(program: Program) -> Result:
        raise AssertionError(program)

    absent = replace(language_named("cpp"), compile=("no-such-g++", "main.cpp"))
    with pytest.raises(DataError, match=r"no-such-g\+\+ is not installed; .* apt install g\+\+"):
        asyncio.run(Builds(nothing).build(absent, ADDS))
