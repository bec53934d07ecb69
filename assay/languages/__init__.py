"""The languages of programs, one per file: how each is compiled, run and shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from assay.errors import DataError
from assay.registry import Registry, suggest
from assay.sandbox.program import ENVIRONMENT

DRIVERS = Path(__file__).parent / "drivers"
VERSION_SECONDS = 10
TEXTS = (
    r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
    r"|\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\[^'\n]{1,9}|[^'\\\n])'"
)
"""Comments, strings and characters as most languages have them."""
FUNCTION = (
    r"[\w>\]][\s*&]{1,9}(?:\w+::)?NAME\s*\([^;{}()]{0,999}(?:\([^()]{0,99}\)[^;{}()]{0,99}){0,9}\)"
    r"[^;{}()]{0,99}\{"
)
"""How a function NAME is defined in C, C++ and Java."""
DECLARED = re.compile(
    r"^(?!(?:return|else|await|new|throw|assert|delete|typeof|defer|go)\b)(?:[\w:]+[ \t]+){1,4}?"
    r"[*&]*(\w+)(?=\s*(?:[({=:;<]|extends\b|implements\b))",
    re.MULTILINE,
)
"""What a source in any language defines at the start of a line."""
SOLUTION = re.compile(r"\b(?:class|struct|impl)\s+Solution\b")


def tool_path(tool: str, package: str) -> str:
    """Where a tool is. Raises DataError where it is not installed."""
    path = shutil.which(tool, path=ENVIRONMENT["PATH"])
    if path is None:
        raise DataError(f"{tool} is not installed; on Debian and Ubuntu: apt install {package}")
    return os.path.realpath(path)


@dataclass(frozen=True, slots=True)
class Language:
    """One language. A program of it reads standard input and prints."""

    title: str
    """Its name in prose: `C++`."""
    source: str
    """The file that holds the program."""
    run: tuple[str, ...]
    """The command that runs it, from a path or a tool's name."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What lies in the program's folder beside it."""
    beside: str = ""
    """Another file whose source is compiled with it; empty where it can have none."""
    warm: bool = False
    """Whether warm processes run it too, and can call its functions; they have no folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its command has beside the usual environment."""
    compile: tuple[str, ...] = ()
    """The command that makes the file `program` of the source; empty where nothing is compiled."""
    fences: tuple[str, ...] = ()
    """Names of it in code fences and data, beside its own."""
    package: str = ""
    """The package of Debian's that brings it."""
    reads: tuple[str, ...] = ()
    """Files and folders outside of the system's that its tools read."""
    started: bytes = b""
    """What its runtime writes to standard error before the program's first line. Where that is
    missing, the machine failed, whatever else was written: no line of the program was run."""
    hello: str = ""
    """A program that prints `hello`."""
    lazy: Mapping[str, str] = field(default_factory=dict)
    """Programs by name that do no work, which no task may pass."""
    runtime_mb: int = 0
    """Memory that its runtime takes beside the program's."""
    time_factor: float = 1.0
    """Multiplies the time limits."""
    starts_processes: bool = False
    """Whether what runs it starts other processes."""
    asks_version: str = "--version"
    """The argument with which its tools tell their version."""

    driver: str = ""
    """The file of drivers/ that calls a program's function: `PROGRAM` stands for the program there,
    unless the file lies `beside` it, and `FUNCTION` for the name."""
    owner: str = ""
    """What names a function of a class Solution in the driver, where that cannot look for it."""
    texts: str = TEXTS
    """A pattern of its comments and strings, which takes linear time."""
    definition: str = FUNCTION
    """A pattern of how it defines NAME."""
    is_code: ClassVar[bool] = True
    """Whether its programs are code; a reply and a prompt have other forms where they are not."""
    reply: ClassVar[str] = ""
    """How a reply then shows the program: a template with {program}."""
    request: ClassVar[str] = ""
    """The template of a prompt then."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools of the machine's that it needs."""
        words = dict.fromkeys((*self.compile[:1], *self.run[:1]))
        return tuple(tool for tool in words if "/" not in tool)

    def locate(self, tool: str) -> str:
        """Where a tool is. Raises DataError where it is not installed."""
        return tool_path(tool, self.package)

    def cut(self, reply: str, whole: bool) -> str | None:
        """The program of a reply that is no code. `whole`: whether the text is nothing else."""
        return None

    def blanked(self, source: str) -> str:
        """A source of the same length and lines, with spaces for its comments and strings."""
        texts = re.compile(self.texts, re.DOTALL)
        return texts.sub(lambda text: re.sub(r"[^\n]", " ", text[0]), source)

    def defines(self, source: str, name: str) -> bool:
        """Whether a source defines this function, class or module."""
        pattern = self.definition.replace("NAME", re.escape(name))
        return re.search(pattern, self.blanked(source), re.MULTILINE) is not None

    def renamed(self, source: str, pattern: str, name: str) -> str:
        """A source with this name for what the pattern finds outside comments and strings."""
        pieces, end = list[str](), 0
        for match in re.finditer(pattern, self.blanked(source)):
            pieces += [source[end : match.start()], match.expand(name)]
            end = match.end()
        return "".join([*pieces, source[end:]])

    def apart(self, program: str, tests: str, function: str) -> str:
        """A program to be put together with tests of its function: with other names for what both
        define, which is its own main or tests.
        """
        ours, theirs = ({*DECLARED.findall(self.blanked(code))} for code in (program, tests))
        names = "|".join(sorted(ours & theirs - {function}))
        return self.renamed(program, rf"(?<!\.)\b({names})\b", r"program_\1") if names else program

    def without_demos(self, source: str, name: str) -> str:
        """A source without the statements at its top level that only try this function."""
        return source

    def without_exit(self, program: str) -> str:
        """A program, less what would end it before code that follows."""
        return program

    def with_imports(self, source: str) -> str:
        """A source that was put together, with just the imports that it uses where a compiler
        refuses others.
        """
        return source

    def drive(
        self, program: str, function: str, calls: Sequence[list[Any]] = ()
    ) -> tuple[str, str]:
        """A program's source with what calls its function, and the source `beside` it. `calls`: the
        arguments of each, for a driver that cannot read JSON.
        """
        text = (DRIVERS / self.driver).read_text()
        owner = self.owner if self.owner and self._is_method(program, function) else ""
        before, placeholder, after = text.replace("FUNCTION", owner + function).partition("PROGRAM")
        program = self.without_exit(program)
        program = self.apart(program, text, function)
        source, beside = (f"{before}{program}{after}", "") if placeholder else (program, before)
        return self.with_imports(source), beside

    def _is_method(self, program: str, name: str) -> bool:
        """Whether a program has a class Solution, and defines this function in braces alone."""
        code, depth, end = self.blanked(program), 0, 0
        for match in re.finditer(
            self.definition.replace("NAME", re.escape(name)), code, re.MULTILINE
        ):
            between = code[end : match.start()]
            depth, end = depth + between.count("{") - between.count("}"), match.start()
            if depth < 1 and f"Solution::{name}" not in match[0]:
                return False
        return SOLUTION.search(code) is not None

    def versions(self) -> list[str]:
        """What its tools say of their version. Raises DataError where one is not installed, or
        fails.
        """
        how = (self.asks_version, "", *self.environment.items())
        return [version(self.locate(tool), *how) for tool in self.tools]


