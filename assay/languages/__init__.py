"""The languages of programs, one per file: how each is compiled, run and shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from assay.content import digest_of
from assay.errors import DataError, NotInstalledError, SandboxError
from assay.os_errors import PATH_ERRORS, advice
from assay.plugin_code import code_of
from assay.registry import Registry
from assay.sandbox.program import ENVIRONMENT
from assay.suggestions import suggest

DRIVERS = Path(__file__).parent / "drivers"
VERSION_SECONDS = 10
TEXTS = (
    r"//[^\n]*|/\*(?s:.*?)(?:\*/|\Z)"
    r"|\"(?:\\.|[^\"\\\n])*+\"?|'(?:\\[^'\n]{1,9}|[^'\\\n])'"
)
"""Comments, strings and characters as most languages have them."""
FUNCTION = (
    r"(?:[\w>\]][\s*&]{1,9}|>)(?:\w+::)?NAME\s*\([^()]{0,1999}\)"
    r"[^;{}()]{0,99}(?:\([^()]{0,299}\)[^;{}()]{0,99}){0,3}\{"
)
"""How a function NAME is defined in C, C++ and Java, in flat code."""
BRACKET = re.compile(r"[(){};]")
DECLARED = re.compile(
    r"^(?!(?:return|else|await|new|throw|assert|delete|typeof|defer|go)\b)(?:[\w:]+[ \t]+){1,4}?"
    r"[*&]*(\w+)(?=\s*(?:[({=:;<]|extends\b|implements\b))",
    re.MULTILINE,
)
"""What a source in any language defines at the start of a line."""
SOLUTION = re.compile(r"\b(?:class|struct|impl)\s+Solution\b")


def tool_path(tool: str, package: str) -> str:
    """Returns where a tool is. Raises NotInstalledError where it is not installed."""
    path = shutil.which(tool, path=ENVIRONMENT["PATH"])
    if path is None:
        raise NotInstalledError(
            f"{tool} is not installed; on Debian and Ubuntu: apt install {package}"
        )
    return os.path.realpath(path)


@dataclass(frozen=True, slots=True)
class Language:
    """A language. Its programs read standard input and print."""

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
    crash_status: int = 0
    """The status with which its compiler exits where it failed itself, as for want of a thread;
    another try then tells whether the program is the reason."""
    uses: tuple[str, ...] = ()
    """Tools that its commands start, beside those with which they begin."""
    standards: tuple[str, ...] = ()
    """Values of the compiler's -std, newest first: the first one that it knows stands for STANDARD
    in `compile`, and the last one where that refuses a program."""
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
    reserves: bool = False
    """Whether its programs may reserve more memory than they use, as for the stacks of threads."""
    time_factor: float = 1.0
    """Multiplies the time limits."""
    starts_processes: bool = False
    """Whether what runs it starts other processes."""
    asks_version: str = "--version"
    """The argument with which its tools tell their version."""
    dialect: str = "{title} {version}"
    """Its name in prompts, with the standard or the version of its last tool."""
    version_number: str = r"\d+\.\d+"
    """A pattern of what a prompt names of that version."""

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
        """Returns the tools of the machine's that it needs."""
        return tools_among((*self.compile[:1], *self.run[:1], *self.uses))

    def locate(self, tool: str) -> str:
        """Returns where a tool is. Raises NotInstalledError where it is not installed."""
        return tool_path(tool, self.package)

    def with_own_line_ends(self, text: str) -> str:
        """Returns a program or reply with the line ends that it is judged with, which are line
        feeds.
        """
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def cut(self, reply: str, whole: bool) -> str | None:
        """Returns the program of a reply that is no code. `whole`: whether the text is
        nothing else.
        """
        return None

    def blanked(self, source: str) -> str:
        """Returns a source of the same length and lines, with spaces for its comments and
        strings.
        """
        texts = re.compile(self.texts, re.DOTALL)
        return texts.sub(lambda text: re.sub(r"[^\n]", " ", text[0]), source)

    def defines(self, source: str, name: str) -> bool:
        """Says whether a source defines this function, class or module."""
        pattern = self.definition.replace("NAME", re.escape(name))
        return re.search(pattern, flat(self.blanked(source)), re.MULTILINE) is not None

    def renamed(self, source: str, pattern: str, name: str) -> str:
        """Returns a source with this name for what the pattern finds outside comments and
        strings.
        """
        pieces, end = list[str](), 0
        for match in re.finditer(pattern, self.blanked(source)):
            pieces += [source[end : match.start()], match.expand(name)]
            end = match.end()
        return "".join([*pieces, source[end:]])

    def apart(self, program: str, tests: str, function: str) -> str:
        """Returns a program to be put together with tests of its function. What both define, such
        as its own main or tests, gets other names.
        """
        ours, theirs = ({*DECLARED.findall(self.blanked(code))} for code in (program, tests))
        names = "|".join(sorted(ours & theirs - {function}))
        return self.renamed(program, rf"(?<!\.)\b({names})\b", r"program_\1") if names else program

    def without_demos(self, source: str, name: str) -> str:
        """Returns a source without the statements at its top level that only try this function."""
        return source

    def without_exit(self, program: str) -> str:
        """Returns a program without what would end it before code that follows."""
        return program

    def with_imports(self, source: str) -> str:
        """Returns a source that was put together, with just the imports that it uses where a
        compiler refuses others.
        """
        return source

    def drive(
        self, program: str, function: str, calls: Sequence[list[Any]] = ()
    ) -> tuple[str, str]:
        """Returns a program's source with what calls its function, and the source `beside` it.
        `calls`: the arguments of each, for a driver that cannot read JSON.
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
        code, depth, end = flat(self.blanked(program)), 0, 0
        for match in re.finditer(
            self.definition.replace("NAME", re.escape(name)), code, re.MULTILINE
        ):
            between = code[end : match.start()]
            depth, end = depth + between.count("{") - between.count("}"), match.start()
            if depth < 1 and f"Solution::{name}" not in match[0]:
                return False
        return SOLUTION.search(code) is not None

    def versions(self) -> list[str]:
        """Returns what its tools say of their version. Raises NotInstalledError without them, or
        where one fails.
        """
        how = (self.asks_version, "", *self.environment.items())
        paths = [self.locate(tool) for tool in self.tools]
        versions = [version(path, content_of(path), *how) for path in paths]
        if self.compile and self.standards:
            compiler = paths[0], content_of(paths[0]), versions[0]
            versions.append(f"-std={newest_standard(*compiler, self.standards)}")
        return versions

    def identity(self) -> list[str]:
        """Returns what decides beside its fields how a program is run: its tools' versions and
        contents, and the code of a plug-in. Raises NotInstalledError as `versions`.
        """
        tools = self.tools
        paths = [*map(self.locate, tools), *self.compile[:1], *self.run[:1]]
        contents = [content_of(path) for path in paths if path[:1] == "/"]
        versions = self.versions() if tools else []
        return [*versions, *contents, code_of(type(self))]

    def compilers(self) -> list[tuple[str, ...]]:
        """Returns the commands that compile. The next one is tried where one refuses a program.
        Raises DataError where the compiler is not installed.
        """
        if not (self.compile and self.standards):
            return [self.compile]
        newest = self.versions()[-1].removeprefix("-std=")
        names = dict.fromkeys((newest, self.standards[-1]))
        return [tuple(word.replace("STANDARD", name) for word in self.compile) for name in names]

    def title_here(self) -> str:
        """Returns its name in a prompt: `C++23`, `Python 3.11`. It has no version where its tools
        are not installed.
        """
        try:
            answer = [*self.versions()[-1:], ""][0] if self.is_code else ""
        except DataError:
            return self.title
        standard = re.sub(r"-std=gnu[+]*", "", answer)
        number = re.search(self.version_number, answer)
        return self.dialect.format(
            title=self.title, standard=standard, version=number[0] if number else ""
        ).rstrip()


@lru_cache(256)
def tools_among(words: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these words that are no path, each once."""
    return tuple(tool for tool in dict.fromkeys(words) if "/" not in tool)


