"""Scripts that judge a work folder, as Harbor's tasks have them. The script and the reward that it
leaves lie in a box in which no other command ran; but it runs the program's files, so each pass is
forgeable. docs/harbor.md says what that stops.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar, cast

from assay.bounded import BoundedDict
from assay.checks import RepositoryTests, TestScript
from assay.content import digest_of
from assay.errors import DataError, SandboxError
from assay.judge.dockerfiles import made_tree, recipe_of
from assay.judge.kinds.kind import InTree
from assay.judge.kinds.repository import SHADOWED, change
from assay.judge.kinds.repository_cheats import diff_of, read_cheats
from assay.judge.kinds.workbench import Workbench
from assay.judge.repository_tree import tree_of
from assay.judge.shared_work import SharedWork
from assay.judge.verdict import measured, unjudged
from assay.judge.worker_messages import SETUP
from assay.languages.shell_script import is_diff
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.kernel import MIB
from assay.sandbox.program import ENVIRONMENT, Ended, Result
from assay.types import Cause, Execution, Task, TestOutcome, Verdict

LOGS, TESTS, SOLUTION = "/logs", "/tests", "/solution"
REWARDS = f"{LOGS}/verifier"
FILES = (f"{REWARDS}/reward.json", f"{REWARDS}/reward.txt")
"""Where a reward is; the first that is there counts."""
REWARD_BYTES = 65_536
FOLDER_MB = 256
"""What the files beside a script may hold together."""
OUTPUT_BYTES = 65_536
PARTS = 100
"""Checks that a task counts as whose reward lies between 0 and 1."""
OWN_FILES = ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml",
             "__pycache__", ".git")  # fmt: skip
"""Names of files and folders that pytest, Python and git look for everywhere."""
SHARED_SETTINGS = ("pyproject.toml", "setup.cfg", "tox.ini")
"""Files that may have settings of pytest's among others."""
LOOKED_AT = 16
"""New files of these names that are read; more of them are taken out unread."""
CUSTOMIZATIONS = ("sitecustomize", "usercustomize")
OF_MODULES = (".py", ".pyc", ".pyd", ".so")
OF_PACKAGES = (".pth", ".egg", ".egg-info", ".dist-info")
"""Ends of names, in any case, by which Python and pytest find packages and their plug-ins."""
CHEATS = read_cheats(Path(__file__).with_suffix(".toml"))
LIMITS = {Ended.WALL: Verdict.TIMEOUT, Ended.MEMORY: Verdict.MEMORY}


class WorkChange(NamedTuple):
    """What a script makes of a work folder."""

    diff: str = ""
    paths: frozenset[str] = frozenset()
    """Of files that it changes, where these can be listed."""
    fault: Execution | None = None
    """How it ended, where it has no diff."""


class Grade(NamedTuple):
    """What came of a test script."""

    execution: Execution
    lacks_reward: bool = False
    """Whether it ended by itself and left no reward that can be used."""


Key = tuple[TestScript, str, str]
"""A check, its solution, and the contents of what both read."""
CHANGES: BoundedDict[Key, WorkChange] = BoundedDict(512, 64)
"""What solutions do. Nothing clears it before the process ends."""
HAS_REWARD: BoundedDict[Key, bool] = BoundedDict(512, 8)
"""Whether a script gives the solution a reward. Nothing clears it before the process ends."""
IN_FLIGHT: SharedWork[tuple[int, int, Key], Any] = SharedWork(512, 64)
"""What is being found out for one of these, by the loop that waits, until then."""
V = TypeVar("V")


async def judge(workbench: Workbench, check: TestScript, reference: str, program: str) -> Execution:
    """The execution of a program. Where a script leaves no reward, and none for the solution
    either, the task is at fault. Raises SandboxError.
    """
    result = await grade(workbench, check, reference, program)
    if not (result.lacks_reward and reference):
        return result.execution

    async def has_reward() -> bool:
        if program == reference:
            return False
        return not (await grade(workbench, check, reference, reference)).lacks_reward

    if await ask_once(HAS_REWARD, check, reference, has_reward):
        return result.execution
    why = f"the solution gets no reward either: {result.execution.detail}"
    return replace(
        result.execution, verdict=Verdict.UNJUDGED, cause=Cause.TASK, detail=f"{SETUP}{why}"
    )


async def ask_once(
    store: BoundedDict[Key, V], check: TestScript, reference: str, find: Callable[[], Awaitable[V]]
) -> V:
    """What `find` says of a solution, asked once for the contents that it read; those who ask
    meanwhile wait for it. Raises what it raises, and DataError.
    """
    key = check, reference, await asyncio.to_thread(contents_of, check)
    if key in store:
        return store[key]
    place = id(store), id(asyncio.get_running_loop()), key

    async def find_once() -> V:
        try:
            answer = await find()
            if await asyncio.to_thread(contents_of, check) == key[-1]:
                store[key] = answer
            return answer
        finally:
            IN_FLIGHT.pop(place, None)

    return cast("V", await IN_FLIGHT.get_or_make(place, find_once))


