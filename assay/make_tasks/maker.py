"""Tries bugs in trees, and writes tasks of those that some tests notice and others do not."""

import ast
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.check.shown_answers import installed
from assay.errors import DataError
from assay.judge import Job, Judge
from assay.judge.doctests import docstrings
from assay.judge.kinds import repository as kind
from assay.judge.patches import PatchError, apply, parse, unified
from assay.judge.repository_tree import reader
from assay.make_tasks.bugs import COMMIT, UNTRIED, Bug, BugSource, Candidate, Fate, Operators
from assay.make_tasks.edits import SourceFile
from assay.make_tasks.failures import all_crash, changed_lines
from assay.make_tasks.one_process import REVERSED
from assay.make_tasks.reports import Reports
from assay.make_tasks.settings import REGRESSION_TESTS
from assay.make_tasks.statement import IssueWording, exception
from assay.make_tasks.trees import is_test, size_of, source_files
from assay.make_tasks.trials import (
    Files,
    all_fail,
    limited,
    run_apart,
    run_tests,
    with_short_failures,
)
from assay.make_tasks.visible import copy_of, names_answer, stripped, without_tests
from assay.maths.seeds import derive
from assay.sandbox.program import Ended, Result
from assay.sync import in_order
from assay.syntax_trees import UNPARSABLE
from assay.tasks.repository import task_of
from assay.tasks.rows import Row
from assay.types import Execution, RepositoryTests, Task, TestOutcome, Verdict

Texts = dict[str, str | None]
LEAST_SECONDS, SLOWER = 20.0, 5.0
"""Wall time of all tests in one process with a bug: so many seconds, and times what they take on
right code. A bug that makes them slower is left out.
"""
MOST_FAILING = 0.5
"""Share of a package's tests that fail with a bug."""
SHARE = 0.5
"""Of the time for all tests, what those that are kept take on right code: with a bug, or beside
other work, they take longer."""
OPERATORS = Operators()
PLUGIN = re.compile(r'Error importing plugin "([^"]+)"')
"""What pytest says of a plug-in that is not installed."""


