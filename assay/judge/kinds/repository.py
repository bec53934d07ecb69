"""Tests of a repository: pytest runs them in a box, beside the program's code, so each pass is
forgeable. judge/repository_runner.py is what runs there; docs/repositories.md says what it stops.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from assay.checks import RepositoryTests
from assay.errors import DataError
from assay.judge import repository_runner
from assay.judge.canaries import Canary, canaries
from assay.judge.kinds.kind import Kind, ProgramRun
from assay.judge.kinds.repository_cheats import cheats_of
from assay.judge.protocol import SETUP
from assay.judge.repository_tree import configuration, tree_of
from assay.judge.verdict import measured
from assay.sandbox.access import INTERPRETER
from assay.sandbox.box import Box, BoxSpec
from assay.sandbox.program import Ended, Result
from assay.types import Execution, Task, TestOutcome, Verdict

if TYPE_CHECKING:
    from assay.languages import Language
    from assay.sandbox.client import Sandbox

RUNNER = Path(repository_runner.__file__)
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
"""What a box shows of our packages, where the task has no interpreter of its own."""
TEST_SECONDS = 120.0
"""Most wall time of one test."""
CANARIES = 4
OUTPUT_BYTES, SHOWN_BYTES = 64 << 20, 65_536
FORGED = "a test that must fail passes, or one that was not asked for: the program forges reports"
APPLY = (
    ("git", "apply", "--recount", "--whitespace=nowarn", "-"),
    ("patch", "--batch", "--fuzz=5", "--strip=1", "--no-backup-if-mismatch", "--quiet"),
)
"""What puts a diff into a tree, as SWE-bench tries it."""
OURS = ("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml",
        "test_*.py", "*_test.py", "tests.py", "sitecustomize.py", "usercustomize.py", "*.pth",
        "*.pyc", "*.so", "*.pyd", "entry_points.txt")  # fmt: skip
"""Names of files that no change reaches."""
SHADOWED = {*sys.stdlib_module_names, *PYTEST, "py"}
"""Modules of which a change adds none."""


async def grade(check: RepositoryTests, program: str, sandbox: Sandbox) -> Execution:
    """The execution of a change. Raises SandboxError where the machine failed."""
    tree = await tree_of(check)
    async with sandbox.box(spec_of(check, tree)) as box:
        needed = list(dict.fromkeys([*check.fail_to_pass, *check.pass_to_pass]))
        try:
            if fault := await change(box, program):
                return Execution(Verdict.COMPILE, total=len(needed), detail=fault)
            await restore(box, check, tree)
            planted = await plant(box, check)
        except OSError as error:
            return Execution(Verdict.ERROR, total=len(needed), detail=str(error))
        result = await run(box, check, tree, needed, planted)
    return decide(needed, check.fail_to_pass, planted, result)


async def change(box: Box, program: str) -> str:
    """Apply a program. Why that cannot be done, if so. Raises OSError."""
    if not program.strip():
        return ""
    if program.lstrip().startswith("{"):
        try:
            files = {path: text.encode() for path, text in json.loads(program).items()}
            await box.write(files)
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            return f"no JSON object of files' texts by path: {error}"
        return ""
    diff = program.encode("utf-8", "surrogateescape") + b"\n" * (not program.endswith("\n"))
    return await apply(box, diff)


async def apply(box: Box, diff: bytes) -> str:
    """Apply a diff. Why that cannot be done, if so."""
    said = list[str]()
    for argv in APPLY:
        done = await box.run(argv, stdin=diff, merged=True)
        if done.ended is Ended.EXITED and done.status == 0:
            return ""
        said.append(done.stdout.decode("utf-8", "replace").strip() or done.detail)
    return f"the diff does not apply: {said[0]}"


async def restore(box: Box, check: RepositoryTests, tree: Path) -> None:
    """Undo what a change did to tests, to pytest's configuration and to what Python runs by itself;
    then bring in the tests that it never saw. Raises OSError.
    """
    theirs = [path for path in await box.changes() if is_ours(path, check, tree)]
    kept = {path: tree / path for path in theirs if (tree / path).is_file()}
    await box.remove([path for path in theirs if path not in kept])
    runs = [path for path, file in kept.items() if file.stat().st_mode & 0o111]
    await box.write({path: file.read_bytes() for path, file in kept.items()}, runs)
    if check.test_patch and (fault := await apply(box, check.test_patch.encode())):
        raise OSError(f"{SETUP}the test patch: {fault}")


def is_ours(path: str, check: RepositoryTests, tree: Path) -> bool:
    """Whether no change may reach a file."""
    files = {test.partition("::")[0] for test in (*check.fail_to_pass, *check.pass_to_pass)}
    folders = {str(PurePosixPath(file).parent) for file in files}
    tests = (*check.tests, *files, *(folder for folder in folders if "test" in folder))
    if any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in tests):
        return True
    if any(fnmatch(part, pattern) for pattern in OURS for part in path.split("/")[-1:]):
        return True
    for folder in ("", *(f"{one}/" for one in import_paths(check, tree))):
        module = path.removeprefix(folder).partition("/")[0].removesuffix(".py")
        if path.startswith(folder) and module in SHADOWED and not (tree / path).exists():
            return True
    return False


async def plant(box: Box, check: RepositoryTests) -> list[Canary]:
    """Add canaries to the files of some tests, first of those that a right change repairs. Raises
    OSError.
    """
    random = SystemRandom()
    groups = (check.fail_to_pass, check.pass_to_pass)
    drawn = [test for group in groups for test in random.sample(group, len(group))]
    paths = list(dict.fromkeys(test.partition("::")[0] for test in drawn))[:CANARIES]
    sources = dict[str, str]()
    for path in paths:
        with contextlib.suppress(UnicodeDecodeError):
            sources[path] = (await box.read(path)).decode()
    planted = canaries(drawn, sources, CANARIES, random)
    for canary in planted:
        sources[canary.original.partition("::")[0]] += canary.source
    await box.write({path: source.encode() for path, source in sources.items()})
    return planted


async def run(
    box: Box, check: RepositoryTests, tree: Path, needed: Sequence[str], planted: Sequence[Canary]
) -> Result:
    """Run the tests and the canaries in random order."""
    tests = [*needed, *(canary.id for canary in planted)]
    SystemRandom().shuffle(tests)
    python, packages, _ = interpreter(check)
    paths = [str(PurePosixPath(box.folder, path)) for path in import_paths(check, tree)]
    options = [
        "-c", configuration(tree) or os.devnull, "--rootdir", box.folder, "--confcutdir",
        box.folder, "-p", "no:cacheprovider", "-q", "--tb=short", "--color=no",
        *check.pytest_arguments,
    ]  # fmt: skip
    job = repository_runner.Job(
        tests, sorted({test.partition("::")[0] for test in tests}), options, paths, packages,
        modules(import_paths(check, tree), tree), min(TEST_SECONDS, check.seconds),
    )  # fmt: skip
    variables = {
        "PYTHONHASHSEED": "0", **check.environment, "PYTHONPATH": "", "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    return await box.run(
        (*python, str(RUNNER)), stdin=json.dumps(job).encode(), environment=variables,
        wall_seconds=check.seconds, output_bytes=OUTPUT_BYTES,
    )  # fmt: skip


def decide(
    needed: Sequence[str], fixes: Collection[str], planted: Sequence[Canary], result: Result
) -> Execution:
    """The execution of a run. What it printed may be anything."""
    answer = printed(result)
    reports = dict[str, Any](answer.get("results", {}))
    tests = tuple(outcome_of(name, reports.get(name), name in fixes) for name in needed)
    passed = sum(test.holds for test in tests)
    verdict, detail = Verdict.PASS, ""
    if result.ended is Ended.WALL:
        verdict, detail = Verdict.TIMEOUT, result.detail
    elif "setup" in answer:
        verdict, detail = Verdict.INFRA, f"{SETUP}{answer['setup']}"
    elif not answer:
        verdict, detail = Verdict.ERROR, f"the run of the tests was ended: {result.detail}"
    elif answer.get("forged") or any(is_forged(canary, reports) for canary in planted):
        verdict, detail = Verdict.FORBIDDEN, FORGED
    elif failed := [test for test in tests if not test.holds]:
        first = min(failed, key=lambda test: not test.is_fix)
        said = first.detail.strip().rpartition("\n")[2]
        verdict, detail = Verdict.WRONG, f"{first.name}: {first.outcome}: {said}"
    if verdict not in (Verdict.PASS, Verdict.WRONG):
        passed = 0
    execution = measured(result, verdict, detail, b"", result.stderr[-SHOWN_BYTES:])
    trusted = ("own_process",) if passed else ()
    return replace(execution, passed=passed, total=len(needed), tests=tests, trusted=trusted)


def printed(result: Result) -> dict[str, Any]:
    """What the runner printed; nothing where it did not come to that."""
    try:
        answer = json.loads(result.stdout) if result.ended is Ended.EXITED else {}
    except (ValueError, RecursionError):
        return {}
    return (
        answer if isinstance(answer, dict) and isinstance(answer.get("results", {}), dict) else {}
    )


def outcome_of(name: str, report: Any, is_fix: bool) -> TestOutcome:
    """The outcome of one test."""
    try:
        return TestOutcome(
            name, str(report["outcome"]), float(report.get("seconds", 0.0)), is_fix,
            str(report["detail"]),
        )  # fmt: skip
    except (TypeError, KeyError, ValueError):
        return TestOutcome(name, "missing", 0.0, is_fix)


def is_forged(canary: Canary, reports: Mapping[str, Any]) -> bool:
    """Whether a test and its canary pass."""
    both = [outcome_of(name, reports.get(name), False) for name in (canary.original, canary.id)]
    return all(one.outcome == "passed" for one in both)


def import_paths(check: RepositoryTests, tree: Path) -> list[str]:
    """The folders that imports search, in the tree or among the roots."""
    if paths := check.environment.get("PYTHONPATH"):
        return [path for path in paths.split(":") if path]
    return [path for path in ("src", ".") if (tree / path).is_dir()]


def modules(paths: Sequence[str], tree: Path) -> list[str]:
    """The names of the tree's own modules and packages."""
    names = {
        file.stem
        for path in paths
        if (tree / path).is_dir()
        for file in (tree / path).iterdir()
        if file.suffix in ("", ".py")
    }
    return sorted(names - sys.stdlib_module_names - {"pytest", "_pytest", "pluggy"})


