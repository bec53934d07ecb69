"""Tries bugs in trees, and writes tasks of those that some tests notice and others do not."""

import ast
import json
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from assay.check.shown_answers import installed
from assay.errors import DataError, SettingsError
from assay.judge import Job, Judge
from assay.judge.kinds import repository as kind
from assay.judge.patches import unified
from assay.make_tasks.operators import Edit, SourceFile, sites
from assay.make_tasks.sources import name_of, read_tree, source_files
from assay.make_tasks.statement import Reword, exception, statement
from assay.make_tasks.visible import copy_of, names_answer, stripped, without_tests
from assay.progress import Progress
from assay.sync import together
from assay.tasks.repository import task_of
from assay.tasks.rows import Row
from assay.types import Execution, RepositoryTests, Task, Verdict

Texts = dict[str, str | None]


class Fate(StrEnum):
    """What became of a bug."""

    KEPT = "kept"
    SAME_CODE = "same code"
    """Its syntax tree is the original's, another bug's, or none; it was not tried."""
    UNNOTICED = "no test fails"
    ALL_FAIL = "all fail"
    BROKEN = "broken"
    """A test file cannot be imported, or tests vanish, crash or take too long."""
    UNSTABLE = "unstable"
    """Other tests fail the second time."""
    ALIKE = "alike"
    """The same tests fail in the same way as with a bug before."""
    ANSWER_SHOWN = "answer shown"
    """The original code stands elsewhere in the tree or in the statement."""
    NOT_SHOWN = "no statement"
    """No failing test can be shown as code."""
    UNPROVEN = "unproven"
    """The judge does not pass the original code."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug of one place."""

    operator: str
    path: str
    edit: Edit
    original: bytes

    @property
    def changed(self) -> bytes:
        """The file with the bug."""
        return self.edit.apply(self.original)


