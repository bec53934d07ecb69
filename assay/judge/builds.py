"""Makes programs ready to run. Equal programs are compiled once."""

from __future__ import annotations

import hashlib
import re
import reprlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import NamedTuple

from assay.errors import DataError
from assay.judge.prepared_task import pool_for
from assay.judge.shared_work import SharedWork
from assay.judge.verdict import compile_failure
from assay.languages import Language
from assay.sandbox.kernel import MIB
from assay.sandbox.limits import LONGEST
from assay.sandbox.namespaces import WORK_FILES, WORK_MB
from assay.sandbox.processes import Executable
from assay.sandbox.program import BY_MACHINE, Ended, Folder, Pool, Program, Result, command
from assay.types import Execution

COMPILE_FACTOR, COMPILED_MB = 10.0, 64
"""A compiler has so many times the time of a program; what it makes has up to so many MiB."""
PART_BYTES, PATH_BYTES = 255, 512
"""What the file system takes as a part of a path; and the longest path, of which as many as may be
handed back fit into one message."""
KEPT, KEPT_MB = 256, 512
"""Compiled programs that are kept, and their MiB."""
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


def require_paths(files: Collection[str], fetch: Collection[str]) -> None:
    """Require that these can name files of one folder. Raises DataError for the first that
    cannot.
    """
    for name in (*files, *fetch):
        path, parts = PurePosixPath(name), name.split("/")
        longest = max(len(part.encode("utf-8", "surrogatepass")) for part in parts)
        if not {"", ".", ".."}.isdisjoint(parts) or "\0" in name or longest > PART_BYTES:
            raise DataError(
                f"{reprlib.repr(name)} names no file of a program's folder; give a path below it,"
                f" such as folder/name, whose parts have at most {PART_BYTES} bytes"
            )
        if len(name.encode("utf-8", "surrogatepass")) > PATH_BYTES:
            raise DataError(f"the path {reprlib.repr(name)} has more than {PATH_BYTES} bytes")
        if above := [str(folder) for folder in path.parents[:-1] if str(folder) in files]:
            raise DataError(
                f"{reprlib.repr(above[0])} is a file and the folder of {reprlib.repr(name)} in one"
                " program's folder; give one of them another name"
            )


def folder_of(program: str) -> Folder | None:
    """A folder where a program's text says that it needs one, which warm processes have not."""
    return Folder() if MENTIONS_FILES.search(program) else None


class Builds:
    """Compiles by `run`, which runs one program in the sandbox."""

    def __init__(self, run: Callable[[Program], Awaitable[Result]]) -> None:
        self._run = run
        self._made: SharedWork[bytes, Compiled] = SharedWork(KEPT, KEPT_MB)

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
        require_paths(files, target.fetch)
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
            reserves=language.reserves and not language.starts_processes,
        )  # fmt: skip
        return Build(program._replace(executable=executable), compiled)

    async def _compiled(
        self, language: Language, source: str, files: Mapping[str, bytes]
    ) -> Compiled:
        """What the compiler makes of these files, of which one is the source. Where it makes
        nothing of a hello either, the machine failed.
        """
        parts = (language, *language.identity(), *files.items())
        key = hashlib.sha256(repr(parts).encode()).digest()
        compiled = await self._made.get_or_make(key, partial(self._compile, language, files))
        failed, lost = compiled.output is None, compiled.result.ended in BY_MACHINE
        if failed and not lost and language.hello not in ("", source):
            hello = await self.build(language, language.hello)
            if lost := isinstance(hello.program, Execution):
                compiled = Compiled(compiled.result._replace(ended=Ended.LOST, detail=BROKEN))
        if lost or (failed and source == language.hello):
            self._made.pop(key, None)
        return compiled

    async def _compile(self, language: Language, files: Mapping[str, bytes]) -> Compiled:
        """What the first compiler makes, or the next one where that refuses the program."""
        first, *others = language.compilers()
        compiled = await self._compile_by(first, language, files)
        crash = language.crash_status
        if crash and compiled.output is None and compiled.result.status == crash:
            compiled = await self._compile_by(first, language, files)
        for words in others:
            if compiled.output is None and compiled.result.ended is Ended.EXITED:
                older = await self._compile_by(words, language, files)
                compiled = compiled if older.output is None else older
        return compiled

    async def _compile_by(
        self, words: tuple[str, ...], language: Language, files: Mapping[str, bytes]
    ) -> Compiled:
        result = await self._run(command(
            _located(words, language), Folder(files, ("program",), COMPILED_MB),
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
