"""A bug as it is tried, where bugs come from, and what becomes of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from random import Random
from typing import Protocol

from assay.make_tasks.diffs import bug_and_repair
from assay.make_tasks.edits import Change, SourceFile, applied
from assay.make_tasks.pairs import PAIR_OPERATORS, changes

COMMIT = "commit"
"""The operator of a bug that a commit repaired."""


class Fate(StrEnum):
    """What became of a bug."""

    KEPT = "kept"
    SAME_CODE = "same code"
    """Its syntax tree is the original's, another bug's, or none; it was not tried."""
    LOST = "endpoint failed"
    """The endpoint of a model failed a few times; there is no bug."""
    NO_CODE = "no code"
    """A model's reply has no such function."""
    NO_PYTHON = "does not compile"
    """A model's code is no Python."""
    SIGNATURE = "signature changed"
    """A model's function takes other parameters."""
    UNNOTICED = "no test fails"
    MOST_FAIL = "most fail"
    """Nobody who runs the tests once leaves it."""
    CRASHES = "crashes where it is"
    """Each failure is a crash at the changed line: the traceback says what to undo."""
    ONE_PLACE = "one place decides"
    """A bug of two places that one of both repairs."""
    BROKEN = "broken"
    """A test file cannot be imported, or tests vanish, crash or take too long."""
    UNSTABLE = "unstable"
    """Other tests fail the second time."""
    ALIKE = "alike"
    """The same tests fail in the same way as with a bug before."""
    ANSWER_SHOWN = "answer shown"
    """The original code stands elsewhere in the tree or in the statement."""
    NOT_SHOWN = "no statement"
    """No short program shows it."""
    UNPROVEN = "unproven"
    """The judge does not pass the original code."""


UNTRIED = (Fate.SAME_CODE, Fate.LOST, Fate.NO_CODE, Fate.NO_PYTHON, Fate.SIGNATURE)
"""Ends of candidates with which no test ran."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a bug changes."""

    path: str
    change: Change
    """From the right text to the one with the bug."""
    original: bytes

    @property
    def changed(self) -> bytes:
        """The file with the bug."""
        return applied(self.change, self.original)


@dataclass(frozen=True, slots=True)
class Bug:
    """A change of files that makes right code wrong."""

    operator: str
    """How it was made, as the task's tags say."""
    files: tuple[ChangedFile, ...]

    @property
    def texts(self) -> dict[str, bytes]:
        """The files with the bug, by path."""
        return {file.path: file.changed for file in self.files}

    @property
    def halves(self) -> list[dict[str, bytes]]:
        """The file with each place of two operators' bug alone; none for any other bug."""
        return [
            {file.path: applied((edit,), file.original)}
            for file in self.files if self.operator in PAIR_OPERATORS for edit in file.change
        ]  # fmt: skip

    def diffs(self) -> tuple[str, str]:
        """The diff that puts the bug into the tree, and the one that takes it out."""
        pairs = [bug_and_repair(file.path, file.change, file.original) for file in self.files]
        bugs, repairs = zip(*pairs, strict=True)
        return "".join(bugs), "".join(repairs)


Candidate = Callable[[], Awaitable[Bug | Fate]]
"""Makes a bug, or says why there is none."""


class BugSource(Protocol):
    """Where the bugs of a tree come from."""

    def candidates(self, files: Mapping[str, SourceFile], random: Random) -> list[Candidate]:
        """Candidates of the files of a tree, by path, in the order in which they are tried."""


class Operators:
    """Bugs by the operators: one of each by turns, at a random place."""

    def candidates(self, files: Mapping[str, SourceFile], random: Random) -> list[Candidate]:
        """As BugSource."""
        places: dict[str, list[Bug]] = defaultdict(list)
        for path, source in files.items():
            for operator, change in changes(source):
                bug = Bug(operator, (ChangedFile(path, change, source.data),))
                places[operator].append(bug)
        for bugs in places.values():
            random.shuffle(bugs)
        turns = zip_longest(*(reversed(places[operator]) for operator in sorted(places)))
        return [partial(ready, bug) for turn in turns for bug in turn if bug]


async def ready(bug: Bug) -> Bug:
    """A bug that needs no waiting."""
    return bug
