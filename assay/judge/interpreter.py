"""A walled Python that keeps its state from one block of code to the next, as the trainer holds
it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from assay.errors import RolloutLostError
from assay.judge.circuit_breaker import CircuitBreaker
from assay.judge.supervisor_client import SupervisorClient
from assay.judge.verdict import KILLED
from assay.judge.wire_job import INTERPRETER, SESSION, WireJob

STAYS = ("done", "error")
"""Ends of a block after which the state is still there."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What became of one block of code. All of it is the program's to forge: never a sign that
    something is right.
    """

    output: str
    """What it printed, with its last expression's value or the traceback of what it raised; up to 8
    KiB of that, and a line that says so where the interpreter has ended."""
    ended: Literal["done", "error", "timeout", "memory", "output", "died"]
    """`error`: it raised, and the state is kept; after all but `done` and `error` the next block
    starts anew."""


class Interpreter:
    """Runs blocks of Python, each at most as long as the judge's limits allow a program, all
    together ten times that.

    It starts with its first block, is stopped between blocks, and is gone when the context ends. If
    the machine ends it, the blocks before are run again in a new one, which must print the same.
    """

    def __init__(self, line: SupervisorClient, breaker: CircuitBreaker) -> None:
        self._supervisor = line
        self._breaker = breaker
        self._session = 0
        self._past: list[tuple[str, Observation]] = []
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Interpreter:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._lock:
            self._leave()

    async def run(self, code: str) -> Observation:
        """Run a block where the ones before have run.

        Raises RolloutLostError where the machine fails it twice, SandboxError where nothing can be
        run any more.
        """
        async with self._lock:
            try:
                seen = await self._twice(code)
            except RolloutLostError as error:
                self._breaker.note(str(error))
                raise
            self._breaker.note("")
            self._past = [*self._past, (code, seen)] if seen.ended in STAYS else []
            return seen

    async def _twice(self, code: str) -> Observation:
        """Run a block; once more where the machine fails."""
        try:
            return await self._after_the_past(code)
        except RolloutLostError as error:
            first = str(error)
        try:
            return await self._after_the_past(code)
        except RolloutLostError as error:
            if first == str(error) == KILLED:
                return ended("", "died", KILLED)  # as of a program that is judged
            raise

    async def _after_the_past(self, code: str) -> Observation:
        """Run a block, and the blocks before it first where they are gone."""
        if not self._session:
            for past, seen in self._past:
                if await self._sent(past) != seen:
                    self._leave()
                    raise RolloutLostError(
                        "the machine ended an interpreter whose code did not do the same again"
                    )
        return await self._sent(code)

    async def _sent(self, code: str) -> Observation:
        payload = SESSION.pack(self._session) + code.encode("utf-8", "replace")
        try:
            frame = await self._supervisor.sent(WireJob(payload, zygote=INTERPRETER))
        except asyncio.CancelledError:
            self._leave()
            raise
        self._session = (self._session or frame["number"]) if frame["ended"] in STAYS else 0
        if frame["ended"] == "infra":
            raise RolloutLostError(frame["detail"])
        return ended(frame["output"], frame["ended"], frame["detail"])

    def _leave(self) -> None:
        """Have the interpreter ended, if there is one."""
        if self._session:
            self._supervisor.drop(self._session)
        self._session = 0


def ended(output: str, how: str, detail: str) -> Observation:
    """An observation, which says where the state is lost."""
    if how not in STAYS:
        between = "\n" if output and not output.endswith("\n") else ""
        output += f"{between}[{detail}: the interpreter was ended]\n"
    return Observation(output, how)  # type: ignore[arg-type]
