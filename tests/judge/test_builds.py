"""Where a compiler compiles nothing, the machine failed and no program."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.judge import Judge
from assay.judge.builds import Build, Builds
from assay.languages import Language, language_named
from assay.sandbox.program import ENVIRONMENT, Ended, Folder, Program, Result
from assay.types import Cause, Execution, Verdict
from tests.judge.opened import with_judge
from tests.judge.test_languages import needs_cpp

GOOD, BAD = "int main() { return 0; }", "int main("
CPP = language_named("cpp")


class Compiler:
    """One that makes something of programs that hold one of some words, and counts its runs."""

    def __init__(self, *words: bytes, otherwise: Ended = Ended.EXITED) -> None:
        self.words, self.otherwise, self.runs = words, otherwise, 0

    async def __call__(self, program: Program) -> Result:
        self.runs += 1
        await asyncio.sleep(0)
        if any(word in program.payload for word in self.words):
            return Result(Ended.EXITED, files={"program": b"made"})
        return Result(self.otherwise, status=1)


def ends(builds: Builds, *sources: str, language: Language = CPP) -> list[Ended | None]:
    """How the compiler ended for each program, all at once."""

    async def all_of_them() -> list[Build]:
        return await asyncio.gather(*(builds.build(language, source) for source in sources))

    return [one.compiled and one.compiled.result.ended for one in asyncio.run(all_of_them())]


@needs_cpp
def test_hello_is_compiled_once_for_all_failures() -> None:
    compiler = Compiler(b"hello", GOOD.encode())
    builds = Builds(compiler)
    assert ends(builds, *(BAD + " " * more for more in range(8))) == [Ended.EXITED] * 8
    assert ends(builds, GOOD, f"{BAD};") == [Ended.EXITED] * 2
    assert compiler.runs == (8 + 1) * len(CPP.compilers()) + 2


@needs_cpp
def test_another_program_that_compiles_says_nothing_of_the_headers() -> None:
    builds = Builds(Compiler(GOOD.encode()))
    assert ends(builds, GOOD) == [Ended.EXITED]
    assert ends(builds, BAD) == [Ended.LOST]


@needs_cpp
def test_a_compiler_that_works_again_is_asked_again() -> None:
    compiler = Compiler()
    builds = Builds(compiler)
    assert ends(builds, BAD) == ends(builds, GOOD) == [Ended.LOST]
    compiler.words = (b"hello", GOOD.encode())
    assert ends(builds, BAD, GOOD) == [Ended.EXITED] * 2


@needs_cpp
def test_a_compiler_that_the_machine_lost_needs_no_hello() -> None:
    compiler = Compiler(otherwise=Ended.LOST)
    assert ends(Builds(compiler), BAD) == [Ended.LOST]
    assert compiler.runs == 1


class Crashing(Compiler):
    """One that crashes in its first runs."""

    def __init__(self, crashes: int) -> None:
        super().__init__(b"hello", GOOD.encode())
        self.crashes = crashes

    async def __call__(self, program: Program) -> Result:
        result = await super().__call__(program)
        crashes = self.runs <= self.crashes
        return Result(Ended.EXITED, status=CPP.crash_status) if crashes else result


@needs_cpp
@pytest.mark.parametrize(("crashes", "compiles"), [(0, True), (1, True), (2, False)])
def test_a_compiler_that_crashed_is_tried_once_more(crashes: int, compiles: bool) -> None:
    once = replace(CPP, compile=tuple(word for word in CPP.compile if "STANDARD" not in word))
    build = asyncio.run(Builds(Crashing(crashes)).build(replace(once, standards=()), GOOD))
    assert isinstance(build.program, Program) == compiles


@needs_cpp
def test_each_language_has_a_hello_of_its_own() -> None:
    builds, other = Builds(Compiler(b"hello")), replace(CPP, hello=f"{BAD} /* other */")
    assert ends(builds, BAD) == [Ended.EXITED]
    assert ends(builds, BAD, language=other) == [Ended.LOST]


def test_a_program_whose_interpreter_vanished_is_not_scored(tmp_path: Path) -> None:
    gone = replace(CPP, compile=(), run=(str(tmp_path / "gone"),))

    async def run(judge: Judge) -> Execution:
        return (await judge.execute(GOOD, language=gone)).execution

    execution = with_judge(run)
    assert (execution.verdict, execution.cause) == (Verdict.INFRA, Cause.MACHINE)
    assert f"{tmp_path}/gone" in execution.detail


def test_a_tool_that_fails_to_tell_its_version_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "tool"
    monkeypatch.setitem(ENVIRONMENT, "PATH", f"{tmp_path}:/usr/bin:/bin")
    lame = replace(CPP, compile=(), run=("tool",))
    for broken in ("exit 1", "echo cannot fork; exit 2"):
        tool.write_text(f"#!/bin/sh\n{broken}\n")
        tool.chmod(0o755)
        with pytest.raises(DataError, match=rf"{tool} --version fails: .* status [12]"):
            lame.versions()
    tool.write_text("#!/bin/sh\necho tool 3.1\n")
    assert lame.versions() == ["tool 3.1"]


def test_a_folder_that_is_too_large_is_refused_at_once() -> None:
    many, big = {f"{at}": b"" for at in range(4500)}, {"a": bytes(257 << 20)}
    for files in (many, big):
        with pytest.raises(DataError, match=r"holds at most 4,096 files of 256 MiB together, not"):
            with_judge(partial(Judge.execute, program="", folder=Folder(files)))


@pytest.mark.parametrize(
    ("files", "fetch", "why"),
    [
        (("a", "a/b"), (), r"^'a' is a file and the folder of 'a/b' in one program's folder"),
        (("program.py/x",), (), r"^'program.py' is a file and the folder of 'program.py/x'"),
        (("x" * 256,), (), r"^'xxxxx.*xxxx' names no file of a program's folder"),
        ((), ("x" * 256,), r"^'xxxxx.*xxxx' names no file of a program's folder"),
        (("d/" * 300 + "x",), (), r"^the path 'd/d.*' has more than 512 bytes"),
        *(((name,), (), "names no file of a program's folder") for name in (
            "", ".", "a/", "a//b", "./a", "../a", "/etc/a", "a\0b",
        )),
    ],
)  # fmt: skip
def test_a_path_that_can_name_no_file_of_a_folder_is_refused_at_once(
    files: tuple[str, ...], fetch: tuple[str, ...], why: str
) -> None:
    folder = Folder(dict.fromkeys(files, b""), fetch)
    with pytest.raises(DataError, match=why):
        with_judge(partial(Judge.execute, program="", folder=folder))


@needs_cpp
def test_where_nothing_compiles_no_program_is_scored_and_hello_says_why() -> None:
    lame = replace(CPP, compile=(*CPP.compile, "-lno_such_library"))

    async def work(judge: Judge) -> list[Execution]:
        runs = [await judge.execute(program, language=lame) for program in (GOOD, lame.hello)]
        return [run.execution for run in runs]

    good, hello = with_judge(work)
    assert (good.verdict, good.cause) == (Verdict.INFRA, Cause.MACHINE)
    assert "assay doctor" in good.detail
    assert hello.verdict is Verdict.COMPILE


@needs_cpp
def test_a_language_with_other_variables_compiles_a_program_anew() -> None:
    """Its compiler gets them: tools that users describe may differ in them alone."""

    async def runs() -> int:
        compiler = Compiler(GOOD.encode())
        builds = Builds(compiler)
        for language in (CPP, CPP, replace(CPP, environment={"CPATH": "/usr/include"})):
            await builds.build(language, GOOD)
        return compiler.runs

    assert asyncio.run(runs()) == 2