languages: Registry[Language] = Registry("language", "assay.languages")
language = languages.add


@cache
def canonical(name: str) -> str:
    """The language's own name, from that or a name of its fences. Raises DataError for an unknown
    one.
    """
    if name.lower() not in aliases():
        raise DataError(f"the language {name!r} cannot be judged; {suggest(name, languages)}")
    return aliases()[name.lower()]


def aliases() -> dict[str, str]:
    """Each language by its own name and by the names of its fences."""
    return {alias: name for name in languages for alias in (name, *languages[name].fences)}


def language_named(name: str) -> Language:
    """The language by its name or a name of its fences. Raises DataError for an unknown one."""
    return languages[canonical(name)]


def paths_read() -> list[str]:
    """What the tools of all languages read outside of the system's folders."""
    return [path for name in languages for path in languages[name].reads]


@cache
def version(path: str, argument: str, script: str = "", *environment: tuple[str, str]) -> str:
    """The first line in which the tool at a path answers to this argument, and to a script that it
    reads. Raises DataError where it fails; it is asked again then.
    """
    try:
        done = subprocess.run(
            [path, argument], input=script, capture_output=True, text=True, check=True,
            timeout=VERSION_SECONDS, env={**os.environ, **dict(environment)},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise DataError(
            f"{path} {argument} fails: {error}; try again, or install it anew"
        ) from None
    return (done.stdout or done.stderr).strip().partition("\n")[0]
