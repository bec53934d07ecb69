"""The judge as the trainer holds it: asynchronous, many jobs at once, every process behind it ended on the way out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any

from assay.errors import DataError, SandboxError
from assay.judge.profiles import LADDER, PLAIN, Profile
from assay.judge.slot import cores
from assay.judge.verdict import WALL
from assay.sandbox.limits import Limits
from assay.sandbox.probe import probe
from assay.types import Execution, Task, Verdict

log = logging.getLogger(__name__)
LENGTH = struct.Struct("!I")
NUMBERED = struct.Struct("!II")
ROW = 20
"""Failures of the machine in a row after which the judge gives up."""
AHEAD = 4
"""Jobs per slot that `stream` has under way."""
UNLIKE_THE_REFERENCE = (Verdict.WRONG, Verdict.ERROR)
"""Verdicts that a task's profile can change."""
OF_THE_MOMENT = (Verdict.INFRA, Verdict.TIMEOUT, Verdict.MEMORY)
"""Verdicts that may be the machine's state: nothing lasting is concluded from them."""


@dataclass(frozen=True, slots=True)
class Job:
    """One program to judge."""

    task: Task
    program: str | None
    """A whole program; None, where the completion held no code, is NO_CODE without running anything."""


class Judge:
    """Judges programs in walled processes; an async context manager.

    Raises SandboxError where the walls are not sound (unless `allow_weak`), where the supervisor dies, and after 20
    failures of the machine in a row. `slots` programs run at once: the available cores unless given.
    """

    def __init__(
        self, limits: Limits | None = None, slots: int | None = None, stop_early: bool = True, allow_weak: bool = False
    ) -> None:
        self.limits = limits or Limits()
        self.slots = slots or cores()
        self.stop_early = stop_early
        self.allow_weak = allow_weak
        self._waiting: dict[int, asyncio.Future[Execution]] = {}
        self._profiles: dict[Task, asyncio.Task[Profile | None]] = {}
        self._bundles: dict[tuple[Task, Profile], bytes] = {}
        self._number = 0
        self._failures = 0
        self._broken = "the judge is not started; use `async with Judge() as judge`"

    async def __aenter__(self) -> Judge:
        isolation = await asyncio.to_thread(probe)
        if not (isolation.sound or self.allow_weak):
            raise SandboxError(f"isolation is tier {isolation.tier} here: {isolation.advice}; see `assay doctor`")
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-m", "assay.judge.supervisor", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True, cwd="/",
        )  # fmt: skip
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        settings = {"limits": asdict(self.limits), "slots": self.slots, "required": isolation.walls}
        frame = json.dumps(settings).encode()
        self._writer.write(LENGTH.pack(len(frame)) + frame)
        self._broken = ""
        self._listener = asyncio.create_task(self._listen(reader))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fail("the judge is closed")
        for profile in self._profiles.values():
            profile.cancel()
        self._listener.cancel()
        self._writer.close()
        try:
            await asyncio.to_thread(self._process.wait, 10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    async def run(self, job: Job) -> Execution:
        """Judge one program. Raises DataError for a task without checks, SandboxError when the judge is broken."""
        if not job.task.checks:
            raise DataError(f"task {job.task.id!r} has no checks: nothing could be wrong with any program")
        total = len(job.task.checks)
        if job.program is None:
            return Execution(Verdict.NO_CODE, total=total, detail="the completion holds no program")
        execution = await self._execute(job.task, job.program, PLAIN)
        if execution.verdict in UNLIKE_THE_REFERENCE and job.task.reference is not None:
            profile = await self._profile(job.task)
            if profile is not PLAIN:
                execution = await self._execute(job.task, job.program, profile)
        self._count(execution)
        return replace(execution, total=total)

    async def stream(self, jobs: Iterable[Job]) -> AsyncIterator[tuple[int, Execution]]:
        """Judge many; yields (index, execution) in the order in which they end."""
        numbered = enumerate(jobs)
        under_way: dict[asyncio.Task[Execution], int] = {}
        try:
            while True:
                while len(under_way) < AHEAD * self.slots and (entry := next(numbered, None)) is not None:
                    under_way[asyncio.create_task(self.run(entry[1]))] = entry[0]
                if not under_way:
                    return
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield under_way.pop(task), task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _execute(self, task: Task, program: str, profile: Profile) -> Execution:
        if self._broken:
            raise SandboxError(self._broken)
        self._number = number = self._number % 0xFFFFFFFF + 1
        payload = b'{"program":' + json.dumps(program).encode() + b"," + self._bundle(task, profile)
        future: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._writer.write(NUMBERED.pack(len(payload) + 4, number) + payload)
        try:
            return await future
        except asyncio.CancelledError:
            self._writer.write(NUMBERED.pack(4, number))
            raise
        finally:
            self._waiting.pop(number, None)

    def _bundle(self, task: Task, profile: Profile) -> bytes:
        """The task's side of a job, as the inside of a JSON object; kept, since a group of rollouts shares it."""
        if (task, profile) not in self._bundles:
            fields = {
                "entry_point": task.entry_point,
                "setup": task.setup,
                "checks": [check.source for check in task.checks],
                "stop_early": self.stop_early,
                "reply_mb": self.limits.reply_mb,
                **asdict(profile),
            }
            self._bundles[task, profile] = json.dumps(fields).encode()[1:]
        return self._bundles[task, profile]

    async def _profile(self, task: Task) -> Profile:
        """What the task's reference needs, tried once for each task; again later where the machine was in the way."""
        if task not in self._profiles:
            self._profiles[task] = asyncio.create_task(self._find_profile(task))
        trial = self._profiles[task]
        profile = await asyncio.shield(trial)
        if profile is None and self._profiles.get(task) is trial:
            del self._profiles[task]
        return profile or PLAIN

    async def _find_profile(self, task: Task) -> Profile | None:
        """The least profile with which the reference passes; None where the machine may be why it did not."""
        found: list[Execution] = []
        for profile in (PLAIN, *LADDER):
            found.append(await self._execute(task, task.reference or "", profile))
            if found[-1].verdict is Verdict.PASS:
                return profile
            if found[-1].verdict in OF_THE_MOMENT:
                return None
            if found[-1].verdict not in UNLIKE_THE_REFERENCE:
                break
        log.warning("task %s: its own reference fails: %s", task.id, found[0].detail)
        return PLAIN

    def _count(self, execution: Execution) -> None:
        if execution.detail.startswith(WALL):
            return
        self._failures = self._failures + 1 if execution.verdict is Verdict.INFRA else 0
        if self._failures >= ROW:
            raise SandboxError(f"the machine failed {ROW} times in a row, at last: {execution.detail}")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                frame = json.loads(await reader.readexactly(length))
                if "fatal" in frame:
                    self._fail(f"the sandbox does not start: {frame['fatal']}")
                    return
                future = self._waiting.get(frame["number"])
                if future is not None and not future.done():
                    future.set_result(execution_of(frame["execution"]))
        self._fail("the judge's supervisor died")

    def _fail(self, why: str) -> None:
        self._broken = self._broken or why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SandboxError(why))


def execution_of(fields: dict[str, Any]) -> Execution:
    """An execution as the supervisor wrote it."""
    return Execution(**{**fields, "verdict": Verdict(fields["verdict"])})


def judge_all(
    jobs: Sequence[Job],
    limits: Limits | None = None,
    slots: int | None = None,
    stop_early: bool = True,
    progress: Callable[[int, Execution], None] | None = None,
    allow_weak: bool = False,
) -> list[Execution]:
    """Judge many programs and wait for all; `progress(index, execution)` is called as each ends. Raises like Judge."""

    async def all_of_them() -> list[Execution]:
        found: dict[int, Execution] = {}
        async with Judge(limits, slots, stop_early, allow_weak) as judge:
            async for index, execution in judge.stream(jobs):
                found[index] = execution
                if progress is not None:
                    progress(index, execution)
        return [found[index] for index in range(len(jobs))]

    return asyncio.run(all_of_them())
