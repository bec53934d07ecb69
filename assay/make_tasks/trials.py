"""Runs in boxes while bugs are searched for: tests in one process, and short programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from assay.errors import DataError
from assay.judge import Judge, repository_runner
from assay.judge.kinds import repository as kind
from assay.judge.repository_tree import import_paths
from assay.make_tasks import call_recorder, one_process, snippet_runner
from assay.make_tasks.snippets import Snippet
from assay.sandbox import sockets
from assay.sandbox.program import Result
from assay.sandbox.standalone import standalone
from assay.types import RepositoryTests, TestOutcome, Verdict

PARTS = sockets, repository_runner, call_recorder
RUNNER = standalone(one_process, *PARTS)
SNIPPETS = kind.START + standalone(snippet_runner)
Files = Mapping[str, bytes]
"""Texts of files that differ from the tree's, by path."""
UNCHANGED: Files = MappingProxyType({})


async def run_tests(
    judge: Judge, base: RepositoryTests, tests: Sequence[str], files: Files = UNCHANGED,
    order: str = "", recorded: Sequence[str] = (),
) -> tuple[list[TestOutcome], dict[str, list[dict[str, Any]]], Result]:  # fmt: skip
    """Run tests of a tree in one process, in the order of their files or `reversed`. Their
    outcomes, the calls that each makes of functions of the `recorded` files, and the run. Raises
    SandboxError.
    """
    base = with_short_failures(base)
    async with judge.box(await kind.shown_spec_of(base)) as box:
        await box.write(files)
        paths = [str(PurePosixPath(box.folder, path)) for path in recorded]
        runner = f"{kind.START}\nsys.argv += {[order, json.dumps(paths)]!r}\n{RUNNER}"
        result = await kind.run(box, base, Path(base.tree), tests, (), runner=runner)
    answer = kind.printed(result).get("results", {})
    outcomes = [kind.outcome_of(test, answer.get(test), True) for test in tests]
    steps = {test: answer[test].get("steps", []) for test in tests if test in answer}
    return outcomes, steps, result


async def run_apart(
    judge: Judge, base: RepositoryTests, tests: Sequence[str], files: Files
) -> list[TestOutcome]:
    """What comes of tests of a tree, each in a process of its own, without canaries. Raises
    SandboxError.
    """
    async with judge.box(await kind.shown_spec_of(base)) as box:
        await box.write(files)
        result = await kind.run(box, base, Path(base.tree), tests, ())
    answer = kind.printed(result).get("results", {})
    return [kind.outcome_of(test, answer.get(test), True) for test in tests]


async def all_fail(judge: Judge, check: RepositoryTests) -> bool:
    """Whether each test that a right change repairs fails without one, as the judge runs it. It has
    no canary: that one tells whether a test passes rightly. Raises SandboxError.
    """
    spec = await kind.spec_of(check)
    async with judge.box(spec) as box:
        try:
            hidden = await kind.set_aside(box, check)
            await kind.restore(box, check, spec.tree, hidden)
        except (DataError, OSError):
            return False
        result = await kind.run(box, check, spec.tree, check.fail_to_pass, ())
    execution = kind.decide(check.fail_to_pass, check.fail_to_pass, (), result)
    return execution.verdict is Verdict.WRONG and not execution.passed


async def run_snippets(
    judge: Judge, base: RepositoryTests, snippets: Sequence[Snippet], files: Files = UNCHANGED,
    seed: int = 0,
) -> list[dict[str, str]]:  # fmt: skip
    """What each program prints in a tree, and its exception; the seed is that of hashes. Nothing
    where the run did not come to its end. Raises SandboxError.
    """
    python, packages, _ = kind.interpreter(base)
    async with judge.box(await kind.shown_spec_of(base)) as box:
        await box.write(files)
        paths = import_paths(base, Path(base.tree))
        job = {
            "paths": [str(PurePosixPath(box.folder, path)) for path in paths],
            "packages": packages, "programs": [snippet.code for snippet in snippets],
        }  # fmt: skip
        result = await box.run(
            (*python, "-c", SNIPPETS), stdin=json.dumps(job).encode(),
            environment={**base.environment, "PYTHONHASHSEED": str(seed), "PYTHONPATH": "",
                         "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            wall_seconds=30.0 + snippet_runner.SECONDS * len(snippets),
        )  # fmt: skip
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        answer = []
    whole = isinstance(answer, list) and len(answer) == len(snippets)
    return [dict(each) for each in answer] if whole else [{} for _ in snippets]


def with_short_failures(base: RepositoryTests) -> RepositoryTests:
    """The same tests with Python's own tracebacks: for its own, pytest parses the file of each
    frame, which takes a second where a test fails deep in a package.
    """
    return replace(base, pytest_arguments=(*base.pytest_arguments, "--tb=native"))


def limited(base: RepositoryTests, seconds: float) -> RepositoryTests:
    """The same tests with less time, so that a bug that never ends soon does."""
    return replace(base, seconds=min(base.seconds, seconds))
