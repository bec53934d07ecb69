"""assay's task sets as a taskset of verifiers: `eval assay.integrations.verifiers
--env.taskset.tasks humaneval`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import lru_cache

import verifiers.v1 as vf

from assay.extract import program
from assay.integrations.background import score
from assay.judge import Job
from assay.prompts import messages
from assay.task_specs import own_data
from assay.tasks import load
from assay.tasks.data_files import content_of
from assay.types import Task

__all__ = ["CodeTaskset"]


class CodeTaskConfig(vf.TaskConfig):
    """How completions are scored, under `--env.taskset.task`."""

    fraction: bool = False
    """The share of tests passed instead of all or nothing."""


class CodeConfig(vf.TasksetConfig):
    """Which tasks, under `--env.taskset`."""

    tasks: str = "mbpp:train"
    """A task set of assay's, or a file."""
    task: CodeTaskConfig = CodeTaskConfig()


class CodeData(vf.TaskData):
    """One task. Its tests stay in the task set and never enter a trace."""

    source: str
    """The task set that `id` belongs to."""


class CodeTask(vf.Task[CodeData, vf.State, CodeTaskConfig]):
    """Scores a reply by judging the program in it."""

    @vf.reward
    async def tests(self, trace: vf.Trace) -> float:
        """1 if the program passes every test; an error, never 0, if the machine or task fails."""
        replies = trace.assistant_messages
        task = _tasks(self.data.source)[str(self.data.id)]
        job = Job(task, program(task, (replies[-1].content or "") if replies else ""))
        return await asyncio.to_thread(score, task.id, job, self.config.fraction)

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Whether the task's reference passes; None if it has none. Raises SandboxError if the
        machine failed, and DataError if the task cannot be judged.
        """
        task = _tasks(self.data.source)[str(self.data.id)]
        if task.reference is None:
            return None
        return await asyncio.to_thread(score, task.id, Job(task, task.reference)) == 1.0


class CodeTaskset(vf.Taskset[CodeTask, CodeConfig]):
    """Every task of one of assay's sets."""

    def load(self) -> Iterator[CodeTask]:
        """The tasks, in the set's order."""
        for task in _tasks(self.config.tasks).values():
            prompt = "\n\n".join(message.content for message in messages(task))
            yield CodeTask(
                CodeData(id=task.id, prompt=prompt, source=self.config.tasks), self.config.task
            )


def _tasks(source: str) -> dict[str, Task]:
    """The tasks of a set by their ids; files are read again once their content is another."""
    data = own_data(source)
    return _loaded(source, content_of(data) if data else "")


@lru_cache(8)
def _loaded(source: str, content: str) -> dict[str, Task]:
    return {task.id: task for task in load(source)}