def interpreter(check: RepositoryTests) -> tuple[list[str], list[str], list[Path]]:
    """The Python of a task, the folders of packages that it lacks, and what a box must show for
    that.
    """
    for root in check.roots:
        if (Path(root) / "bin/python").exists():
            return [f"{root}/bin/python"], [], []
    spec = find_spec("pytest")
    if spec is None or spec.origin is None:
        raise DataError("pytest is not installed; pip install pytest, or give the task 'roots'")
    packages = Path(spec.origin).parents[1]
    shown = [*(packages / name for name in PYTEST), *packages.glob("pluggy-*.dist-info")]
    return [INTERPRETER[0], "-S"], [str(packages)], shown  # -v asks for pluggy's version


def spec_of(check: RepositoryTests, tree: Path) -> BoxSpec:
    """The box in which a change is graded."""
    roots = (RUNNER, *interpreter(check)[2], *map(Path, check.roots))
    return BoxSpec(tree, roots)


class Repositories(Kind[RepositoryTests], judges=RepositoryTests):
    """A change of a repository, graded by its tests."""

    started_by_tests = True

    def count(self, check: RepositoryTests) -> int:
        """All tests. Raises ValueError where none fails before the change."""
        if not check.fail_to_pass:
            raise ValueError("no test fails before the change; name some in 'fail_to_pass'")
        return len({*check.fail_to_pass, *check.pass_to_pass})

    def run(self, check: RepositoryTests, program: str, language: Language) -> ProgramRun:
        """All of them in one box."""
        return ProgramRun(in_boxes=partial(grade, check, program))

    def show(self, check: RepositoryTests, task: Task) -> str:
        """The tests that must pass."""
        return "\n".join(check.fail_to_pass)

    def cheats(self, check: RepositoryTests, task: Task) -> dict[str, str]:
        """Changes that repair nothing."""
        return cheats_of(check, task.reference or "")
