"""Tests of a repository: pytest runs them in a box, beside the program's code, so each pass is
forgeable. judge/repository_runner.py is what runs there; docs/repositories.md says what it stops.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path, PurePosixPath
from random import SystemRandom
from typing import Any

from assay.bounded import BoundedDict
from assay.checks import RepositoryTests
from assay.content import digest_of, fingerprint_of
from assay.errors import DataError, NotInstalledError, SandboxError
from assay.judge import repository_runner
from assay.judge.canaries import Canary, parsed, turned_file
from assay.judge.copies import copies
from assay.judge.distribution import distribution
from assay.judge.doctests import docstrings, doctest_canary, place
from assay.judge.images import image_folder
from assay.judge.kinds.kind import InTree
from assay.judge.kinds.repository_cheats import cheats_of
from assay.judge.kinds.workbench import Workbench
from assay.judge.line_ends import plain
from assay.judge.patches import PatchError, parse, safe_path, unified
from assay.judge.patches import apply as apply_changes
from assay.judge.repository_tree import import_paths, modules, tree_of
from assay.judge.verdict import REFERENCE_FAILS, measured, unjudged
from assay.judge.worker_messages import SETUP
from assay.sandbox import sockets
from assay.sandbox.access import INTERPRETER
from assay.sandbox.box import Box
from assay.sandbox.box_commit import commit_tree
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import base_of, usual_rules
from assay.sandbox.program import ENVIRONMENT, Ended, Result
from assay.sandbox.standalone import standalone
from assay.types import Cause, Execution, Task, TestOutcome, Verdict

START = "import sys; sys.path[:] = filter(None, sys.path)"
"""Some Pythons would search the work folder first."""
RUNNER = START + standalone(repository_runner, sockets)
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
"""What a box shows of our packages, where the task has no interpreter of its own."""
TEST_SECONDS = 120.0
"""Most wall time of one test."""
CANARIES = 64
"""Most canaries, beside those of the tests that a right change repairs."""
FAILING = ("failed", "xfailed", "timeout")
"""Outcomes of a canary of which its test may pass."""
OUTPUT_BYTES, SHOWN_BYTES = 64 << 20, 65_536
FORGED = "a test that must fail does not, or one that was not asked for passes: it is forged"
GIT_APPLY = ("git", "apply", "--whitespace=nowarn", "-")
GNU_PATCH = ("patch", "--batch", "--unified", "--fuzz=5", "--strip=1", "--no-backup-if-mismatch",
             "--quiet")  # fmt: skip
APPLY = (GIT_APPLY, ("git", "apply", "--recount", "--whitespace=nowarn", "-"), GNU_PATCH)
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
REFERENCES: BoundedDict[tuple[RepositoryTests, str, str], dict[str, str]] = BoundedDict(512, 32)
"""Outcomes of some tests with a right change, by the contents of the tree and of its packages."""


async def grade(
    check: RepositoryTests, program: str, reference: str, workbench: Workbench
) -> Execution:
    """The execution of a change. reference: the right one, or empty; a test that it skips may be
    skipped unless it is one to repair, and one may fail as expected that does so with it. Raises
    SandboxError where the machine failed.
    """
    execution = await attempt(check, program, reference, workbench, workbench.stop_early)
    doubtful = [test.name for test in execution.tests if is_doubtful(test)]
    if execution.verdict not in (Verdict.PASS, Verdict.WRONG) or not doubtful:
        return execution
    alone = replace(check, fail_to_pass=(), pass_to_pass=())
    before = await asyncio.to_thread(contents_of, check)
    outcomes = dict(REFERENCES.get((alone, reference, before), {}))
    if unknown := tuple(name for name in doubtful if name not in outcomes):
        right = await attempt(replace(alone, pass_to_pass=unknown), reference, reference, workbench)
        if right.verdict in (Verdict.UNJUDGED, Verdict.TIMEOUT):
            why = f"{REFERENCE_FAILS}{right.detail}"
            return replace(execution, verdict=Verdict.UNJUDGED, cause=Cause.REFERENCE, detail=why)
        outcomes.update((test.name, test.outcome) for test in right.tests)
        if await asyncio.to_thread(contents_of, check) == before:
            REFERENCES[alone, reference, before] = outcomes
    tests = [
        replace(test, outcome=AS_RIGHT[test.outcome][outcomes.get(test.name) == test.outcome])
        if is_doubtful(test) else test for test in execution.tests
    ]  # fmt: skip
    return of_tests(execution, tests)


def is_doubtful(test: TestOutcome) -> bool:
    """Whether the test's outcome counts only where a right change has the same."""
    return test.outcome in AS_RIGHT and not (test.is_fix and test.outcome == SKIPPED)


