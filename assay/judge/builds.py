"""Makes programs ready to run. Equal programs are compiled once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from assay.errors import DataError
from assay.judge.prepared_task import pool_for
from assay.judge.verdict import compile_failure
from assay.judge.verdict_cache import SharedWork
from assay.languages import Language
from assay.sandbox.kernel import MIB
from assay.sandbox.limits import LONGEST
from assay.sandbox.namespaces import WORK_FILES, WORK_MB
from assay.sandbox.processes import Executable
from assay.sandbox.program import Ended, Folder, Pool, Program, Result, command
from assay.types import Execution

COMPILE_FACTOR, COMPILED_MB = 10.0, 64
"""A compiler has so many times the time of a program; what it makes has up to so many MiB."""
KEPT = 256
"""Compiled programs that are kept."""
MENTIONS_FILES = re.compile(
    r"\bopen\((?!0)|\b(makedirs|mkdir|pathlib|tempfile|shutil|sqlite3|savefig|__file__)\b|/dev/std"
)
BROKEN = "the compiler fails on a hello too; `assay doctor --self-test` says why"


class Compiled(NamedTuple):
    """What came of a compiler."""

    result: Result
    output: bytes | Executable | None = None
    """The file `program`; None where it made none."""


class Build(NamedTuple):
    """A program that is ready to run from its standard input, as long as this is there."""

    program: Program | Execution
    """The compiler's failure where there is none."""
    compiled: Compiled | None = None
    """None where nothing is compiled."""


def folder_of(program: str) -> Folder | None:
    """A folder where a program's text says that it needs one, which warm processes have not."""
    return Folder() if MENTIONS_FILES.search(program) else None


class Builds:
    """Compiles by `run`, which runs one program in the sandbox."""

    def __init__(self, run: Callable[[Program], Awaitable[Result]]) -> None:
        self._run = run
        self._made: SharedWork[bytes, Compiled] = SharedWork(KEPT)

    async def build(
        self, language: Language, source: str, folder: Folder | None = None,
        time_factor: float = 1.0, pool: Pool | None = None,
    ) -> Build:  # fmt: skip
        """A program, ready to run. A process of the pool runs it where it needs no folder and is
        Python. Raises DataError where a tool is not installed or the folder is too large,
        SandboxError.
        """
        encoded = source.encode("utf-8", "surrogatepass")
        factor = min(time_factor * language.time_factor, LONGEST)
        if language.warm and folder is None:
            return Build(Program(encoded, pool=pool or pool_for(source), time_factor=factor))
        target, compiled, executable = folder or Folder(), None, ""
        files = {**language.files, **target.files, language.source: encoded}
        if len(files) >= WORK_FILES or sum(map(len, files.values())) > WORK_MB * MIB:
            most = f"at most {WORK_FILES:,} files of {WORK_MB} MiB together"
            raise DataError(f"a program's folder holds {most}, not {len(files):,}; give fewer")
        argv = _located(language.run, language)
        if language.compile:
            compiled = await self._compiled(language, source, files)
            if compiled.output is None:
                return Build(compile_failure(compiled.result), compiled)
            if isinstance(compiled.output, Executable):
                files, executable = {**target.files}, compiled.output.path
            else:
                files = {"program": compiled.output, **target.files}
        program = command(
            argv, target._replace(files=files), starts_processes=language.starts_processes,
            runtime_mb=language.runtime_mb, time_factor=factor, environment=language.environment,
        )  # fmt: skip
        return Build(program._replace(executable=executable), compiled)

    async def _compiled(
        self, language: Language, source: str, files: Mapping[str, bytes]
    ) -> Compiled:
        """What the compiler makes of these files, of which one is the source. Where it makes
        nothing of a hello either, the machine failed.
        """
        parts = (*language.compile, *language.versions(), *files.items())
        key = hashlib.sha256(repr(parts).encode()).digest()
        compiled = await self._made.get_or_make(key, partial(self._compile, language, files))
        failed, lost = compiled.output is None, compiled.result.ended is Ended.LOST
        if failed and not lost and language.hello not in ("", source):
            hello = await self.build(language, language.hello)
            if lost := isinstance(hello.program, Execution):
                compiled = Compiled(compiled.result._replace(ended=Ended.LOST, detail=BROKEN))
        if lost or (failed and source == language.hello):
            self._made.pop(key, None)
        return compiled

    async def _compile(self, language: Language, files: Mapping[str, bytes]) -> Compiled:
        result = await self._run(command(
            _located(language.compile, language), Folder(files, ("program",), COMPILED_MB),
            starts_processes=True, runtime_mb=1024, time_factor=COMPILE_FACTOR,
            environment=language.environment,
        ))  # fmt: skip
        output, result = result.files.get("program"), result._replace(files={})
        if output is None or result.ended is not Ended.EXITED or result.status != 0:
            return Compiled(result)
        return Compiled(result, Executable(output) if language.run[0] == "./program" else output)

    def close(self) -> None:
        """Cancel the compilers that run."""
        self._made.close()


def _located(words: tuple[str, ...], language: Language) -> list[str]:
    """A command with the path of its tool."""
    tool, *rest = words
    return [tool if "/" in tool else language.locate(tool), *rest]
