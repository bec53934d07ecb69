"""What is said and run in a demonstration: look, search, read, write the change, and submit."""

from __future__ import annotations

import ast
import builtins
import keyword
import random
import re
import shlex
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from assay.demonstrate.changes import WAYS, Place, RightChange, here_document, operand
from assay.environments.shell import SUBMIT
from assay.extract.fences import fenced_blocks
from assay.maths.seeds import derive

SHORT = 60
"""Lines of a file that is shown whole."""
NEAR = 30
"""Lines between two places that are shown together."""
MOST_LINES = 20
"""Lines of a search that are shown."""
MOST_PLACES = 6
"""Places of a change that a demonstration goes through."""
WORD = re.compile(r"[^\W\d]\w{2,}")
QUOTED = re.compile(r"`([^`\n]+)`")
DEFINITION = re.compile(r"^ *(?:async +def|def|class) +(\w+)", re.MULTILINE)
USUAL = {*keyword.kwlist, *dir(builtins), "self", "import", "print"}
"""Names that say nothing of a place."""


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One reply: what the model says, and the command that it runs."""

    text: str
    command: str
    may_fail: bool = False
    """Whether the conversation is right where the command fails, too."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came of a step."""

    text: str
    """What the model reads of it."""
    succeeded: bool


Script = Generator[ScriptStep, StepResult, None]


class UnfitScriptError(Exception):
    """Raised by a script that does not fit what it sees; another one may."""


@dataclass(frozen=True, slots=True)
class ScriptPlan:
    """The choices of a script."""

    look: int
    """Number of the command that lists files."""
    search: int
    """Number of the command that searches for a name."""
    reads_tests: bool
    """Look at which tests there are."""
    reproduces: bool
    """Run the program of the statement before and after the change, where it has one."""
    margin: int
    """Lines that are shown around a place."""
    numbers: bool
    """Show lines with their numbers, also where the change needs none."""
    way: str
    """How the change is written: a name of WAYS, where it fits."""
    wording: int
    """Seed of the sentences."""

    @property
    def plainest(self) -> ScriptPlan:
        """The same without what may not fit a task."""
        return replace(self, reproduces=False, way="diff")