async def grade(workbench: Workbench, check: TestScript, reference: str, program: str) -> Grade:
    """Run the test script on what a program makes of the work folder. Raises SandboxError."""
    try:
        right = WorkChange()
        if reference:
            solve = partial(change_by, workbench, check, reference, is_right=True)
            right = await ask_once(CHANGES, check, reference, solve)
        mine = WorkChange(program)
        if reference and program == reference:
            mine = right
        elif program.strip() and not is_diff(program):
            is_right = program.strip() == reference.strip()  # as `assay check` runs it again
            mine = await change_by(workbench, check, program, is_right)
        if mine.fault is not None:
            return Grade(mine.fault)
        spec = await test_spec_of(check)
        async with workbench.box(spec) as box:
            await make_folders(box, REWARDS, f"{LOGS}/agent", f"{LOGS}/artifacts")
            fault = await fault_of_change(box, mine.diff)
            if reference and fault is None:
                fault = await fault_of_restoring(box, spec.tree, right.paths)
            if fault is not None:
                return Grade(fault)
            return await run_tests(box, check)
    except TimeoutError as error:
        raise SandboxError(str(error)) from None
    except DataError as error:
        return Grade(unjudged(Cause.TASK, f"{SETUP}{error}"))
    except UnicodeEncodeError as error:
        detail = f"the script is no text: {error.reason}"
        return Grade(Execution(Verdict.COMPILE, detail=detail, total=1))
    except OSError as error:
        return Grade(Execution(Verdict.ERROR, detail=str(error), total=1))


async def fault_of_change(box: Box, diff: str) -> Execution | None:
    """Change the work folder of a box by a diff. What comes of that where it cannot be done. Raises
    SandboxError.
    """
    try:
        fault = await change(box, diff) if diff.strip() else ""
    except OSError as error:
        return failure(error)
    return Execution(Verdict.COMPILE, detail=fault, total=1) if fault else None


async def fault_of_restoring(
    box: Box, tree: Path, right_paths: Collection[str]
) -> Execution | None:
    """As `restore`. What comes of a program of whose files that cannot be done."""
    try:
        await restore(box, tree, right_paths)
    except OSError as error:
        return failure(error)
    return None


def failure(error: OSError) -> Execution:
    """The execution of a program of whose files nothing can be made: too many, or too large."""
    verdict = Verdict.TIMEOUT if isinstance(error, TimeoutError) else Verdict.ERROR
    return Execution(verdict, detail=str(error), total=1)


async def change_by(
    workbench: Workbench, check: TestScript, script: str, is_right: bool = False
) -> WorkChange:
    """What a script makes of the work folder. is_right: whether it is the solution's, which alone
    sees the files of that, and may be a diff. Raises SandboxError, OSError, DataError.
    """
    spec, variables = await work_spec_of(check), {"DEBIAN_FRONTEND": "noninteractive"}
    async with workbench.box(spec._replace(writable=(LOGS, SOLUTION))) as box:
        await make_folders(box, f"{LOGS}/agent")
        if is_right and not check.solution and is_diff(script):
            fault = await fault_of_change(box, script)
            return await change_in(box, fault, is_right)
        if is_right and check.solution:
            await lay_out(box, Path(check.solution), SOLUTION)
            name = f"{SOLUTION}/{Path(check.solution).name}"
            variables |= check.solution_environment
        else:
            files = {"script.sh": script.encode("utf-8", "surrogateescape")}
            await box.write(files, files, folder=box.temporary)
            name = f"{box.temporary}/script.sh"
        result, fault = await run_script(box, name, check.script_seconds, variables), None
        if result.ended in LIMITS:
            fault = Execution(LIMITS[result.ended], detail=result.detail, total=1)
            fault = measured(result, fault, result.stdout)
        return await change_in(box, fault, is_right)


async def change_in(box: Box, fault: Execution | None, is_right: bool) -> WorkChange:
    """The change that a script has left. fault: how it ended, if not well. Raises SandboxError."""
    diff, paths = "", frozenset[str]()
    try:
        paths = frozenset(await box.changes())
        diff = await box.diff()
    except OSError as error:
        fault = fault or failure(error)
    if fault and is_right:
        detail = f"the solution: {fault.verdict}: {fault.detail}"
        fault = replace(fault, verdict=Verdict.ERROR, cause=None, detail=detail)
    return WorkChange("" if fault else diff, paths, fault)


