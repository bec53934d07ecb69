"""Finds what to say of a bug: a program that shows it, or else an example of its documentation."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from assay.judge import Judge
from assay.judge.doctests import docstrings
from assay.make_tasks.edits import SourceFile
from assay.make_tasks.snippets import Demonstration, Snippet, is_runnable, snippets, tells
from assay.make_tasks.statement import (
    body,
    documented,
    issue,
    leaks,
    names_test,
)
from assay.make_tasks.trees import source_files
from assay.make_tasks.trials import Files, run_snippets, run_tests
from assay.types import RepositoryTests

MOST_TESTS, MOST_SNIPPETS, CONFIRMED = 6, 60, 4
"""Failing tests whose calls are recorded, programs that are tried, and those that run again."""


class Reports:
    """Statements of bugs of one tree."""

    def __init__(self, judge: Judge, base: RepositoryTests, name: str) -> None:
        self._judge, self._base, self._name = judge, base, name
        self._source_files = list(source_files(Path(base.tree)))

    async def of(
        self, files: Files, failing: Mapping[str, str], sources: Mapping[str, SourceFile]
    ) -> str:
        """A statement of what fails where these files differ; empty where no program shows it that
        names no test. `failing` has what pytest says of each test, `sources` the tests' files.
        Raises SandboxError.
        """
        examples = docstrings(
            failing, {path: source.data.decode("utf-8-sig") for path, source in sources.items()}
        )
        hidden = [test for test in failing if test not in examples]
        codes = [body(sources[test.partition("::")[0]], test) for test in hidden]
        tests = sorted(failing, key=lambda test: (len(failing[test]), test))[:MOST_TESTS]
        base = replace(self._base, fail_to_pass=tuple(tests))
        _, steps, _ = await run_tests(self._judge, base, tests, files, recorded=self._source_files)
        programs = nearest(
            [program for program in snippets(each)
             if is_runnable(program) and not leaks(program.code, codes)]
            for each in steps.values()
        )  # fmt: skip
        async for demonstration in self._differing(programs, files):
            report = issue(self._name, demonstration)
            if not names_test(report, hidden):
                return report
        return documented(self._name, examples, failing)

    async def _differing(
        self, programs: list[Snippet], files: Files
    ) -> AsyncIterator[Demonstration]:
        """Programs that do one thing with the bug and another without it, each time."""
        if not programs:
            return
        expected = await run_snippets(self._judge, self._base, programs)
        actual = await run_snippets(self._judge, self._base, programs, files)
        if not (demonstrations := differing(programs, actual, expected)):
            return
        programs = [demonstration.snippet for demonstration in demonstrations]
        expected = await run_snippets(self._judge, self._base, programs, seed=1)
        actual = await run_snippets(self._judge, self._base, programs, files, seed=1)
        for demonstration, again, right in zip(demonstrations, actual, expected, strict=True):
            if tells(demonstration.actual, again) and tells(demonstration.expected, right):
                yield demonstration


def nearest(programs: Iterable[Sequence[Snippet]]) -> list[Snippet]:
    """Of the programs of each test, in the order of their last calls, at most MOST_SNIPPETS, those
    nearest to its failure; the shortest first.
    """
    places: dict[Snippet, int] = {}
    for each in programs:
        for place, program in enumerate(reversed(each)):
            places[program] = min(place, places.get(program, place))
    near = sorted(places, key=lambda program: (places[program], program.cost))[:MOST_SNIPPETS]
    return sorted(near, key=lambda program: program.cost)


def differing(
    programs: Sequence[Snippet],
    actual: Sequence[Mapping[str, str]],
    expected: Sequence[Mapping[str, str]],
) -> list[Demonstration]:
    """The first CONFIRMED programs that do one thing and should do another, those that should fail
    last. Those that print an address do so in every run, and tell nothing.
    """
    demonstrations = [
        Demonstration(*parts) for parts in zip(programs, actual, expected, strict=True)
        if parts[1] != parts[2] and all(tells(part, part) for part in parts[1:])
    ]  # fmt: skip
    return sorted(demonstrations, key=lambda demonstration: bool(demonstration.expected["error"]))[
        :CONFIRMED
    ]
