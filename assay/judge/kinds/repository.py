"""Tests of a repository: pytest runs them in a box, beside the program's code, so each pass is
forgeable. judge/repository_runner.py is what runs there; docs/repositories.md says what it stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from assay.checks import RepositoryTests
from assay.errors import DataError, SandboxError
from assay.judge import repository_runner
from assay.judge.canaries import Canary, canaries
from assay.judge.images import image_folder
from assay.judge.kinds.kind import Kind, ProgramRun
from assay.judge.kinds.repository_cheats import cheats_of
from assay.judge.patches import safe_path
from assay.judge.protocol import SETUP
from assay.judge.repository_tree import digest_of, import_paths, modules, packages_of, tree_of
from assay.judge.verdict import measured
from assay.judge.verdict_cache import BoundedDict
from assay.sandbox.access import INTERPRETER
from assay.sandbox.box import Box, BoxSpec
from assay.sandbox.program import ENVIRONMENT, Ended, Result
from assay.types import Execution, Task, TestOutcome, Verdict

if TYPE_CHECKING:
    from assay.languages import Language
    from assay.sandbox.client import Sandbox

RUNNER = Path(repository_runner.__file__).read_text()
START = "import sys; sys.path[:] = filter(None, sys.path); exec(sys.argv[1])"
"""Starts it in any Python, some of which would search the work folder first."""
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
"""What a box shows of our packages, where the task has no interpreter of its own."""
TEST_SECONDS = 120.0
"""Most wall time of one test."""
CANARIES = 4
OUTPUT_BYTES, SHOWN_BYTES = 64 << 20, 65_536
FORGED = "a test that must fail passes, or one that was not asked for: the program forges reports"
APPLY = (
    ("git", "apply", "--whitespace=nowarn", "-"),
    ("git", "apply", "--recount", "--whitespace=nowarn", "-"),
    ("patch", "--batch", "--unified", "--fuzz=5", "--strip=1", "--no-backup-if-mismatch",
     "--quiet"),
)  # fmt: skip
"""What puts a diff into a tree, as SWE-bench tries it."""
OURS = ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini",
        "setup.cfg", "pyproject.toml", "test_*.py", "*_test.py", "tests.py", "sitecustomize",
        "sitecustomize.py", "usercustomize", "usercustomize.py", "*.pth", "*.pyc", "*.so", "*.pyd",
        "entry_points.txt", ".git", ".gitattributes")  # fmt: skip
"""Names of files and folders that no change reaches."""
OURS_PATTERN = re.compile("|".join(map(translate, OURS)))
TEST_FOLDER = re.compile(
    r"(?:.*/)?(?:[^/]*[-_.])?(?:\w*tests|(?:unit|self)?test(?:ing|suite)?)(?:[-_.][^/]*)?(?=/|$)"
)
"""The path up to its last part that is named as tests are, unlike `latest` or `pytest_cov`."""
SHADOWED = {*sys.stdlib_module_names, *PYTEST, "py"}
"""Modules of which a change adds none."""
SKIPPED, LATE = "skipped", "timeout"
AS_RIGHT = {SKIPPED: (SKIPPED, "xskipped"), "xfailed": ("failed", "xfailed")}
"""Outcomes that the program can ask pytest for; what each is where the right change has another,
and where it has the same.
"""
HIDDEN = ".tests"
"""Where hidden tests lie while a change is made, in the box's folder for temporary files."""
REFERENCES: BoundedDict[tuple[RepositoryTests, str], dict[str, str]] = BoundedDict(512)
"""Outcomes of some tests with a right change."""


async def grade(
    check: RepositoryTests, program: str, reference: str, sandbox: Sandbox, stop_early: bool
) -> Execution:
    """The execution of a change. reference: the right one, or empty; a test that it skips may be
    skipped unless it is one to repair, and one may fail as expected that does so with it. Raises
    SandboxError where the machine failed.
    """
    execution = await attempt(check, program, sandbox, stop_early)
    doubtful = [test.name for test in execution.tests if is_doubtful(test)]
    if execution.verdict not in (Verdict.PASS, Verdict.WRONG) or not doubtful:
        return execution
    alone = replace(check, fail_to_pass=(), pass_to_pass=())
    outcomes = REFERENCES.setdefault((alone, reference), {})
    if unknown := tuple(name for name in doubtful if name not in outcomes):
        right = await attempt(replace(alone, pass_to_pass=unknown), reference, sandbox)
        if right.verdict in (Verdict.INFRA, Verdict.TIMEOUT):
            raise SandboxError(f"the right change could not be tried: {right.detail}")
        outcomes.update((test.name, test.outcome) for test in right.tests)
    tests = [
        replace(test, outcome=AS_RIGHT[test.outcome][outcomes.get(test.name) == test.outcome])
        if is_doubtful(test) else test for test in execution.tests
    ]  # fmt: skip
    return of_tests(execution, tests)