async def make_folders(box: Box, *folders: str) -> None:
    """Make folders of a box in which no command of others ran. Raises SandboxError."""
    done = await box.run(("mkdir", "-p", *folders), merged=True)
    if done.ended is not Ended.EXITED or done.status != 0:
        raise SandboxError(f"a box lacks {folders[0]}: {done.stdout.decode(errors='replace')}")


async def run_tests(box: Box, check: TestScript) -> Grade:
    """Bring the tests into a box, which has nothing of the program beside the work folder, and run
    their script. Raises SandboxError, OSError, DataError.
    """
    folders = LOGS, TESTS, box.temporary, "/dev/shm"
    of_logs = "(", "-not", "-type", "d", "-o", "-not", "-path", f"{LOGS}/*", ")"
    await box.run(("find", *folders, "-mindepth", "1", *of_logs, "-delete"))
    await lay_out(box, Path(check.test_script), TESTS)
    name = f"{TESTS}/{Path(check.test_script).name}"
    result = await run_script(box, name, check.seconds, check.test_environment)
    if result.ended is not Ended.EXITED:
        verdict = LIMITS.get(result.ended, Verdict.ERROR)
        stopped = Execution(verdict, detail=f"the test script: {result.detail}", total=1)
        return Grade(measured(result, stopped, result.stdout))
    execution = await execution_in(box)
    return Grade(measured(result, execution, result.stdout), lacks_reward=not execution.tests)


async def run_script(box: Box, name: str, seconds: float, variables: Mapping[str, str]) -> Result:
    """Run a script of a box by the program that its first line names, or by bash."""
    return await box.run(
        ("/bin/bash", "-c", '"$0"', name), environment=variables, wall_seconds=seconds,
        output_bytes=OUTPUT_BYTES, merged=True,
    )  # fmt: skip


async def lay_out(box: Box, script: Path, folder: str) -> None:
    """Put a script and all that is beside it into a folder of a box. Raises OSError, DataError."""
    files, executable = await asyncio.to_thread(files_beside, script)
    await box.write(files, executable, folder=folder)


def files_beside(script: Path) -> tuple[dict[str, bytes], set[str]]:
    """A script and all files beside and below, by path, and those that may be executed, as the
    script. Raises DataError for links out of the folder, and for too much.
    """
    home, files, executable, room = script.parent, dict[str, bytes](), {script.name}, FOLDER_MB
    try:
        root, left = home.resolve(strict=True), room * MIB
        for folder, _, names in os.walk(home):
            for file in (Path(folder, name) for name in sorted(names)):
                if not (file.is_file() and file.resolve().is_relative_to(root)):
                    raise DataError(f"{file} is no file of {home}")
                path = file.relative_to(home).as_posix()
                left -= file.stat().st_size
                if left < 0:
                    raise DataError(f"{home} holds more than {room} MiB")
                files[path] = file.read_bytes()
                executable |= {path} if os.access(file, os.X_OK) else set()
    except OSError as error:
        raise DataError(f"{error.filename or home} cannot be read: {error.strerror}") from None
    if script.name not in files:
        raise DataError(f"{script} is no file")
    return files, executable


async def restore(box: Box, tree: Path, right_paths: Collection[str]) -> None:
    """Undo what Python and pytest would run by themselves in the work folder, and new files that
    stand there in the place of their modules, but for paths of a right change. Raises OSError.
    """
    paths, shared = list[str](), list[str]()
    for path in sorted(set(await box.changes()).difference(right_paths)):
        is_old = os.path.lexists(tree / path)
        is_shared = path.rpartition("/")[2] in SHARED_SETTINGS
        if runs_by_itself(path) or (is_shared and is_old):
            paths.append(path)
        elif is_shared:
            shared.append(path)
        elif stands_for_a_module(path) and not is_old:
            paths.append(path)
    of_pytest = [path for path in shared[:LOOKED_AT] if await may_name_pytest(box, path)]
    await box.copy(box.tree, box.folder, [*paths, *of_pytest, *shared[LOOKED_AT:]])


def runs_by_itself(path: str) -> bool:
    """Whether Python, pytest or git look for a name of this path wherever it stands."""
    return any(
        part in OWN_FILES
        or part.lower().endswith(OF_PACKAGES)
        or (part.partition(".")[0] in CUSTOMIZATIONS and may_be_imported(part))
        for part in path.split("/")
    )


def stands_for_a_module(path: str) -> bool:
    """Whether a file at the top of the work folder may be imported in the place of a module of
    Python's or of pytest's, or makes a folder such a package.
    """
    top, _, below = path.partition("/")
    if top.partition(".")[0] not in SHADOWED:
        return False
    return may_be_imported(top) if not below else below.partition(".")[0] == "__init__"


def may_be_imported(name: str) -> bool:
    """Whether a file of this name is a module; a link without a suffix may be a package."""
    return "." not in name or name.endswith(OF_MODULES)


