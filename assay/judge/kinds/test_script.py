"""Scripts that judge a work folder, as Harbor's tasks have them. The script and the reward that it
leaves lie in a box in which no other command ran; but it runs the program's files, so each pass is
forgeable. docs/repositories.md says what that stops.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

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
OF_PYTHON = ("conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.ini", ".pytest.ini")
CHEATS = read_cheats(Path(__file__).with_suffix(".toml"))
LIMITS = {Ended.WALL: Verdict.TIMEOUT, Ended.MEMORY: Verdict.MEMORY}


class SolutionChange(NamedTuple):
    """What the solution does."""

    diff: str = ""
    paths: frozenset[str] = frozenset()
    fault: str = ""
    """Why it has no change, in words; empty where it has one."""


class Graded(NamedTuple):
    """What came of a test script."""

    execution: Execution
    lacks_reward: bool = False
    """Whether it ended by itself and left no reward that can be used."""


CHANGES: BoundedDict[tuple[TestScript, str, str], SolutionChange] = BoundedDict(512, 64)
"""What solutions do, by what they read."""
REWARDED: BoundedDict[tuple[TestScript, str, str], bool] = BoundedDict(512, 8)
"""Whether a script gives the solution a reward, by what both read."""


async def judge(workbench: Workbench, check: TestScript, reference: str, program: str) -> Execution:
    """The execution of a program. Where a script leaves no reward, and none for the solution
    either, the task is at fault. Raises SandboxError.
    """
    graded = await grade(workbench, check, reference, program)
    if not (graded.lacks_reward and reference):
        return graded.execution
    key = check, reference, await asyncio.to_thread(contents_of, check)
    if key not in REWARDED:
        right = graded
        if program != reference:
            right = await grade(workbench, check, reference, reference)
        REWARDED[key] = not right.lacks_reward
    if REWARDED[key]:
        return graded.execution
    why = f"the solution gets no reward either: {graded.execution.detail}"
    return replace(
        graded.execution, verdict=Verdict.UNJUDGED, cause=Cause.TASK, detail=f"{SETUP}{why}"
    )


async def grade(workbench: Workbench, check: TestScript, reference: str, program: str) -> Graded:
    """Run the test script on what a program makes of the work folder. Raises SandboxError."""
    try:
        right = await right_change(workbench, check, reference)
        diff = program
        if program == reference:
            if right.fault:
                return Graded(Execution(Verdict.ERROR, detail=right.fault, total=1))
            diff = right.diff
        elif program.strip() and not is_diff(program):
            is_right = program.strip() == reference.strip()  # as `assay check` runs it again
            diff, _, stopped = await changed_by(workbench, check, program, is_right)
            if stopped is not None:
                return Graded(stopped)
        async with workbench.box(await test_spec_of(check)) as box:
            if diff.strip() and (fault := await change(box, diff)):
                return Graded(Execution(Verdict.COMPILE, detail=fault, total=1))
            if reference and not right.fault:
                await restore(box, right.paths)
            return await tested(box, check)
    except TimeoutError as error:
        raise SandboxError(str(error)) from None
    except DataError as error:
        return Graded(unjudged(Cause.TASK, f"{SETUP}{error}"))
    except UnicodeEncodeError as error:
        detail = f"the script is no text: {error.reason}"
        return Graded(Execution(Verdict.COMPILE, detail=detail, total=1))
    except OSError as error:
        return Graded(Execution(Verdict.ERROR, detail=str(error), total=1))


async def right_change(workbench: Workbench, check: TestScript, reference: str) -> SolutionChange:
    """What the solution does; nothing where there is none. Raises SandboxError, OSError,
    DataError.
    """
    if not reference:
        return SolutionChange()
    key = check, reference, await asyncio.to_thread(contents_of, check)
    if key not in CHANGES:
        try:
            diff, paths, stopped = await changed_by(workbench, check, reference, is_right=True)
        except TimeoutError:
            raise
        except OSError as error:  # its change is too large, or the box is full
            return SolutionChange(fault=f"the solution: {error}")
        if stopped is not None:
            return SolutionChange(fault=f"the solution: {stopped.verdict}: {stopped.detail}")
        CHANGES[key] = SolutionChange(diff, frozenset(paths))
    return CHANGES[key]


async def changed_by(
    workbench: Workbench, check: TestScript, script: str, is_right: bool = False
) -> tuple[str, list[str], Execution | None]:
    """What a script makes of the work folder, as a diff and as paths; and how it ended that ran
    into a limit. is_right: whether it is the solution's, which alone sees the files of that. Raises
    SandboxError, OSError, DataError.
    """
    spec, variables = await work_spec_of(check), {"DEBIAN_FRONTEND": "noninteractive"}
    async with workbench.box(spec._replace(writable=(LOGS, SOLUTION))) as box:
        await make_folders(box, f"{LOGS}/agent")
        if is_right and check.solution:
            await lay_out(box, Path(check.solution), SOLUTION)
            name = f"{SOLUTION}/{Path(check.solution).name}"
            variables |= check.solution_environment
        else:
            files = {"script.sh": script.encode("utf-8", "surrogateescape")}
            await box.write(files, files, folder=box.temporary)
            name = f"{box.temporary}/script.sh"
        result = await run_script(box, name, check.script_seconds, variables)
        if result.ended in LIMITS:
            stopped = Execution(LIMITS[result.ended], detail=result.detail, total=1)
            return "", [], measured(result, stopped, result.stdout)
        return await box.diff(), await box.changes(), None


async def make_folders(box: Box, *folders: str) -> None:
    """Make folders of a box in which no command of others ran. Raises SandboxError."""
    done = await box.run(("mkdir", "-p", *folders), merged=True)
    if done.ended is not Ended.EXITED or done.status != 0:
        raise SandboxError(f"a box lacks {folders[0]}: {done.stdout.decode(errors='replace')}")


async def tested(box: Box, check: TestScript) -> Graded:
    """Bring the tests into a box, which has nothing of the program beside the work folder, and run
    their script. Raises SandboxError, OSError, DataError.
    """
    await box.run(("find", LOGS, TESTS, box.temporary, "/dev/shm", "-mindepth", "1", "-delete"))
    await make_folders(box, REWARDS, f"{LOGS}/agent", f"{LOGS}/artifacts")
    await lay_out(box, Path(check.test_script), TESTS)
    name = f"{TESTS}/{Path(check.test_script).name}"
    result = await run_script(box, name, check.seconds, check.test_environment)
    if result.ended is not Ended.EXITED:
        verdict = LIMITS.get(result.ended, Verdict.ERROR)
        stopped = Execution(verdict, detail=f"the test script: {result.detail}", total=1)
        return Graded(measured(result, stopped, result.stdout))
    execution = await rewarded(box)
    return Graded(measured(result, execution, result.stdout), lacks_reward=not execution.tests)


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


async def restore(box: Box, right_paths: Collection[str]) -> None:
    """Undo what Python and pytest would run by themselves in the work folder, and what stands there
    in the place of their modules, but for paths of a right change. Raises OSError.
    """
    changed = set(await box.changes()).difference(right_paths)
    await box.copy(box.tree, box.folder, sorted(filter(runs_by_itself, changed)))


def runs_by_itself(path: str) -> bool:
    """Whether a file of the work folder has a name for which Python or pytest look there."""
    folder, _, name = path.rpartition("/")
    module = folder if name.startswith("__init__.") else "" if folder else name
    return name in OF_PYTHON or module.partition(".")[0] in SHADOWED or name.endswith(".pth")


async def rewarded(box: Box) -> Execution:
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
    except TimeoutError as error:
        raise SandboxError(str(error)) from None
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
    passed = min(int(reward * PARTS), PARTS - 1) if reward > 0 else 0
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

    def cheats(self, check: TestScript, task: Task) -> dict[str, str]:
        """Changes that do nothing of what is asked."""
        tree = tree_of_script(check)
        return {cheat["name"]: diff_of(tree, cheat["files"]) for cheat in CHEATS}