class Maker:
    """Makes tasks of one tree below the folder `home`, of the bugs of a source; `wording` is how
    they are stated.
    """

    def __init__(
        self, judge: Judge, home: Path, base: RepositoryTests, seed: int, wording: IssueWording,
        *, source: BugSource = OPERATORS, most_tests: int = REGRESSION_TESTS, name: str = "",
    ) -> None:  # fmt: skip
        self._judge, self._home, self._base, self._wording = judge, home, base, wording
        self._seed, self._source, self._most_tests = seed, source, most_tests
        self._tree = Path(base.tree)
        self.name = name or self._tree.name
        self._random = random.Random(f"{seed} {self.name}")
        self._sites, self._seconds = 0, 0.0
        self._counts: Counter[Fate] = Counter()
        self._known: set[object] = set()
        self._outcomes: dict[str, str] = {}
        self._missing: set[str] = set()
        self._flaky: list[str] = []
        self._slow: set[str] = set()
        self._proven_tests: set[str] = set()
        self._is_independent = False
        self._seconds_together = 0.0

    def report(self) -> dict[str, Any]:
        """What was made so far, and why other bugs were not kept."""
        fates = {fate.value: count for fate, count in self._counts.items()}
        facts = {"package": self.name, "tests": len(self._base.fail_to_pass), "sites": self._sites}
        flaky = {"flaky": self._flaky} if self._flaky else {}
        slow = {"slow": len(self._slow)} if self._slow else {}
        numbers = {"tried": self._tried, "kept": 0, **fates, "seconds": round(self._seconds)}
        facts["one_process"] = self._is_independent
        return {**facts, **numbers, **flaky, **slow}

    @property
    def _tried(self) -> int:
        return self._counts.total() - sum(self._counts[fate] for fate in UNTRIED)

    async def start(self, runs: int) -> None:
        """Read the tree and run its tests so many times: those are left out that do not always
        pass, that have other names in another run (their parameters come from a set), or whose
        files measure time; and the slowest, where all together take too long. Raises DataError
        where none is left, or where a box shows another release of the package; SandboxError.
        """
        names = {Path(path).parts[path.startswith(("src/", "lib/"))].removesuffix(".py")
                 for path in source_files(self._tree)}  # fmt: skip
        async with self._judge.box(await kind.shown_spec_of(self._base)) as box:
            modules = [end for name in sorted(names - {"__init__"}) for end in (name, f"{name}.py")]
            if place := await installed(box, await kind.spec_of(self._base), modules):
                raise DataError(
                    f"the policy could read the code of {self.name} without a bug in {place}; give"
                    " an --environment without it, or drop the package if pytest needs it"
                )
        seconds, first = await self._passing()
        if not seconds:
            raise DataError(self._why_none_passes(first))
        tests = within(seconds, SHARE * self._base.seconds)
        self._slow |= seconds.keys() - set(tests)
        steady = await self._steady(sorted(tests), runs)
        if not (passing := [test for test in steady if not self._is_timed(test)]):
            raise DataError(
                f"no test of {self.name} can be used: each fails in one of {runs} runs, or measures"
                " time; give a package with other tests"
            )
        self._base = replace(self._base, fail_to_pass=tuple(passing))
        self._size = size_of(self._tree)
        self._files = {
            file.relative_to(self._tree).as_posix(): stripped(file.read_bytes())
            for file in sorted(self._tree.rglob("*")) if file.is_file() and not file.is_symlink()
        }  # fmt: skip
        self._reports = Reports(self._judge, self._base, self.name)

    async def _steady(self, tests: list[str], runs: int) -> list[str]:
        """The tests that pass in each run. Where they pass in one process too, forwards and
        backwards, these runs count, and bugs are tried so.
        """
        self._is_independent = await self._pass_together(tests)
        passes = Counter(tests)
        further = max(0, runs - (3 if self._is_independent else 1))
        for _ in range(further):
            if self._is_independent:
                outcomes, _, _ = await run_tests(self._judge, self._base, tests)
                passes.update(test.name for test in outcomes if test.outcome == "passed")
            else:
                again, _ = await self._passing(tests)
                passes.update(again.keys())
        moved = set(map(_function, self._missing))
        steady = [test for test in tests if passes[test] == 1 + further]
        self._flaky = [test for test in tests if test not in steady and test not in self._slow]
        steady = [test for test in steady if _function(test) not in moved]
        if not self._is_independent and len(steady) < len(tests):
            self._is_independent = await self._pass_together(steady)
        return steady

    async def _pass_together(self, tests: Sequence[str]) -> bool:
        """Whether tests pass in one process, in both orders."""
        for order in ("", REVERSED) if tests else ():
            started = time.monotonic()
            outcomes, _, _ = await run_tests(self._judge, self._base, tests, order=order)
            self._seconds_together = max(self._seconds_together, time.monotonic() - started)
            if any(test.outcome != "passed" for test in outcomes):
                return False
        return bool(tests)

    async def _passing(self, tests: Sequence[str] = ()) -> tuple[dict[str, float], Result]:
        """Which of these tests pass without a change, or of all that there are, with the seconds
        that each takes; and the run.
        """
        async with self._judge.box(await kind.shown_spec_of(self._base)) as box:
            result = await kind.run(box, self._base, self._tree, tests, (), is_partial=True)
        answer = kind.printed(result).get("results", {})
        outcomes = [kind.outcome_of(test, report, True) for test, report in answer.items()]
        self._outcomes |= {test.name: test.outcome for test in outcomes}
        self._missing |= {test.name for test in outcomes if test.outcome == "missing"}
        self._slow |= {test.name for test in outcomes if test.outcome == kind.LATE}
        return {test.name: test.seconds for test in outcomes if test.outcome == "passed"}, result

    def _why_none_passes(self, result: Result) -> str:
        """Why no test passes, and what to do, by what kept them from it."""
        start = f"no test of {self.name} passes with pytest"
        is_late = self._slow and self._slow == self._outcomes.keys()
        if result.ended is Ended.WALL or is_late:
            return f"{start} in {self._base.seconds:g} s; give --seconds more"
        answer = kind.printed(result)
        if "setup" in answer or not result.stdout:
            reason = str(answer.get("setup") or result.stderr.decode("utf-8", "replace")).strip()
            return f"{start}: {reason.rpartition(chr(10))[2]}; install pytest into --environment"
        errors = result.stderr.decode("utf-8", "replace")
        if absent := PLUGIN.search(errors):
            return f"{start}: it has no plug-in {absent[1]}; install it into --environment"
        why = exception(errors).partition("\n")[0]
        if not self._outcomes:
            if not why:  # nothing failed either
                is_absent = not any(is_test(path) for path in self._tree.rglob("*.py"))
                start = f"no tests in the distribution of {self.name}" if is_absent else start
                if "--doctest-modules" in self._base.pytest_arguments:
                    return f"{start}: pytest collects none, and no doctest; give its git repository"
                return (
                    f"{start}: pytest collects none; give its git repository, or"
                    " --pytest-arguments that lead to tests, such as '--doctest-modules'"
                )
            return (
                f"{start}: it collects none ({why}); give --environment a virtual environment with"
                " the packages that the tests import, or --pytest-arguments that lead to them"
            )
        counts = Counter(self._outcomes.values()).most_common()
        ends = ", ".join(f"{count} {outcome}" for outcome, count in counts)
        return (
            f"{start} ({ends}{why and f'; {why}'}); give --environment a virtual environment with"
            " what they need, or --pytest-arguments such as '-p asyncio'"
        )

    def _is_timed(self, test: str) -> bool:
        return b"timeit" in (self._tree / test.partition("::")[0]).read_bytes()

    async def rows(
        self, count: int, after_bug: Callable[[int], None] = lambda tried: None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Rows of bugs that are kept, at most `count`, in an order that the seed decides;
        `after_bug` gets the number of bugs that were tried.
        """
        started = time.monotonic()
        calls = in_order(map(self._try, self._candidates()), self._judge.slots)
        async with aclosing(calls) as ends:
            async for fate, row in ends:
                if row and self._is_known(row["prompt"], *row["fail_to_pass"]):
                    fate, row = Fate.ALIKE, None
                self._counts[fate] += 1
                self._seconds = time.monotonic() - started
                after_bug(self._tried)
                if row:
                    yield row | {"id": f"{self.name}/{self._counts[Fate.KEPT]}"}
                if self._counts[Fate.KEPT] == count:
                    return

    def _is_known(self, *key: object) -> bool:
        again = key in self._known
        self._known.add(key)
        return again

    def _candidates(self) -> list[Candidate]:
        """What the source has to try in this tree; the code of its files is no new bug."""
        files: dict[str, SourceFile] = {}
        for path in source_files(self._tree):
            data = (self._tree / path).read_bytes()
            with suppress(*UNPARSABLE):
                files[path] = SourceFile(data)
                self._is_known((path, hash(ast.dump(files[path].tree))))
        candidates = self._source.candidates(files, self._random)
        self._sites = len(candidates)
        return candidates

    def _is_new(self, bug: Bug) -> bool:
        try:
            codes = [(path, hash(ast.dump(ast.parse(text)))) for path, text in bug.texts.items()]
        except UNPARSABLE:
            return False
        return not self._is_known(*codes)

    async def _judged(self, program: str, check: RepositoryTests) -> Execution:
        task = Task("", "", (check,), "", language="diff")
        return await self._judge.run(Job(task, program))

    async def _with_bug(self, files: Files, tests: Sequence[str]) -> list[TestOutcome]:
        """What comes of tests where these files have other bytes."""
        base = replace(self._base, fail_to_pass=tuple(tests))
        if not self._is_independent:
            return await run_apart(self._judge, base, tests, files)
        base = limited(base, LEAST_SECONDS + SLOWER * self._seconds_together)
        outcomes, _, _ = await run_tests(self._judge, base, tests, files)
        return outcomes

    async def _try(self, candidate: Candidate) -> tuple[Fate, dict[str, Any] | None]:
        """What becomes of a candidate, and its row if it is kept."""
        bug = await candidate()
        if isinstance(bug, Fate):
            return bug, None
        if not self._is_new(bug):
            return Fate.SAME_CODE, None
        tests = await self._with_bug(bug.texts, self._base.fail_to_pass)
        failing = {test.name: test.detail for test in tests if not test.holds}
        if not failing and tests:
            return Fate.UNNOTICED, None
        if not tests or any(test.outcome not in ("passed", "failed") for test in tests):
            return Fate.BROKEN, None
        if len(failing) > len(tests) * MOST_FAILING:
            return Fate.MOST_FAIL, None
        lines = {file.path: changed_lines(file.change, file.original) for file in bug.files}
        if bug.operator != COMMIT and all_crash(failing.values(), lines):  # people repair crashes
            return Fate.CRASHES, None
        for half in bug.halves:
            if all(test.holds for test in await self._with_bug(half, sorted(failing))):
                return Fate.ONE_PLACE, None
        holding = [test.name for test in tests if test.holds]
        return await self._described(bug, failing, holding)

    async def _described(
        self, bug: Bug, failing: dict[str, str], holding: list[str]
    ) -> tuple[Fate, dict[str, Any] | None]:
        """The row of a bug, where it can be stated without its answer and the judge proves it."""
        sources = self._sources(failing)
        if sources is None:
            return Fate.NOT_SHOWN, None
        before, after = self._visible(failing, sources)
        others = self._files | {
            path: stripped((text or "").encode()) for path, text in after.items()
        }
        others = {path: text for path, text in others.items() if path not in bug.texts}
        if any(copy_of(others, file.original, edit) for file in bug.files for edit in file.change):
            return Fate.ANSWER_SHOWN, None
        report = await self._reports.of(bug.texts, failing, sources)
        report = self._wording.state(report, failing, sources)
        if not report:
            return Fate.NOT_SHOWN, None

        def is_named(text: str) -> bool:
            return any(names_answer(text, file.original, file.changed) for file in bug.files)

        if is_named(report):
            return Fate.ANSWER_SHOWN, None
        reworded = await self._wording.reword(self.name, report)
        diff, repair = bug.diffs()
        row = {
            "id": "", "prompt": report if is_named(reworded) else reworded,
            "tree": self._tree.relative_to(self._home).as_posix(),
            "bug": unified(before, after) + diff, "test_patch": unified(after, before),
            "reference": repair, "fail_to_pass": list(failing),
            "pass_to_pass": sample_of(holding, failing, self._most_tests, self._seed),
            "roots": list(self._base.roots), "seconds": self._base.seconds,
            "pytest_arguments": list(self._base.pytest_arguments),
            "tags": {"package": self.name, "operator": bug.operator, "size": self._size},
        }  # fmt: skip
        return await self._proven(row)

    def _sources(self, failing: Collection[str]) -> dict[str, SourceFile] | None:
        """The files of tests; None where one is no Python in UTF-8."""
        paths = sorted({test.partition("::")[0] for test in failing})
        try:
            return {path: SourceFile((self._tree / path).read_bytes()) for path in paths}
        except UNPARSABLE:
            return None

    def _visible(
        self, failing: Collection[str], sources: dict[str, SourceFile]
    ) -> tuple[Texts, Texts]:
        """The test files as they are and as the policy sees them, without the failing tests.
        Doctests stay: they say what the code is to do.
        """
        tests: dict[str, list[str]] = defaultdict(list)
        texts = {path: source.data.decode("utf-8-sig") for path, source in sources.items()}
        examples = docstrings(failing, texts)
        for test in (test for test in failing if test not in examples):
            tests[test.partition("::")[0]].append(test)
        before: Texts = {path: sources[path].data.decode() for path in tests}
        cut = {path: without_tests(sources[path], names).decode() for path, names in tests.items()}
        after: Texts = {path: text or None for path, text in cut.items()}
        return before, after

    async def _proven(self, row: dict[str, Any]) -> tuple[Fate, dict[str, Any] | None]:
        """The row, if the same tests fail again without a change, and all pass with the original
        code. That code makes the same tree in each task of this package: a test that went on
        passing there for one task, and whose canary failed, is not run for another one.
        """
        task = task_of(Row(row, f"{self._home / 'tasks.jsonl'}, line 1"), "")
        (check,) = task.checks
        assert isinstance(check, RepositoryTests)
        if not await all_fail(self._judge, with_short_failures(check)):
            return Fate.UNSTABLE, None
        if not self._is_restored(check, task.reference or ""):
            return Fate.UNPROVEN, None
        left = tuple(test for test in check.pass_to_pass if test not in self._proven_tests)
        right = await self._judged(task.reference or "", replace(check, pass_to_pass=left))
        if right.verdict is not Verdict.PASS:
            return Fate.UNPROVEN, None
        if len(left) <= kind.CANARIES:  # else some had no canary
            self._proven_tests |= {*left}
        return Fate.KEPT, row

    def _is_restored(self, check: RepositoryTests, reference: str) -> bool:
        """Whether the right change and the tests that it is judged by make this tree again."""
        try:
            # doctests have no patch: the policy's tree has them
            changes = parse(check.test_patch) if check.test_patch else []
            texts = apply([*changes, *parse(reference)], reader(check))
            paths = {change.new or change.old or "" for change in parse(check.bug)}
            same = {path for path, text in texts.items() if text is not None
                    and (self._tree / path).read_bytes() == text.encode()}  # fmt: skip
        except (PatchError, OSError, UnicodeEncodeError):
            return False
        return paths <= same == texts.keys()


def within(seconds: dict[str, float], most: float) -> list[str]:
    """The tests, without the slowest, so that the others take at most so many seconds together."""
    chosen_tests, total = list[str](), 0.0
    for test in sorted(seconds, key=seconds.__getitem__):
        total += seconds[test]
        if total <= most:
            chosen_tests.append(test)
    return chosen_tests


def sample_of(holding: Sequence[str], failing: Collection[str], most: int, seed: int) -> list[str]:
    """At most so many of the tests that hold, half of them from the files of those that fail."""
    if len(holding) <= most:
        return list(holding)
    draw = random.Random(derive(seed, *sorted(failing)))
    files = {test.partition("::")[0] for test in failing}
    near = [test for test in holding if test.partition("::")[0] in files]
    chosen_tests = set(draw.sample(near, min(len(near), most // 2)))
    others = [test for test in holding if test not in chosen_tests]
    chosen_tests |= set(draw.sample(others, most - len(chosen_tests)))
    return [test for test in holding if test in chosen_tests]


def _function(test: str) -> str:
    """The id of a test without its parameters."""
    return test.partition("[")[0]
