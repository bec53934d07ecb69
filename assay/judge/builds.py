"""Makes programs of other languages ready to run. Equal programs are compiled once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from assay.judge.verdict_cache import BoundedDict
from assay.languages import Language
from assay.sandbox.processes import Executable
from assay.sandbox.program import Ended, Program, Result, command

COMPILE_FACTOR, COMPILED_MB = 10.0, 64
"""A compiler has so many times the time of a program; what it makes has up to so many MiB."""
KEPT = 256
"""Compiled programs that are kept."""


class Folder(NamedTuple):
    """What a program's folder is used for, beside the program."""

    files: Mapping[str, bytes] = {}
    """Files that lie in it; the compiler sees them too."""
    fetch: tuple[str, ...] = ()
    """Files to hand back, where the program makes them."""


class Build(NamedTuple):
    """A program that is ready to run, or why there is none."""

    argv: tuple[str, ...]
    files: Mapping[str, bytes]
    executable: Executable | None = None
    """What a compiler made."""
    compiled: Result | None = None
    """The compiler's result; None where nothing is compiled."""
    failed: bool = False
    """Whether it made nothing."""


class Builds:
    """Compiles by `run`, which runs one program in the sandbox."""

    def __init__(self, run: Callable[[Program], Awaitable[Result]]) -> None:
        self._run = run
        self._made: BoundedDict[tuple[object, ...], asyncio.Task[Build]] = BoundedDict(KEPT)
        self._worked: set[tuple[str, ...]] = set()

    async def build(
        self, language: Language, source: str, beside: Mapping[str, bytes] = MappingProxyType({})
    ) -> Build:
        """A program, ready to run with the files `beside` it. Raises DataError where a tool is not
        installed, SandboxError.
        """
        argv = tuple(_located(language.run, language))
        files = {
            **language.files,
            **beside,
            language.source: source.encode("utf-8", "surrogatepass"),
        }
        if not language.compile:
            return Build(argv, files)
        key = (*language.compile, *language.versions(), *files.items())
        if key not in self._made:
            self._made[key] = asyncio.ensure_future(self._compile(language, argv, files))
        made = self._made[key]
        build = await asyncio.shield(made)
        lost = build.compiled and build.compiled.ended is Ended.LOST
        if lost and self._made.get(key) is made:
            del self._made[key]
        return build._replace(files={**build.files, **beside})

    async def _compile(
        self, language: Language, argv: tuple[str, ...], files: Mapping[str, bytes]
    ) -> Build:
        """Where this compiler has made nothing yet and fails on the language's hello too, that is
        the machine's failure. Raises as `build`.
        """
        compiler = command(
            _located(language.compile, language), files, starts_processes=True,
            fetch=["program"], runtime_mb=1024, time_factor=COMPILE_FACTOR,
            environment=language.environment,
        )  # fmt: skip
        result = await self._run(compiler._replace(fetch_mb=COMPILED_MB))
        if result.ended is Ended.EXITED and result.status == 0 and "program" in result.files:
            self._worked.add(language.compile)
            made, result = result.files["program"], result._replace(files={})
            if argv[0] != "./program":
                return Build(argv, {"program": made}, compiled=result)
            return Build(argv, {}, Executable(made), result)
        hello = {**language.files, language.source: language.hello.encode()}
        untried = language.hello and language.compile not in self._worked and files != hello
        if untried and (await self._compile(language, argv, hello)).failed:
            why = f"no {language.title} program compiles here; `assay doctor --self-test` says why"
            result = result._replace(ended=Ended.LOST, report=why.encode())
        return Build(argv, {}, compiled=result, failed=True)

    def close(self) -> None:
        """Cancel the compilers that run."""
        for made in self._made.values():
            made.cancel()


def _located(words: tuple[str, ...], language: Language) -> list[str]:
    """A command with the path of its tool."""
    tool, *rest = words
    return [tool if "/" in tool else language.locate(tool, language.package), *rest]