async def attempt(
    check: RepositoryTests, program: str, reference: str, workbench: Workbench,
    stop_early: bool = False,
) -> Execution:  # fmt: skip
    """The execution of a change, whatever a right one skips. Raises SandboxError."""
    needed = list(dict.fromkeys([*check.fail_to_pass, *check.pass_to_pass]))
    spec = await spec_of(check)
    failed = partial(Execution, total=len(needed))
    async with workbench.box(spec) as box:
        try:
            hidden = await set_aside(box, check)
            doctests = await docstrings_of(box, check, reference)
            if fault := await change(box, program):
                return failed(Verdict.COMPILE, detail=fault)
            await restore(box, check, spec.tree, hidden, doctests, reference)
            planted, turned = await plant(box, check)
        except TimeoutError as error:
            raise SandboxError(str(error)) from None
        except DataError as error:
            return failed(Verdict.UNJUDGED, detail=f"{SETUP}{error}")
        except OSError as error:
            return failed(Verdict.ERROR, detail=str(error))
        canaries_of_doctests = planted_in(doctests)
        planted += [canary for canary, _ in canaries_of_doctests]
        texts = {test: [test, text] for test, text in doctests.items()}
        texts |= {canary.id: [canary.original, text] for canary, text in canaries_of_doctests}
        result = await run(box, check, spec.tree, needed, planted, texts, stop_early, turned=turned)
    return decide(needed, check.fail_to_pass, planted, result)


async def docstrings_of(box: Box, check: RepositoryTests, reference: str) -> dict[str, str]:
    """The docstrings of the doctests in source files, by id: as a right change has them, or as they
    are without one. Raises OSError.
    """
    tests = [test for test in (*check.fail_to_pass, *check.pass_to_pass) if place(test)]
    sources = dict[str, str]()
    if tests and reference:
        await change(box, reference)
    for path in {test.partition("::")[0] for test in tests}:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            sources[path] = (await box.read(path)).decode("utf-8-sig")
    if tests and reference:
        await box.copy(box.tree, box.folder, await box.changes())
    return docstrings(tests, sources)


def planted_in(doctests: Mapping[str, str]) -> list[tuple[Canary, str]]:
    """Canaries of some doctests, each with its docstring."""
    random = SystemRandom()
    tests = random.sample(sorted(doctests), len(doctests))
    candidates = (doctest_canary(test, doctests[test], random) for test in tests)
    return list(islice(filter(None, candidates), CANARIES))


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
        if argv is GNU_PATCH and (fitted := await with_the_files_line_ends(box, diff)):
            argv, data = GIT_APPLY, fitted
        done = await box.run(argv, stdin=data, merged=True)
        if done.ended is Ended.EXITED and done.status == 0:
            return ""
        faults.append(done.stdout.decode("utf-8", "replace").strip() or done.detail)
    return f"the diff does not apply: {faults[0]}"


async def with_the_files_line_ends(box: Box, diff: str) -> bytes:
    """A diff that only its line ends keep from fitting, with those of its files; else nothing."""
    with contextlib.suppress(PatchError):
        changes, texts = parse(diff), dict[str, str | None]()
        for path in {change.old for change in changes if change.old}:
            with contextlib.suppress(OSError):
                texts[path] = (await box.read(path)).decode("utf-8", "surrogateescape")
        if any(plain(text or "") != text for text in (*texts.values(), diff)):
            return unified(texts, apply_changes(changes, texts.get)).encode(
                "utf-8", "surrogateescape"
            )
    return b""