async def may_name_pytest(box: Box, path: str) -> bool:
    """Whether a file may have settings of pytest's: it has the word, or a character of TOML's by
    which that may be written. Raises TimeoutError.
    """
    try:
        text = await box.read(path)
    except TimeoutError:
        raise
    except OSError:
        return True
    return b"pytest" in text or b"\\" in text


async def execution_in(box: Box) -> Execution:
    """The execution that the reward decides; an error without tests where there is none. Raises
    SandboxError.
    """
    for file in FILES:
        if (await box.run(("test", "-e", file))).status == 0:
            break
    else:
        return Execution(Verdict.ERROR, detail="it left no reward.txt or reward.json", total=1)
    try:
        text = (await box.read(file, REWARD_BYTES)).decode()
        return of_rewards(rewards_in(text, is_json=file.endswith(".json")))
    except (OSError, ValueError, RecursionError) as error:
        detail = f"{PurePosixPath(file).name} cannot be used: {error}"
        return Execution(Verdict.ERROR, detail=detail, total=1)


def rewards_in(text: str, is_json: bool) -> dict[str, float]:
    """Rewards by name. Raises ValueError."""
    rewards = json.loads(text) if is_json else {"reward": float(text)}
    if not isinstance(rewards, dict) or not rewards:
        raise ValueError("it is no table of numbers")
    for name, value in rewards.items():
        try:
            is_number = isinstance(value, int | float) and math.isfinite(value)
        except OverflowError:
            is_number = False
        if not is_number:
            raise ValueError(f"{name} is {str(value)[:40]!r}, no finite number")
    return {name: float(value) for name, value in rewards.items()}


def of_rewards(rewards: Mapping[str, float]) -> Execution:
    """The execution of rewards: a pass where the one named `reward`, or without it the smallest, is
    at least 1.
    """
    reward = rewards.get("reward", min(rewards.values()))
    tests = tuple(
        TestOutcome(name, "passed" if value >= 1 else "failed", 0.0, True, f"{value:g}")
        for name, value in rewards.items()
    )
    if reward >= 1:
        return Execution(Verdict.PASS, 1, 1, forgeable=True, tests=tests)
    total = PARTS if reward > 0 else 1
    passed = min(math.floor(round(reward * PARTS, 6)), PARTS - 1) if reward > 0 else 0
    return Execution(
        Verdict.WRONG, passed, total, f"the reward is {reward:g}", forgeable=passed > 0, tests=tests
    )


async def test_spec_of(check: TestScript) -> BoxSpec:
    """The box in which the test script runs. Raises DataError."""
    return (await work_spec_of(check))._replace(writable=(LOGS, TESTS))


async def work_spec_of(check: TestScript) -> BoxSpec:
    """The box of a work folder. Raises DataError."""
    tree = await asyncio.to_thread(tree_of_script, check)
    path = ":".join([*(f"{root}/bin" for root in check.roots), ENVIRONMENT["PATH"]])
    return BoxSpec(
        tree, tuple(map(Path, check.roots)), {"PATH": path, **check.environment}, check.folder
    )


def tree_of_script(check: TestScript) -> Path:
    """The work folder before the change. Raises DataError."""
    if check.is_made:
        environment = Path(check.work_tree)
        return made_tree(environment, recipe_of(environment, check.folder))
    return tree_of(RepositoryTests(check.work_tree, (), ()))


def contents_of(check: TestScript) -> str:
    """Identifies what a script may read. Raises DataError."""
    folders = [Path(check.test_script).parent, *map(Path, check.roots)]
    pythons = (Path(os.path.realpath(f"{root}/bin/python")) for root in check.roots)
    if check.solution:
        folders.append(Path(check.solution).parent)
    try:
        homes = [*folders, *filter(Path.exists, pythons)]
        return " ".join([digest_of(tree_of_script(check)), *map(digest_of, homes)])
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from None


class TestScripts(InTree[TestScript], judges=TestScript):
    """A change of a work folder, judged by a script."""

    async def judge_check(
        self, workbench: Workbench, check: TestScript, task: Task, program: str
    ) -> Execution:
        """By the script's reward."""
        return await judge(workbench, check, task.reference or "", program)

    async def work_spec(self, check: TestScript) -> BoxSpec:
        """Without tests and solution. Raises DataError."""
        return await work_spec_of(check)

    def surroundings(self, check: TestScript) -> str:
        """The contents of the folders that it names. Raises DataError."""
        return contents_of(check)

    def demonstration(self, check: TestScript, task: Task) -> str | None:
        """The solution, unless it needs files that no program has."""
        return None if check.solution else task.reference

    def cheats(self, check: TestScript, task: Task) -> dict[str, str]:
        """Changes that do nothing of what is asked."""
        tree = tree_of_script(check)
        return {cheat["name"]: diff_of(tree, cheat["files"]) for cheat in CHEATS}