class Maker:
    """Makes tasks of one tree below the folder `home`."""

    def __init__(
        self, judge: Judge, home: Path, base: RepositoryTests, seed: int, reword: Reword
    ) -> None:
        self._judge, self._home, self._base, self._reword = judge, home, base, reword
        self._tree = Path(base.tree)
        self.name = self._tree.name
        self._random = random.Random(f"{seed} {self.name}")
        self._sites, self._seconds = 0, 0.0
        self._counts: Counter[Fate] = Counter()
        self._known: set[object] = set()

    def report(self) -> dict[str, Any]:
        """What was made so far, and why other bugs were not kept."""
        tried = self._counts.total() - self._counts[Fate.SAME_CODE]
        fates = {fate.value: count for fate, count in self._counts.items()}
        facts = {"package": self.name, "tests": len(self._base.fail_to_pass), "sites": self._sites}
        return {**facts, "tried": tried, "kept": 0, **fates, "seconds": round(self._seconds)}

    async def start(self) -> None:
        """Read the tree and run its tests, twice: those whose parameters have other names the
        second time (they come from a set) are left out, and those of files that measure time.
        Raises DataError where none passes, or where a box shows another release of the package;
        SandboxError.
        """
        names = {Path(path).parts[path.startswith(("src/", "lib/"))].removesuffix(".py")
                 for path in source_files(self._tree)}  # fmt: skip
        async with self._judge.box(self._base) as box:
            modules = [end for name in sorted(names - {"__init__"}) for end in (name, f"{name}.py")]
            if place := await installed(box, await kind.spec_of(self._base), modules):
                raise DataError(f"{self.name} is also where the policy can read it: {place}")
            result = await kind.run(box, self._base, self._tree, (), ())
        answer = kind.printed(result).get("results", {})
        outcomes = [kind.outcome_of(test, report, True) for test, report in answer.items()]
        passing = [test.name for test in outcomes if test.outcome == "passed"]
        if passing:
            self._base = replace(self._base, fail_to_pass=tuple(sorted(passing)))
            again = (await self._judged("", self._base)).tests
            moved = {_function(test.name) for test in again if test.outcome == "missing"}
            sure = [test.name for test in again
                    if test.outcome == "passed" and _function(test.name) not in moved]  # fmt: skip
            passing = [test for test in sure if not self._is_timed(test)]
        if not passing:
            why = exception(result.stderr.decode("utf-8", "replace")).partition("\n")[0]
            raise DataError(
                f"no test of {self.name} passes with pytest in {self._base.seconds:g} s"
                f"{why and f' ({why})'}; name an environment with what they need, or more seconds"
            )
        self._base = replace(self._base, fail_to_pass=tuple(passing))
        self._files = {
            file.relative_to(self._tree).as_posix(): stripped(file.read_bytes())
            for file in sorted(self._tree.rglob("*")) if file.is_file() and not file.is_symlink()
        }  # fmt: skip

    def _is_timed(self, test: str) -> bool:
        return b"timeit" in (self._tree / test.partition("::")[0]).read_bytes()

    async def rows(self, count: int) -> AsyncIterator[dict[str, Any]]:
        """Rows of bugs that are kept, at most `count`, in an order that the seed decides."""
        bugs, started = self._bugs(), time.monotonic()
        while chunk := list(islice(bugs, self._judge.slots)):
            for fate, row in await together(map(self._try, chunk)):
                if row and self._is_known(row["prompt"], *row["fail_to_pass"]):
                    fate, row = Fate.ALIKE, None
                self._counts[fate] += 1
                self._seconds = time.monotonic() - started
                if row:
                    yield row | {"id": f"{self.name}/{self._counts[Fate.KEPT]}"}
                if self._counts[Fate.KEPT] == count:
                    return

    def _is_known(self, *key: object) -> bool:
        again = key in self._known
        self._known.add(key)
        return again

    def _bugs(self) -> Iterator[Bug]:
        """One bug of each operator by turns, at a random place; none of equal code."""
        places: dict[str, list[Bug]] = defaultdict(list)
        for path in source_files(self._tree):
            data = (self._tree / path).read_bytes()
            with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                source = SourceFile(data)
                self._is_known(path, hash(ast.dump(source.tree)))
                for operator, edit in sites(source):
                    places[operator].append(Bug(operator, path, edit, data))
        self._sites = sum(map(len, places.values()))
        for bugs in places.values():
            self._random.shuffle(bugs)
        while places:
            for operator in sorted(places):
                if not places[operator]:
                    del places[operator]
                elif self._is_new(bug := places[operator].pop()):
                    yield bug
                else:
                    self._counts[Fate.SAME_CODE] += 1

    def _is_new(self, bug: Bug) -> bool:
        try:
            code = ast.dump(ast.parse(bug.changed))
        except (SyntaxError, ValueError):
            return False
        return not self._is_known(bug.path, hash(code))

    async def _judged(self, program: str, check: RepositoryTests) -> Execution:
        task = Task("", "", (check,), "", language="diff")
        return await self._judge.run(Job(task, program))

    async def _try(self, bug: Bug) -> tuple[Fate, dict[str, Any] | None]:
        """What becomes of a bug, and its row if it is kept."""
        texts = {bug.path: bug.original.decode()}, {bug.path: bug.changed.decode()}
        tests = (await self._judged(unified(*texts), self._base)).tests
        failing = {test.name: test.detail for test in tests if not test.holds}
        if not failing and tests:
            return Fate.UNNOTICED, None
        if not tests or any(test.outcome not in ("passed", "failed") for test in tests):
            return Fate.BROKEN, None
        if len(failing) == len(tests):
            return Fate.ALL_FAIL, None
        report, before, after = self._shown(bug, failing)
        if not report:
            return Fate.NOT_SHOWN, None
        others = self._files | {
            path: stripped((text or "").encode()) for path, text in after.items()
        }
        del others[bug.path]
        is_named = partial(names_answer, original=bug.original, changed=bug.changed)
        if copy_of(others, bug.original, bug.edit) or is_named(report):
            return Fate.ANSWER_SHOWN, None
        reworded = await self._reword(self.name, report)
        row = {
            "id": "", "prompt": report if is_named(reworded) else reworded,
            "tree": self._tree.relative_to(self._home).as_posix(),
            "bug": unified(before | texts[0], after | texts[1]),
            "test_patch": unified(after, before), "reference": unified(texts[1], texts[0]),
            "fail_to_pass": list(failing),
            "pass_to_pass": [test.name for test in tests if test.holds],
            "roots": list(self._base.roots), "seconds": self._base.seconds,
            "tags": {"package": self.name, "operator": bug.operator},
        }  # fmt: skip
        return await self._proven(row)

    def _shown(self, bug: Bug, failing: dict[str, str]) -> tuple[str, Texts, Texts]:
        """A statement, and the test files as they are and as the policy sees them. Without the
        statement where a file is no Python in UTF-8.
        """
        tests: dict[str, list[str]] = defaultdict(list)
        for test in failing:
            tests[test.partition("::")[0]].append(test)
        try:
            files = {path: SourceFile((self._tree / path).read_bytes()) for path in tests}
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "", {}, {}
        before: Texts = {path: source.data.decode() for path, source in files.items()}
        cut = {path: without_tests(files[path], names).decode() for path, names in tests.items()}
        after: Texts = {path: text or None for path, text in cut.items()}
        return statement(self.name, failing, files), before, after

    async def _proven(self, row: dict[str, Any]) -> tuple[Fate, dict[str, Any] | None]:
        """The row, if the same tests fail again without a change, and all pass with the original
        code.
        """
        task = task_of(Row(row, f"{self._home / 'tasks.jsonl'}, line 1"), "")
        (check,) = task.checks
        assert isinstance(check, RepositoryTests)
        empty = await self._judged("", replace(check, pass_to_pass=()))
        if empty.verdict is not Verdict.WRONG or empty.passed:
            return Fate.UNSTABLE, None
        right = await self._judged(task.reference or "", check)
        return (Fate.KEPT, row) if right.verdict is Verdict.PASS else (Fate.UNPROVEN, None)


