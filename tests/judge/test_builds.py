"""Where a compiler compiles nothing, the machine failed and no program."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from assay.judge import Judge
from assay.judge.builds import Build, Builds
from assay.languages import language_named
from assay.sandbox.program import Ended, Program, Result
from assay.types import Execution, Verdict
from tests.judge.opened import with_judge
from tests.judge.test_languages import needs_cpp

GOOD, BAD = "int main() { return 0; }", "int main("
CPP = language_named("cpp")


class Compiler:
    """One that works or does not, and counts its runs."""

    def __init__(self, works: bool) -> None:
        self.works, self.runs = works, 0

    async def __call__(self, program: Program) -> Result:
        self.runs += 1
        compiles = self.works and not program.payload.endswith(BAD.encode())
        made = {"program": b"made"} if compiles else {}
        return Result(Ended.EXITED, status=int(not compiles), files=made)


def ends(builds: Builds, *sources: str) -> list[Ended | None]:
    """How the compiler ended for each program, one after the other."""

    async def all_of_them() -> list[Build]:
        return [await builds.build(CPP, source) for source in sources]

    return [one.compiled and one.compiled.ended for one in asyncio.run(all_of_them())]


@needs_cpp
def test_hello_is_compiled_at_the_first_failure_alone() -> None:
    compiler = Compiler(works=True)
    assert ends(Builds(compiler), BAD, f" {BAD}", GOOD, f"  {BAD}") == [Ended.EXITED] * 4
    assert compiler.runs == 5


@needs_cpp
def test_where_a_program_has_compiled_hello_is_not() -> None:
    compiler = Compiler(works=True)
    assert ends(Builds(compiler), GOOD, BAD) == [Ended.EXITED] * 2
    assert compiler.runs == 2


@needs_cpp
def test_a_compiler_that_works_again_is_asked_again() -> None:
    compiler = Compiler(works=False)
    builds = Builds(compiler)
    assert ends(builds, BAD) == ends(builds, GOOD) == [Ended.LOST]
    compiler.works = True
    assert ends(builds, BAD, GOOD) == [Ended.EXITED] * 2


@needs_cpp
def test_where_nothing_compiles_no_program_is_scored_and_hello_says_why() -> None:
    lame = replace(CPP, compile=(*CPP.compile, "-lno_such_library"))

    async def work(judge: Judge) -> list[Execution]:
        runs = [await judge.execute(program, language=lame) for program in (GOOD, lame.hello)]
        return [run.execution for run in runs]

    good, hello = with_judge(work)
    assert good.verdict is Verdict.INFRA
    assert good.detail == "no C++ program compiles here; `assay doctor --self-test` says why"
    assert hello.verdict is Verdict.COMPILE
    assert "error: ld returned 1 exit status" in hello.detail
