"""The judge as the trainer holds it: asynchronous, many jobs at once, every process behind it ended on the way out."""

from __future__ import annotations

import asyncio
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
from assay.judge.breaker import Breaker
from assay.judge.profiles import LADDER, PLAIN, Profile
from assay.judge.slot import cores
from assay.judge.verdict import THE_TASKS_DOING
from assay.sandbox.limits import Limits
from assay.sandbox.probe import probe
from assay.types import Execution, Task, Verdict

log = logging.getLogger(__name__)
LENGTH = struct.Struct("!I")
NUMBERED = struct.Struct("!II")
SUPERVISOR = ("-I", "-m", "assay.judge.supervisor")
LOOK_SECONDS = 10.0
LOOKS = 6
"""Looks in a row that find no answer of the supervisor's, after which it is ended."""
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
    """Judges programs in walled processes; an async context manager. Its processes die with the thread that entered.

    Raises SandboxError where the walls are not sound (unless `allow_weak`), where the supervisor dies or hangs, and
    where the machine fails too often (see Breaker). `slots` programs run at once: the available cores unless given.
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
        self._reported: set[Task] = set()
        self._bundles: dict[tuple[Task, Profile], bytes] = {}
        self._number = 0
        self._breaker = Breaker()
        self._heard = False
        self._broken = "the judge is not started; use `async with Judge() as judge`"

    async def __aenter__(self) -> Judge:
        isolation = await asyncio.to_thread(probe)
        if not (isolation.sound or self.allow_weak):
            raise SandboxError(f"isolation is tier {isolation.tier} here: {isolation.advice}; see `assay doctor`")
        ours, self._process = started()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        settings = {"limits": asdict(self.limits), "slots": self.slots, "required": isolation.sound}
        frame = json.dumps(settings).encode()
        self._writer.write(LENGTH.pack(len(frame)) + frame)
        self._broken = ""
        self._tasks = [asyncio.create_task(self._listen(reader)), asyncio.create_task(self._watch())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fail("the judge is closed")
        for task in (*self._profiles.values(), *self._tasks):
            task.cancel()
        self._writer.close()
        try:
            await asyncio.to_thread(self._process.wait, 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

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
        self._count(job.task, execution)
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

    def _count(self, task: Task, execution: Execution) -> None:
        if not execution.detail.startswith(THE_TASKS_DOING):
            self._breaker.note(execution.detail if execution.verdict is Verdict.INFRA else "")
        elif task not in self._reported:
            self._reported.add(task)
            log.warning("task %s cannot be judged: %s", task.id, execution.detail)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                self._hear(json.loads(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:  # whatever ends this task: nobody may wait for it any longer
            self._fail("the judge's supervisor died")

    def _hear(self, frame: dict[str, Any]) -> None:
        self._heard = True
        if "fatal" in frame:
            self._fail(f"the sandbox fails: {frame['fatal']}")
        elif "number" in frame:
            future = self._waiting.get(frame["number"])
            if future is not None and not future.done():
                future.set_result(execution_of(frame["execution"]))

    async def _watch(self) -> None:
        """End a supervisor that stays silent; counted in looks, since the loop of the trainer may stand still too."""
        silent = 0
        while silent < LOOKS:
            self._heard = False
            self._writer.write(NUMBERED.pack(4, 0))
            await asyncio.sleep(LOOK_SECONDS)
            silent = 0 if self._heard else silent + 1
        self._fail("the judge's supervisor hangs")
        self._process.kill()

    def _fail(self, why: str) -> None:
        self._broken = self._broken or why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SandboxError(why))


def started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A supervisor that waits for its settings, and our end of its socket. Raises SandboxError."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise SandboxError(f"the judge cannot be started: {error}") from None
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, *SUPERVISOR, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/",
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise SandboxError(f"the judge cannot be started: {error}") from None
    return ours, process


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