def _function(test: str) -> str:
    """The id of a test without its parameters."""
    return test.partition("[")[0]


async def make_tasks(
    packages: Sequence[str], makers: list[Maker], progress: Progress, judge: Judge,
    wording: AbstractAsyncContextManager[Reword], *, output: Path, count: int, seed: int,
    seconds: float, environment: Path | None,
) -> None:  # fmt: skip
    """Write `count` tasks of each package to tasks.jsonl in the new folder `output`, beside their
    trees; `makers` says what is done, also where this is cancelled. The tests of a package may take
    `seconds`; they run in a virtual environment, or with assay's own pytest.

    Raises SettingsError, and DataError for packages that no tasks can be made of, before any is
    made; SandboxError.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SettingsError(f"--output {output} exists and is no empty folder; choose another path")
    names = {name_of(package): package for package in packages}
    if len(names) < len(packages):
        raise SettingsError("two packages have one name; give each of them once")
    is_new = not output.exists()
    home, roots = output.resolve(), (str(environment.absolute()),) if environment else ()
    progress.phase("reading packages", 2 * len(names))
    try:
        async with judge, wording as reword:
            for name, package in names.items():
                read_tree(package, home / "trees" / name)
                progress.advance()
            for name in names:
                tree = str(home / "trees" / name)
                base = RepositoryTests(tree, (), (), roots=roots, seconds=seconds)
                makers.append(Maker(judge, home, base, seed, reword))
                await makers[-1].start()
                progress.advance()
            for maker in makers:
                progress.phase(maker.name, count)
                async for row in maker.rows(count):
                    with (home / "tasks.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    progress.advance()
    finally:
        if not (home / "tasks.jsonl").exists():
            shutil.rmtree(home if is_new else home / "trees", ignore_errors=True)