def flat(code: str) -> str:
    """Blanked code with spaces for the brackets and semicolons inside of parentheses, whatever is
    nested there: a pattern then sees where they end. Parentheses that are never closed stay.
    """
    starts, pairs = list[int](), list[tuple[int, int]]()
    for bracket in re.finditer(r"[()]", code):
        if bracket[0] == "(":
            starts.append(bracket.start())
        elif starts:
            start = starts.pop()
            while pairs and pairs[-1][0] > start:
                pairs.pop()
            pairs.append((start, bracket.start()))
    pieces, end = list[str](), 0
    for start, close in pairs:
        pieces += [code[end : start + 1], BRACKET.sub(" ", code[start + 1 : close])]
        end = close
    return "".join([*pieces, code[end:]])


languages: Registry[Language] = Registry("language", "assay.languages")
language = languages.add


@cache
def canonical(name: str) -> str:
    """Returns the language's own name, from that or a name of its fences. Raises DataError for an
    unknown one.
    """
    if name.lower() not in aliases():
        raise DataError(f"the language {name!r} cannot be judged; {suggest(name, languages)}")
    return aliases()[name.lower()]


def aliases() -> dict[str, str]:
    """Returns each language by its own name and by the names of its fences."""
    return {alias: name for name in languages for alias in (name, *languages[name].fences)}


def language_named(name: str) -> Language:
    """Returns the language by its name or a name of its fences. Raises DataError for an
    unknown one.
    """
    return languages[canonical(name)]


def paths_read() -> list[str]:
    """What the tools of all languages read outside of the system's folders."""
    return [path for name in languages for path in languages[name].reads]


def content_of(tool: str) -> str:
    """The digest of a tool's file. Raises NotInstalledError where it cannot be read, SandboxError
    where the machine cannot read just now.
    """
    try:
        return digest_of(tool)
    except OSError as error:
        kind = NotInstalledError if error.errno in PATH_ERRORS else SandboxError
        raise kind(f"{tool} cannot be read: {error.strerror}; {advice(error)}") from None


@lru_cache(256)
def newest_standard(compiler: str, content: str, answer: str, names: tuple[str, ...]) -> str:
    """The first of these standards that a compiler knows, or else the last. The compiler is asked
    once for each content of its file and each `answer` to what its version is.
    """
    for name in names:
        source = "c++" if "++" in name else "c"
        asks = [compiler, f"-std={name}", "-E", "-x", source, os.devnull]
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(asks, capture_output=True, check=True, timeout=VERSION_SECONDS)
            return name
    return names[-1]


@lru_cache(256)
def version(
    path: str, content: str, argument: str, script: str = "", *environment: tuple[str, str]
) -> str:  # fmt: skip
    """The first line in which the tool at a path answers to this argument, and to a script that it
    reads. Raises NotInstalledError where it fails; it is asked again then, and where `content`, the
    digest of its file, is another.
    """
    try:
        done = subprocess.run(
            [path, argument], input=script, capture_output=True, text=True, check=True,
            timeout=VERSION_SECONDS, env={**os.environ, **dict(environment)},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalledError(
            f"{path} {argument} fails: {error}; try again, or install it anew"
        ) from None
    return (done.stdout or done.stderr).strip().partition("\n")[0]
