"""Tasks of what commits of a repository repaired: the tests of a commit, and the code before it."""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from random import Random
from stat import S_ISREG
from typing import Any, NamedTuple

from assay.errors import DataError
from assay.judge import Judge
from assay.make_tasks.asking import Ask
from assay.make_tasks.bugs import COMMIT, Bug, Candidate, ChangedFile, Fate, ready
from assay.make_tasks.commits import Ancestor, Commit, Difference, git_folder
from assay.make_tasks.diffs import line_edits
from assay.make_tasks.edits import SourceFile
from assay.make_tasks.maker import Maker
from assay.make_tasks.statement import CommitWording
from assay.make_tasks.trees import is_source, is_test, path_and_commit, read_tree
from assay.sync import in_order
from assay.syntax_trees import UNPARSABLE
from assay.types import RepositoryTests

MOST_COMMITS = 10_000
"""Of a history, the newest."""
MERGE, FIRST = "merge", "first commit"
NOT_BOTH = "not code and tests"
RENAMES, MORE_FILES, NO_TEXT = "renames files", "adds or removes code", "not only text"
NO_RUN, NO_ROW = "tests do not run", "cannot be a row"
TOO_LONG, MOST_LINES = "long files", 5_000
"""Of a file of code: to compare longer ones may take minutes."""


class Repair(NamedTuple):
    """A commit that changes code and tests."""

    commit: Ancestor
    code: list[Difference]


class OneBug:
    """The bug that a commit repaired, where its files have the texts of the parent."""

    def __init__(self, before: Mapping[str, bytes]) -> None:
        self._before = before

    def candidates(self, files: Mapping[str, SourceFile], random: Random) -> list[Candidate]:
        """As BugSource."""
        changed = [
            ChangedFile(path, line_edits(files[path].data, text), files[path].data)
            for path, text in sorted(self._before.items()) if path in files
        ]  # fmt: skip
        return [partial(ready, Bug(COMMIT, tuple(changed)))] if changed else []


class CommitHistory:
    """Makes tasks of the commits of a repository, whose trees lie below `home`: one a commit."""

    def __init__(
        self, judge: Judge, home: Path, base: RepositoryTests, seed: int, ask: Ask | None,
        most_tests: int, name: str, package: str, runs: int,
    ) -> None:  # fmt: skip
        self._judge, self._home, self._base, self._seed = judge, home, base, seed
        self._ask, self._most_tests, self.name = ask, most_tests, name
        self._package, self._runs = package, runs
        self._counts: Counter[str] = Counter()
        self._commits = self._tests = self._left_out = 0
        self._why = ""
        self._seconds = 0.0
        self._repairs: list[Repair] = []

    def report(self) -> dict[str, Any]:
        """What was made so far, and why other commits were not kept."""
        tried = self._counts.total() - self._left_out
        return {
            "package": self.name, "tests": self._tests, "sites": self._commits, "tried": tried,
            "kept": 0, **self._counts, "seconds": round(self._seconds), "one_process": True,
        }  # fmt: skip

    def start(self) -> None:
        """Find the commits that may have repaired something. Raises DataError where there is no
        repository, or none of its commits changes code and tests.
        """
        path, name = path_and_commit(self._package)
        git = None if name.startswith("-") else git_folder(Path(path))
        if git is None:
            raise DataError(
                f"{self._package} is no git repository, and --bugs commits reads its history; give"
                " a clone, or other --bugs"
            )
        with tempfile.TemporaryDirectory() as temporary:
            opened = Commit(git, name, Path(temporary))
            ancestors = opened.ancestors(MOST_COMMITS)
            self._commits = len(ancestors)
            for ancestor in ancestors:
                code = repair_of(opened, ancestor)
                if isinstance(code, str):
                    self._counts[code] += 1
                else:
                    self._repairs.append(Repair(ancestor, code))
        self._left_out = self._counts.total()
        if not self._repairs:
            reasons = ", ".join(f"{count} {why}" for why, count in self._counts.most_common())
            raise DataError(
                f"no commit of {self.name} changes the text of code and tests: {reasons}"
            )

    async def rows(
        self, count: int, after_bug: Callable[[int], None]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Rows of commits, at most `count`, the newest first; `after_bug` gets the number of
        commits that were tried. Raises DataError where the tests of none run.
        """
        started = time.monotonic()
        calls = in_order(map(self._try, self._repairs), self._judge.slots)
        async with aclosing(calls) as ends:
            async for fate, row in ends:
                self._counts[fate] += 1
                self._seconds = time.monotonic() - started
                after_bug(self.report()["tried"])
                if row:
                    yield row
                if self._counts[Fate.KEPT] == count:
                    return
        if self._why and self._counts[NO_RUN] == len(self._repairs):
            raise DataError(f"the tests of no commit of {self.name} run; the last: {self._why}")

    async def _try(self, repair: Repair) -> tuple[str, dict[str, Any] | None]:
        """What becomes of a commit, and its row if it is kept."""
        short = repair.commit.id[:12]
        tree = self._home / "trees" / self.name / short
        path, _ = path_and_commit(self._package)
        row = None
        try:
            read_tree(f"{path}@{repair.commit.id}", tree)
            wording = CommitWording(repair.commit.message, self._ask)
            maker = Maker(
                self._judge, self._home, replace(self._base, tree=str(tree)), self._seed, wording,
                source=OneBug(self._before(repair)), most_tests=self._most_tests, name=self.name,
            )  # fmt: skip
            await maker.start(self._runs)
        except DataError as error:
            self._why = str(error)
            return NO_RUN, None
        else:
            try:
                async with aclosing(maker.rows(1)) as rows:
                    row = await anext(rows, None)
            except DataError:  # a path that no diff or row can hold
                return NO_ROW, None
            report = maker.report()
            self._tests = max(self._tests, report["tests"])
            fate = next((fate for fate in Fate if report.get(fate)), Fate.SAME_CODE)
            return fate, row and row | {"id": f"{self.name}/{short}"}
        finally:
            if not row:
                shutil.rmtree(tree, ignore_errors=True)

    def _before(self, repair: Repair) -> dict[str, bytes]:
        """The code's files as they were. Raises DataError."""
        path, _ = path_and_commit(self._package)
        git = git_folder(Path(path))
        assert git
        with tempfile.TemporaryDirectory() as temporary:
            opened = Commit(git, repair.commit.id, Path(temporary))
            return {file.path: opened.content(file.objects[0]) for file in repair.code}


def repair_of(opened: Commit, ancestor: Ancestor) -> list[Difference] | str:
    """The files of code that a commit changes beside tests; or why it makes no task."""
    if len(ancestor.parents) != 1:
        return MERGE if ancestor.parents else FIRST
    differences = opened.differences(ancestor)
    code = [file for file in differences if is_source(PurePosixPath(file.path))]
    has_tests = any(is_test(PurePosixPath(file.path)) for file in differences)
    if not code or not has_tests:
        return NOT_BOTH
    if any(file.status[0] in "RC" for file in differences):
        return RENAMES
    if any(file.status[0] in "AD" for file in code):
        return MORE_FILES
    if any(file.status != "M" or not all(map(S_ISREG, file.modes)) for file in code):
        return NO_TEXT
    texts = [opened.content(name) for file in code for name in file.objects]
    if any(text.count(b"\n") > MOST_LINES for text in texts):
        return TOO_LONG
    try:
        for text in texts:
            SourceFile(text)
    except UNPARSABLE:
        return NO_TEXT
    return code
