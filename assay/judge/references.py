"""What the judge learns by running a task's own reference, once for each task: right answers,
liberties, time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from assay.errors import SandboxError
from assay.judge.expected import Answers, completed
from assay.judge.proxy_features import FEATURES_TO_TRY, PLAIN, ProxyFeatures, time_factor
from assay.judge.verdict import WALL
from assay.judge.verdict_cache import KEPT, BoundedDict
from assay.sandbox.limits import LONGEST
from assay.types import Call, Execution, Task, Verdict

log = logging.getLogger(__name__)
Execute = Callable[[Task, str, ProxyFeatures], Awaitable[Execution]]


class References:
    """Runs references by `execute`, and by `answers` for what they answer; a task is known by a key
    of bytes.
    """

    def __init__(self, execute: Execute, answers: Answers, cpu_seconds: float) -> None:
        self._execute = execute
        self._answers = answers
        self._cpu_seconds = cpu_seconds
        self._trials: BoundedDict[tuple[bytes, str], asyncio.Task[Any]] = BoundedDict(KEPT)

    async def completed(self, key: bytes, task: Task) -> Task:
        """The task with the right answers that it leaves to its reference.

        Raises DataError where that has none, SandboxError where the machine failed.
        """
        if not any(isinstance(check, Call) for check in task.checks):
            return task
        done: Task = await self._once((key, "answers"), lambda: completed(task, self._answers))
        return done

    async def profile(self, key: bytes, task: Task) -> ProxyFeatures | None:
        """The least profile with which the reference passes, None if none. Raises SandboxError."""
        found: ProxyFeatures | None = await self._once(
            (key, "profile"), lambda: self._find_profile(task)
        )
        return found

    def close(self) -> None:
        """Wait for no trial any more."""
        for trial in self._trials.values():
            trial.cancel()

    async def _once(self, key: tuple[bytes, str], make: Callable[[], Awaitable[Any]]) -> Any:
        """What `make` finds, made once for all who ask; made again after the machine has failed
        it.
        """
        if key not in self._trials:
            self._trials[key] = asyncio.ensure_future(make())
        trial = self._trials[key]
        try:
            return await asyncio.shield(trial)
        except SandboxError:
            if self._trials.get(key) is trial:
                del self._trials[key]
            raise

    async def _find_profile(self, task: Task) -> ProxyFeatures | None:
        found: list[Execution] = []
        for profile in FEATURES_TO_TRY if task.entry_point else (PLAIN,):
            found.append(
                await self._execute(
                    task, task.reference or "", replace(profile, time_factor=float(LONGEST))
                )
            )
            if found[-1].verdict is Verdict.PASS:
                return replace(
                    profile, time_factor=time_factor(found[-1].cpu_seconds, self._cpu_seconds)
                )
            at_the_wall = found[-1].detail.startswith(WALL)
            if found[-1].verdict is Verdict.INFRA and not at_the_wall:
                raise SandboxError(f"the task's reference could not be tried: {found[-1].detail}")
            if found[-1].verdict not in (Verdict.WRONG, Verdict.ERROR) and not at_the_wall:
                break
        log.warning("task %s: its own reference fails: %s", task.id, found[0].detail)
        return None