async def restore(
    box: Box, check: RepositoryTests, tree: Path, hidden: Sequence[str],
    doctests: Collection[str] = (), reference: str = "",
) -> None:  # fmt: skip
    """Undo what a change did to tests, to pytest's configuration and to what Python and git run by
    themselves; then bring in the hidden tests, and take out new modules that only tests know, such
    as one in the place of a package. Raises OSError.
    """
    changed, is_ours = await box.changes(), protected(check, tree, doctests)
    await box.copy(box.tree, box.folder, [path for path in changed if is_ours(path)])
    await box.copy(f"{box.temporary}/{HIDDEN}", box.folder, hidden)
    if reference:
        foreign = await imported_by_tests(box, check, doctests) - right_modules(
            check, tree, reference
        )
        is_foreign = protected(check, tree, doctests, foreign)
        left = [path for path in changed if is_foreign(path) and path not in hidden]
        await box.copy(box.tree, box.folder, [path for path in left if not is_ours(path)])


async def imported_by_tests(
    box: Box, check: RepositoryTests, doctests: Collection[str]
) -> set[str]:
    """The modules that the files of the tests and their `conftest.py` import."""
    tests = {*check.fail_to_pass, *check.pass_to_pass} - {*doctests}
    files = {PurePosixPath(test.partition("::")[0]) for test in tests}
    names = set[str]()
    for path in files | {folder / "conftest.py" for file in files for folder in file.parents}:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for node in ast.walk(parsed((await box.read(str(path))).decode())):
                if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    names.add(node.module.partition(".")[0])
                elif isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
    return names


def right_modules(check: RepositoryTests, tree: Path, reference: str) -> set[str]:
    """The modules of the repository, and those that a right change adds."""
    names = {*modules(import_paths(check, tree), tree)}
    with contextlib.suppress(PatchError):
        for file in parse(reference):
            names |= {part.removesuffix(".py") for part in (file.new or "").split("/")}
    return names


def protected(
    check: RepositoryTests, tree: Path, doctests: Collection[str] = (),
    foreign: Collection[str] = (),
) -> Callable[[str], bool]:  # fmt: skip
    """Whether no change may reach a path. doctests: tests that stand in source files. foreign:
    modules of which it adds none, beside Python's and pytest's.
    """
    tests_of_files = {*check.fail_to_pass, *check.pass_to_pass} - {*doctests}
    files = {test.partition("::")[0] for test in tests_of_files}
    homes = {str(PurePosixPath(file).parent) for file in files}
    scripts = {home for home in homes if not (tree / home / "__init__.py").exists()}
    tests = {str(PurePosixPath(path)) for path in check.tests} | files
    if check.image:
        inside = check.tree.rstrip("/") + "/"
        tests |= {root.removeprefix(inside) for root in check.roots if root.startswith(inside)}
    tests |= {match[0] for home in homes if (match := TEST_FOLDER.match(home))}
    searched, shadowed = {".", *scripts, *import_paths(check, tree)}, {*SHADOWED, *foreign}

    def is_ours(path: str) -> bool:
        parts = path.split("/")
        for depth, name in enumerate(parts, start=1):
            inside = "/".join(parts[:depth])
            if inside in tests or OURS_PATTERN.match(name):
                return True
            folder = "/".join(parts[: depth - 1]) or "."
            is_module = folder in searched and name.removesuffix(".py") in shadowed
            if is_module and not (tree / path).exists():
                return True
        return False

    return is_ours