def is_doubtful(test: TestOutcome) -> bool:
    """Whether the test's outcome counts only where a right change has the same."""
    return test.outcome in AS_RIGHT and not (test.is_fix and test.outcome == SKIPPED)


async def attempt(
    check: RepositoryTests, program: str, sandbox: Sandbox, stop_early: bool = False
) -> Execution:
    """The execution of a change, whatever a right one skips. Raises SandboxError."""
    needed = list(dict.fromkeys([*check.fail_to_pass, *check.pass_to_pass]))
    spec = await spec_of(check)
    failed = partial(Execution, total=len(needed))
    async with sandbox.box(spec) as box:
        try:
            hidden = await set_aside(box, check)
            if fault := await change(box, program):
                return failed(Verdict.COMPILE, detail=fault)
            await restore(box, check, spec.tree, hidden)
            planted = await plant(box, check)
        except TimeoutError as error:
            raise SandboxError(str(error)) from None
        except DataError as error:
            return failed(Verdict.INFRA, detail=f"{SETUP}{error}")
        except OSError as error:
            return failed(Verdict.ERROR, detail=str(error))
        result = await run(box, check, spec.tree, needed, planted, stop_early)
    return decide(needed, check.fail_to_pass, planted, result)


async def set_aside(box: Box, check: RepositoryTests) -> list[str]:
    """Put the tests that no program sees where it does not reach. Their paths. Raises OSError, and
    DataError where they do not fit the tree.
    """
    if not check.test_patch:
        return []
    if fault := await apply(box, check.test_patch):
        raise DataError(f"the test patch: {fault}")
    paths = await box.changes()
    await box.copy(box.folder, f"{box.temporary}/{HIDDEN}", paths)
    await box.copy(box.tree, box.folder, paths)
    return paths


async def change(box: Box, program: str) -> str:
    """Apply a program. Why that cannot be done, if so. Raises OSError."""
    if not program.lstrip().startswith("{"):
        return await apply(box, program) if program.strip() else ""
    try:
        files = {safe_path(path): text.encode() for path, text in json.loads(program).items()}
        await box.write(files)
    except TimeoutError:
        raise
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        return f"no JSON object of files' texts by path: {error}"
    return ""


async def apply(box: Box, diff: str) -> str:
    """Apply a diff. Why that cannot be done, if so. Raises TimeoutError."""
    try:
        data = diff.encode("utf-8", "surrogateescape") + b"\n" * (not diff.endswith("\n"))
    except UnicodeEncodeError as error:
        return f"the diff is no text: {error.reason}"
    faults = list[str]()
    for argv in APPLY:
        done = await box.run(argv, stdin=data, merged=True)
        if done.ended is Ended.EXITED and done.status == 0:
            return ""
        faults.append(done.stdout.decode("utf-8", "replace").strip() or done.detail)
    return f"the diff does not apply: {faults[0]}"


async def restore(box: Box, check: RepositoryTests, tree: Path, hidden: Sequence[str]) -> None:
    """Undo what a change did to tests, to pytest's configuration and to what Python and git run by
    themselves; then bring in the hidden tests. Raises OSError.
    """
    is_ours = protected(check, tree)
    await box.copy(box.tree, box.folder, [path for path in await box.changes() if is_ours(path)])
    await box.copy(f"{box.temporary}/{HIDDEN}", box.folder, hidden)