def draw_plan(seed: int, task: str, number: int) -> ScriptPlan:
    """The plan that a seed decides for a task's conversation of this number."""
    draw = random.Random(derive(seed, "demonstrate", task, number))
    return ScriptPlan(
        look=draw.randrange(len(LOOKS)), search=draw.randrange(len(SEARCHES)),
        reads_tests=draw.random() < 0.3, reproduces=draw.random() < 0.6,
        margin=draw.choice((10, 15, 25)), numbers=draw.random() < 0.5,
        way=draw.choice(tuple(WAYS)), wording=draw.randrange(1 << 30),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Situation:
    """A task as a script sees it."""

    statement: str
    change: RightChange
    files: Sequence[str]
    """The paths of all files."""
    source_folders: Sequence[str]
    """Where its packages lie, relative to the tree; the work folder is found without."""
    has_git: bool
    """Whether the box of the task has a git repository."""


LOOKS = ("ls", "git ls-files", "find", "git log")
SEARCHES = ("grep", "git grep", "words")
SAYINGS = {
    "look": ("I look at the files first.", "First I see what the repository holds.",
             "I start with a list of the files."),
    "tests": ("I see which tests there are.", "The tests may say how it is used."),
    "program": ("I run the program of the report.", "First I reproduce what the report shows.",
                "I want to see the failure myself."),
    "search": ("The report names `{name}`. I search for it.", "Now I look for `{name}`.",
               "Where is `{name}`?"),
    "list": ("I look at what `{path}` defines.", "I list the definitions in `{path}`."),
    "read": ("I read the code in `{path}`.", "I show the lines of `{path}` that matter.",
             "Now the code itself, in `{path}`."),
    "write": ("I fix it in `{path}`.", "The cause is in `{path}`. I change it.",
              "I change `{path}`."),
    "more": ("I change the other place in `{path}` too.", "`{path}` needs another change."),
    "again": ("I run the program again.", "Does the program of the report work now?"),
    "diff": ("I check the change.", "I look at the diff before I submit.", "Is the change right?"),
    "submit": ("The fix is done. I submit it.", "That is the whole fix. I submit.",
               "The change is as I want it, so I submit."),
}  # fmt: skip


class Wording:
    """Draws the sentences of one conversation."""

    def __init__(self, plan: ScriptPlan) -> None:
        self._random = random.Random(plan.wording)

    def say(self, what: str, **names: str) -> str:
        """A sentence on a step."""
        return self._random.choice(SAYINGS[what]).format(**names)


def script(situation: Situation, plan: ScriptPlan) -> Script:
    """The steps of a conversation, one after another; each `yield` returns what came of it. Raises
    UnfitScriptError.
    """
    wording, change = Wording(plan), situation.change
    yield ScriptStep(wording.say("look"), _look(situation, plan))
    if plan.reads_tests and (tests := _tests_of(situation.files)):
        yield ScriptStep(wording.say("tests"), f"ls {shlex.quote(tests)}")
    program = _program_of(situation) if plan.reproduces else ""
    before = (yield ScriptStep(wording.say("program"), program, may_fail=True)) if program else None
    yield from _find(situation, plan, wording)
    edits = WAYS[plan.way](change) if change.is_of_places else []
    by_numbers = not edits or plan.way != "python"
    for path, lines in windows(change.places, plan.margin):
        command = _show(change, path, lines, numbers=plan.numbers or by_numbers)
        yield ScriptStep(wording.say("read", path=path), command)
    for number, edit in enumerate(edits or WAYS["diff"](change)):
        text = wording.say("more" if number else "write", path=edit.path)
        yield ScriptStep(text, edit.command)
    if before:
        after = yield ScriptStep(wording.say("again"), program, may_fail=True)
        if after == before:
            raise UnfitScriptError("the program of the statement shows no difference")
    if situation.has_git:
        yield ScriptStep(wording.say("diff"), "git diff")
    yield ScriptStep(wording.say("submit"), f"echo {SUBMIT}")


def _look(situation: Situation, plan: ScriptPlan) -> str:
    if not situation.has_git or LOOKS[plan.look] == "ls":
        return "ls"
    return {
        "git ls-files": "git ls-files | head -n 50",
        "git log": "git log --oneline | head -n 3; ls",
        "find": "find . -name '*.py' -not -path './.git/*' | sort | head -n 50",
    }[LOOKS[plan.look]]


def _tests_of(files: Sequence[str]) -> str:
    """The folder of tests; empty where there is none."""
    folders = (PurePosixPath(file).parts[:-1] for file in files)
    return next((parts[0] for parts in folders if parts and parts[0] in ("tests", "test")), "")


def _program_of(situation: Situation) -> str:
    """The command that runs the program of the statement; empty where it has none."""
    for block in fenced_blocks(situation.statement):
        if block.tag == "python" and block.closed:
            try:
                ast.parse(block.code)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            folders = [path for path in situation.source_folders if path != "."]
            variable = f"PYTHONPATH={shlex.quote(':'.join(folders))} " if folders else ""
            # without -B, a cache of the same second would hide a change of equal size
            return f"{variable}python3 {here_document(block.code, option='-B -')}"
    return ""


def _find(situation: Situation, plan: ScriptPlan, wording: Wording) -> Script:
    """Search for what the statement names, and list the definitions of each long file with a place
    that this does not lead to.
    """
    change = situation.change
    if name := named_place(situation.statement, change):
        yield ScriptStep(wording.say("search", name=name), _search(situation, plan, name))
    for path, text in change.before.items():
        places = [place for place in change.places[:MOST_PLACES] if place.path == path]
        leads_there = all(name in definitions_above(text or "", place)[:1] for place in places)
        if text is None or leads_there or text.count("\n") <= SHORT or not DEFINITION.search(text):
            continue
        command = f"grep -nE '^ *(class|def|async def) ' {operand(path)}"
        yield ScriptStep(wording.say("list", path=path), command)


def definitions_above(text: str, place: Place) -> list[str]:
    """The names of functions and classes that are defined above a place, the nearest first."""
    above = "\n".join(text.split("\n")[: place.line])
    return [match[1] for match in DEFINITION.finditer(above)][::-1]


def _search(situation: Situation, plan: ScriptPlan, name: str) -> str:
    is_defined = any(
        re.search(rf"\b(?:def|class) {re.escape(name)}\b", text or "")
        for text in situation.change.before.values()
    )
    kind = SEARCHES[plan.search]
    if kind == "words" or not is_defined:
        return f"grep -rnw {name} --include='*.py' . | head -n {MOST_LINES}"
    find = rf"'\(def\|class\) {name}\b'"
    if kind == "git grep" and situation.has_git:
        return f"git grep -n {find} | head -n {MOST_LINES}"
    return f"grep -rn {find} --include='*.py' . | head -n {MOST_LINES}"


def named_place(statement: str, change: RightChange) -> str:
    """A name that the statement shows as code and a changed file has: the nearest one that is
    defined above a place, else any that is defined there, else any. Empty where there is none.
    """
    code = [*QUOTED.findall(statement), *(block.code for block in fenced_blocks(statement))]
    words: dict[str, None] = dict.fromkeys(name for text in code for name in WORD.findall(text))
    names = [name for name in words if name not in USUAL]
    for place in change.places[:MOST_PLACES]:
        for name in definitions_above(change.before[place.path] or "", place):
            if name in names:
                return name
    texts = [text for path, text in change.before.items() if text and path.endswith(".py")]
    for form in (r"\b(?:def|class) {}\b", r"\b{}\b"):
        for name in names:
            if any(re.search(form.format(name), text) for text in texts):
                return name
    return ""


def windows(places: Sequence[Place], margin: int) -> Iterator[tuple[str, range]]:
    """The lines to read around places, by their path; places that are near come together."""
    spans: list[tuple[str, int, int]] = []
    for place in places[:MOST_PLACES]:
        last = place.line + max(len(place.old), 1) - 1
        if spans and spans[-1][0] == place.path and place.line - spans[-1][2] <= NEAR:
            spans[-1] = (place.path, spans[-1][1], last)
        else:
            spans.append((place.path, place.line, last))
    for path, first, last in spans:
        start = max(first - margin, 1) // 10 * 10 or 1  # a round number, as one that is guessed
        yield path, range(start, last + margin + 1)


def _show(change: RightChange, path: str, lines: range, *, numbers: bool) -> str:
    quoted, text = operand(path), change.before[path] or ""
    if text.count("\n") <= SHORT:
        return f"cat {'-n ' * numbers}{quoted}"
    span = f"'{lines.start},{lines.stop - 1}p'"
    return f"cat -n {quoted} | sed -n {span}" if numbers else f"sed -n {span} {quoted}"