async def plant(box: Box, check: RepositoryTests) -> tuple[list[Canary], dict[str, list[str]]]:
    """Canaries of the tests that a right change repairs and of some others; and the texts of their
    files, as they are and with the canaries, by path. Raises OSError.
    """
    random = SystemRandom()
    others = random.sample(check.pass_to_pass, min(len(check.pass_to_pass), CANARIES))
    groups = dict[str, list[str]]()
    for test in dict.fromkeys([*check.fail_to_pass, *others]):
        groups.setdefault(test.partition("::")[0], []).append(test)
    planted, texts = list[Canary](), dict[str, list[str]]()
    for path, tests in groups.items():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            source = (await box.read(path)).decode()
            turned, those = turned_file(source, tests, random)
            if those:
                texts[path] = [source, turned]
                planted += [Canary(test, f"{repository_runner.CANARY}{test}") for test in those]
    return planted, texts


async def run(
    box: Box, check: RepositoryTests, tree: Path, needed: Sequence[str], planted: Sequence[Canary],
    doctests: Mapping[str, list[str]] | None = None, stop_early: bool = False,
    is_partial: bool = False, turned: Mapping[str, list[str]] | None = None, runner: str = RUNNER,
) -> Result:  # fmt: skip
    """Run the tests and the canaries in random order; with `stop_early` until one of the tests
    fails, those that a right change repairs first. `is_partial`: once the time of all tests
    is over no other starts, one test may take half of it, and the run says what came of each.
    `runner`: the text of the program that runs them.
    """
    tests = [*needed, *(canary.id for canary in planted)]
    SystemRandom().shuffle(tests)
    if stop_early:
        others = {*check.pass_to_pass}
        tests.sort(key=lambda test: repository_runner.plain(test) in others)
    python, packages, _ = interpreter(check)
    paths = [str(PurePosixPath(box.folder, path)) for path in import_paths(check, tree)]
    options = [
        "--rootdir", box.folder, "--confcutdir", box.folder, "-p", "no:cacheprovider", "-q",
        "--tb=short", "--color=no",
        *check.pytest_arguments,
    ]  # fmt: skip
    own_modules = modules(import_paths(check, tree), tree)
    metadata = await asyncio.to_thread(distribution, tree, own_modules)
    wall = check.seconds * (2 if is_partial else 1 + len(planted) / len(needed))
    job = repository_runner.RunnerJob(
        tests, sorted({test.partition("::")[0] for test in needed}), options, paths, packages,
        own_modules, wall if is_partial else min(TEST_SECONDS, check.seconds),
        [*needed] if stop_early else [], dict(doctests or {}), metadata,
        check.seconds if is_partial else 0.0, dict(turned or {}),
    )  # fmt: skip
    variables = {
        "PYTHONHASHSEED": "0", **check.environment, "PYTHONPATH": "", "PYTHONSAFEPATH": "1",
        "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    return await box.run(
        (*python, "-c", runner), stdin=json.dumps(job).encode(), environment=variables,
        wall_seconds=wall, output_bytes=OUTPUT_BYTES,
    )  # fmt: skip


def decide(
    needed: Sequence[str], fixes: Collection[str], planted: Sequence[Canary], result: Result
) -> Execution:
    """The execution of a run. What it printed may be anything."""
    answer = printed(result)
    reports = dict[str, Any](answer.get("results", {}))
    tests = tuple(outcome_of(name, reports.get(name), name in fixes) for name in needed)
    ended = answer.get("ended") or result.detail
    execution = Execution(Verdict.ERROR, detail=f"the run of the tests was ended: {ended}")
    if result.ended is Ended.WALL:
        execution = Execution(Verdict.TIMEOUT, detail=result.detail)
    elif result.ended is Ended.MEMORY:
        execution = Execution(Verdict.MEMORY, detail=result.detail)
    elif result.ended is Ended.EXITED and not result.stdout:
        reason = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        execution = unjudged(Cause.TASK, f"{SETUP}its interpreter runs no tests: {reason}")
    elif "setup" in answer:
        execution = unjudged(Cause.TASK, f"{SETUP}{answer['setup']}")
    elif answer.get("forged") or any(is_forged(canary, reports) for canary in planted):
        execution = Execution(Verdict.FORBIDDEN, detail=FORGED)
    execution = measured(result, execution, b"", result.stderr[-SHOWN_BYTES:])
    execution = replace(execution, total=len(needed), tests=tests)
    judged = execution.verdict is Verdict.ERROR and "results" in answer
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
        execution, verdict=verdict, cause=None, detail=detail, passed=passed, tests=tuple(tests),
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
    """Whether a test passes and its canary, which was run, does not fail."""
    if canary.id not in reports:
        return False
    test, turned = (outcome_of(name, reports.get(name), False) for name in canary)
    return test.outcome == "passed" and turned.outcome not in FAILING


