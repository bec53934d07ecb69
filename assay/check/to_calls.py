"""Makes tasks of calls from tasks whose tests run in the program's own process: the arguments and
values are those of the same problem in Python.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.check.trial import ProgramRunner
from assay.judge import Judge
from assay.judge.codec import Packer
from assay.progress import counted
from assay.sandbox.program import Folder
from assay.sync import run_sync
from assay.task_specs import split_spec
from assay.tasks import load
from assay.tasks.rows import TOLERANCE
from assay.types import Call, Execution, Task, Verdict

FILE, MOST = "recorded", 100
"""The file that a recording leaves, and the most calls of a task."""
RECORDER = """
import copy as _copy, json as _json
_recorded, _original = [], {name}
def {name}(*arguments):
    if _recorded[-1:] == [None]:
        return _original(*arguments)
    given, _ = _copy.deepcopy(arguments), _recorded.append(None)
    try:
        value = _original(*arguments)
    except BaseException:
        _recorded.pop()
        raise
    _recorded[-1] = [given, _copy.deepcopy(value)]
    return value
{tests}
open({file!r}, "w").write(_json.dumps(_recorded))
"""
"""Records the calls of a function that its tests make, but those that it makes itself."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Tasks of calls, and why others are left out, by their ids."""

    tasks: list[Task]
    left_out: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"made": [task.id for task in self.tasks], "left_out": self.left_out}

    def summary(self) -> str:
        """A line on how many there are, and one for each task that is left out."""
        every = len(self.tasks) + len(self.left_out)
        head = f"made {len(self.tasks)} of {counted(every, 'task')} of calls"
        return "\n".join([head, *(f"{name}: {why}" for name, why in self.left_out.items())])


def to_calls(spec: str, limit: int | None, runner: ProgramRunner) -> Conversion:
    """The tasks of `spec`, of which the set's split `python` has the same problems, as tasks of
    calls. The reference of each passes. Raises like `assay.tasks.load`, and SandboxError.
    """
    name = split_spec(spec)[0]
    tasks = load(spec, limit=limit)
    twins = {_problem(twin): twin for twin in load(f"{name}:python")}
    sources = [twins[_problem(task)] for task in tasks if _problem(task) in twins]
    recorded = dict(zip(map(_problem, sources), run_sync(_record(sources, runner)), strict=True))
    left_out, converted = dict[str, str](), list[Task]()
    for task in tasks:
        calls = recorded.get(_problem(task), "the split `python` has no such problem")
        if isinstance(calls, str):
            left_out[task.id] = calls
        elif len({call.expected for call in calls}) > 1:
            converted.append(replace(task, checks=calls, setup="", checker=""))
        else:
            left_out[task.id] = "Python's tests show no calls with different values"
    programs = [{"reference": task.reference or ""} for task in converted]
    runs = runner.run("running references", converted, programs, early=True)
    for task, run in zip(converted, runs, strict=True):
        if run["reference"].verdict is not Verdict.PASS:
            left_out[task.id] = why("the reference fails", run["reference"])
    return Conversion([task for task in converted if task.id not in left_out], left_out)


def _problem(task: Task) -> str:
    """What the ids of a problem have in common in all languages: 3 of `CPP/3`."""
    return task.id.rpartition("/")[2]


def why(what: str, execution: Execution) -> str:
    """What failed and why, unless the machine did."""
    lost = execution.verdict is Verdict.INFRA
    return f"{'the machine failed; try again' if lost else what}: {execution.detail}"


async def _record(twins: Sequence[Task], runner: ProgramRunner) -> list[tuple[Call, ...] | str]:
    runner.progress.phase("recording calls in Python", len(twins))
    async with Judge(runner.limits, runner.slots, allow_weak=runner.allow_weak) as judge:
        return await asyncio.gather(*(_calls(judge, twin, runner) for twin in twins))


async def _calls(judge: Judge, twin: Task, runner: ProgramRunner) -> tuple[Call, ...] | str:
    """The calls that the tests of a task in Python make, or why they cannot be recorded: because
    JSON has no such values, for instance.
    """
    tests = "\n".join([twin.setup, *(getattr(check, "source", "") for check in twin.checks)])
    recorder = RECORDER.format(name=twin.entry_point, tests=tests, file=FILE)
    run = await judge.execute(f"{twin.reference}\n{recorder}", folder=Folder(fetch=(FILE,)))
    runner.progress.advance()
    if run.execution.verdict is not Verdict.PASS:
        return why("its calls in Python cannot be recorded", run.execution)
    calls = json.loads(run.files.get(FILE, b"[]"))
    packed = [(Packer().text(arguments), Packer().text(value)) for arguments, value in calls]
    return tuple(Call(*call, TOLERANCE) for call in dict.fromkeys(packed))[:MOST]