def protected(check: RepositoryTests, tree: Path) -> Callable[[str], bool]:
    """Whether no change may reach a path."""
    files = {test.partition("::")[0] for test in (*check.fail_to_pass, *check.pass_to_pass)}
    homes = {str(PurePosixPath(file).parent) for file in files}
    scripts = {home for home in homes if not (tree / home / "__init__.py").exists()}
    tests = {str(PurePosixPath(path)) for path in check.tests} | files
    if check.image:
        inside = check.tree.rstrip("/") + "/"
        tests |= {root.removeprefix(inside) for root in check.roots if root.startswith(inside)}
    tests |= {match[0] for home in homes if (match := TEST_FOLDER.match(home))}
    searched = {".", *scripts, *import_paths(check, tree)}

    def is_ours(path: str) -> bool:
        parts = path.split("/")
        for depth, name in enumerate(parts, start=1):
            inside = "/".join(parts[:depth])
            if inside in tests or OURS_PATTERN.match(name):
                return True
            folder = "/".join(parts[: depth - 1]) or "."
            is_module = folder in searched and name.removesuffix(".py") in SHADOWED
            if is_module and not (tree / path).exists():
                return True
        return False

    return is_ours


async def plant(box: Box, check: RepositoryTests) -> list[Canary]:
    """Add canaries to the files of some tests, first of those that a right change repairs. Raises
    OSError.
    """
    random = SystemRandom()
    groups = (check.fail_to_pass, check.pass_to_pass)
    shuffled = [test for group in groups for test in random.sample(group, len(group))]
    paths = list(dict.fromkeys(test.partition("::")[0] for test in shuffled))[:CANARIES]
    sources = dict[str, str]()
    for path in paths:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            sources[path] = (await box.read(path)).decode()
    planted = canaries(shuffled, sources, CANARIES, random)
    for canary in planted:
        sources[canary.original.partition("::")[0]] += canary.source
    await box.write({path: source.encode() for path, source in sources.items()})
    return planted


async def run(
    box: Box, check: RepositoryTests, tree: Path, needed: Sequence[str], planted: Sequence[Canary],
    stop_early: bool = False,
) -> Result:  # fmt: skip
    """Run the tests and the canaries in random order; with `stop_early` until one of the tests
    fails, those that a right change repairs first.
    """
    tests = [*needed, *(canary.id for canary in planted)]
    SystemRandom().shuffle(tests)
    if stop_early:
        tests.sort(key={*check.pass_to_pass}.__contains__)
    python, packages, _ = interpreter(check)
    paths = [str(PurePosixPath(box.folder, path)) for path in import_paths(check, tree)]
    options = [
        "--rootdir", box.folder, "--confcutdir", box.folder, "-p", "no:cacheprovider", "-q",
        "--tb=short", "--color=no",
        *check.pytest_arguments,
    ]  # fmt: skip
    job = repository_runner.RunnerJob(
        tests, sorted({test.partition("::")[0] for test in tests}), options, paths, packages,
        modules(import_paths(check, tree), tree), min(TEST_SECONDS, check.seconds),
        [*needed] if stop_early else [],
    )  # fmt: skip
    variables = {
        "PYTHONHASHSEED": "0", **check.environment, "PYTHONPATH": "", "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    return await box.run(
        (*python, "-c", START, RUNNER), stdin=json.dumps(job).encode(), environment=variables,
        wall_seconds=check.seconds, output_bytes=OUTPUT_BYTES,
    )  # fmt: skip


def decide(
    needed: Sequence[str], fixes: Collection[str], planted: Sequence[Canary], result: Result
) -> Execution:
    """The execution of a run. What it printed may be anything."""
    answer = printed(result)
    reports = dict[str, Any](answer.get("results", {}))
    tests = tuple(outcome_of(name, reports.get(name), name in fixes) for name in needed)
    ended = answer.get("ended") or result.detail
    verdict, detail = Verdict.ERROR, f"the run of the tests was ended: {ended}"
    if result.ended is Ended.WALL:
        verdict, detail = Verdict.TIMEOUT, result.detail
    elif result.ended is Ended.EXITED and not result.stdout:
        reason = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        verdict, detail = Verdict.INFRA, f"{SETUP}its interpreter runs no tests: {reason}"
    elif "setup" in answer:
        verdict, detail = Verdict.INFRA, f"{SETUP}{answer['setup']}"
    elif answer.get("forged") or any(is_forged(canary, reports) for canary in planted):
        verdict, detail = Verdict.FORBIDDEN, FORGED
    execution = measured(result, verdict, detail, b"", result.stderr[-SHOWN_BYTES:])
    execution = replace(execution, total=len(needed), tests=tests)
    judged = verdict is Verdict.ERROR and "results" in answer
    return of_tests(execution, tests) if judged else execution


