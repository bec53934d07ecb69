"""Makes programs of other languages ready to run. Equal programs are compiled once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from assay.judge.verdict_cache import SharedWork
from assay.languages import Language
from assay.sandbox.processes import Executable
from assay.sandbox.program import Ended, Program, Result, command

COMPILE_FACTOR, COMPILED_MB = 10.0, 64
"""A compiler has so many times the time of a program; what it makes has up to so many MiB."""
KEPT = 256
"""Compiled programs that are kept."""
MENTIONS_FILES = re.compile(
    r"\bopen\((?!0)|\b(makedirs|mkdir|pathlib|tempfile|shutil|sqlite3|savefig|__file__)\b|/dev/std"
)
BROKEN = "the compiler fails on a hello too; `assay doctor --self-test` says why"


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


def folder_of(program: str) -> Folder | None:
    """A folder where a program's text says that it needs one, which warm processes have not."""
    return Folder() if MENTIONS_FILES.search(program) else None


class Builds:
    """Compiles by `run`, which runs one program in the sandbox."""

    def __init__(self, run: Callable[[Program], Awaitable[Result]]) -> None:
        self._run = run
        self._made: SharedWork[bytes, Build] = SharedWork(KEPT)

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
        parts = (*language.compile, *language.versions(), *files.items())
        key = hashlib.sha256(repr(parts).encode()).digest()
        make = partial(self._compile, language, argv, files)
        build = await self._made.get_or_make(key, make)
        result, hello = build.compiled, language.hello
        if result and build.failed and result.ended is not Ended.LOST and hello not in ("", source):
            failed = (await self.build(language, hello)).failed
            result = result._replace(ended=Ended.LOST, detail=BROKEN) if failed else result
        if (result and result.ended is Ended.LOST) or (build.failed and source == hello):
            self._made.pop(key, None)
        return build._replace(files={**build.files, **beside}, compiled=result)

    async def _compile(
        self, language: Language, argv: tuple[str, ...], files: Mapping[str, bytes]
    ) -> Build:
        compiler = command(
            _located(language.compile, language), files, starts_processes=True,
            fetch=["program"], runtime_mb=1024, time_factor=COMPILE_FACTOR,
            environment=language.environment,
        )  # fmt: skip
        result = await self._run(compiler._replace(fetch_mb=COMPILED_MB))
        if result.ended is Ended.EXITED and result.status == 0 and "program" in result.files:
            made, result = result.files["program"], result._replace(files={})
            if argv[0] != "./program":
                return Build(argv, {"program": made}, compiled=result)
            return Build(argv, {}, Executable(made), result)
        return Build(argv, {}, compiled=result, failed=True)

    def close(self) -> None:
        """Cancel the compilers that run."""
        self._made.close()


def _located(words: tuple[str, ...], language: Language) -> list[str]:
    """A command with the path of its tool."""
    tool, *rest = words
    return [tool if "/" in tool else language.locate(tool), *rest]