def contents_of(check: RepositoryTests) -> str:
    """Identifies what a repository's tests may read: the tree, its environments with the
    interpreters on which they stand, and the image. Raises DataError.
    """
    try:
        tree, image = digest_of(tree_of(check)), image_folder(check.image) if check.image else None
        if image is None:
            pythons = (Path(os.path.realpath(f"{root}/bin/python")) for root in check.roots)
            homes = filter(Path.exists, [*map(Path, check.roots), *pythons])
            return " ".join([tree, *map(digest_of, homes)])
        if Path(check.image).is_absolute() and Path(check.image).is_dir():
            return f"{tree} {image} {fingerprint_of(image)}"
        return f"{tree} {image.name}"  # the name of its content
    except OSError as error:
        raise DataError(
            f"{error.filename or check.tree} cannot be read: {error.strerror}"
        ) from None


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
        raise NotInstalledError(
            "pytest is not installed; pip install pytest, or give the task 'roots'"
        )
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


async def shown_spec_of(check: RepositoryTests) -> BoxSpec:
    """The box in which a model works: it shows no other copy of the repository's modules. Raises
    DataError.
    """
    spec = await spec_of(check)
    if check.image:
        return spec
    names = modules(import_paths(check, spec.tree), spec.tree)
    homes = [spec.tree / path for path in import_paths(check, spec.tree)]
    imported = [name for name in names if any(
        (home / f"{name}.py").is_file() or (home / name / "__init__.py").is_file()
        for home in homes
    )]  # fmt: skip
    roots = [str(path) for root in spec.roots for path in (root, *base_of(root))]
    covered = await asyncio.to_thread(copies, usual_rules().visible, roots, imported)
    return spec._replace(covered=covered)


class Repositories(InTree[RepositoryTests], judges=RepositoryTests):
    """A change of a repository, graded by its tests."""

    started_by_tests = True

    async def work_spec(self, check: RepositoryTests) -> BoxSpec:
        """Without other copies of the repository's modules. Raises DataError."""
        return await shown_spec_of(check)

    async def make_ready(self, box: Box) -> str:
        """Make a tree without git history one commit."""
        return await commit_tree(box)

    def image(self, check: RepositoryTests) -> str:
        """The one that has the repository."""
        return check.image

    async def judge_check(
        self, workbench: Workbench, check: RepositoryTests, task: Task, program: str
    ) -> Execution:
        """All its tests in one box."""
        return await grade(check, program, task.reference or "", workbench)

    def count(self, check: RepositoryTests) -> int:
        """All tests. Raises ValueError where none fails before the change."""
        if not check.fail_to_pass:
            raise ValueError("no test fails before the change; name some in 'fail_to_pass'")
        return len({*check.fail_to_pass, *check.pass_to_pass})

    def surroundings(self, check: RepositoryTests) -> str:
        """The contents of the tree, of its environments and of the image. Raises DataError."""
        return contents_of(check)

    def show(self, check: RepositoryTests, task: Task) -> str:
        """The tests that must pass."""
        return "\n".join(check.fail_to_pass)

    def cheats(self, check: RepositoryTests, task: Task) -> dict[str, str]:
        """Changes that repair nothing."""
        return cheats_of(check, task.reference or "")