def of_tests(execution: Execution, tests: Sequence[TestOutcome]) -> Execution:
    """The execution that its tests decide. It is out of time where nothing else fails."""
    failed = [test for test in tests if not test.holds]
    verdict, detail = Verdict.PASS, ""
    if failed:
        first = min(
            failed,
            key=lambda test: (test.outcome == LATE, not test.is_fix, test.outcome == "missing"),
        )
        verdict = Verdict.TIMEOUT if first.outcome == LATE else Verdict.WRONG
        reason = first.detail.strip().rpartition("\n")[2]
        detail = f"{first.name}: {first.outcome}: {reason}"
    passed = len(tests) - len(failed)
    return replace(
        execution, verdict=verdict, detail=detail, passed=passed, tests=tuple(tests),
        forgeable=passed > 0,
    )  # fmt: skip


def printed(result: Result) -> dict[str, Any]:
    """What the runner printed; nothing where it did not come to that."""
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(result.stdout) if result.ended is Ended.EXITED else {}
        if isinstance(answer, dict) and isinstance(answer.get("results", {}), dict):
            return answer
    return {}


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
    return all(test.outcome == "passed" for test in both)


def interpreter(check: RepositoryTests) -> tuple[list[str], list[str], list[Path]]:
    """The Python of a task, the folders of packages that it lacks, and what a box must show for
    that.
    """
    if check.image:
        return ["python3", "-S"], [], []
    for root in check.roots:
        if (Path(root) / "bin/python").exists():
            return [f"{root}/bin/python", "-S"], [], []
    spec = find_spec("pytest")
    if spec is None or spec.origin is None:
        raise DataError("pytest is not installed; pip install pytest, or give the task 'roots'")
    packages = Path(spec.origin).parents[1]
    visible = [*(packages / name for name in PYTEST), *packages.glob("pluggy-*.dist-info")]
    return [INTERPRETER[0], "-S"], [str(packages)], visible  # -v asks for pluggy's version


async def spec_of(check: RepositoryTests) -> BoxSpec:
    """The box of a repository, in which commands find its interpreter. Raises DataError."""
    tree = await asyncio.to_thread(tree_of, check)
    path = ":".join([*(f"{root}/bin" for root in check.roots), ENVIRONMENT["PATH"]])
    spec = BoxSpec(tree, environment={"PATH": path, **check.environment})
    if check.image:
        return spec._replace(image=image_folder(check.image), folder=check.tree)
    return spec._replace(roots=(*interpreter(check)[2], *map(Path, check.roots)))


class Repositories(Kind[RepositoryTests], judges=RepositoryTests):
    """A change of a repository, graded by its tests."""

    started_by_tests = True

    def count(self, check: RepositoryTests) -> int:
        """All tests. Raises ValueError where none fails before the change."""
        if not check.fail_to_pass:
            raise ValueError("no test fails before the change; name some in 'fail_to_pass'")
        return len({*check.fail_to_pass, *check.pass_to_pass})

    def surroundings(self, check: RepositoryTests) -> str:
        """The content of the tree, the packages in the roots, and the image. Raises DataError."""
        image = str(image_folder(check.image)) if check.image else ""
        packages = [packages_of(f"{image}{root}") for root in check.roots]
        if Path(check.image).is_absolute() and Path(check.image).is_dir():
            image += digest_of(image, read=False)  # of other images the path is that of a content
        return f"{digest_of(str(tree_of(check)))}{packages}{image}"

    def runs(
        self, checks: Sequence[RepositoryTests], task: Task, program: str, language: Language
    ) -> list[ProgramRun]:
        """All tests of each in one box."""
        right = task.reference or ""
        return [ProgramRun(in_boxes=partial(grade, check, program, right)) for check in checks]

    def show(self, check: RepositoryTests, task: Task) -> str:
        """The tests that must pass."""
        return "\n".join(check.fail_to_pass)

    def cheats(self, check: RepositoryTests, task: Task) -> dict[str, str]:
        """Changes that repair nothing."""
        return cheats_of(check, task.reference or "")
