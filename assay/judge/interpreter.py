"""A sandboxed Python that keeps its state from one block of code to the next, for the trainer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from assay.errors import RolloutLostError
from assay.judge.verdict import LIMITS, CircuitBreaker
from assay.sandbox.ending import KILLED
from assay.sandbox.program import BY_MACHINE, INTERPRETERS, Ended, Program
from assay.sandbox.repl import DONE, RAISED
from assay.sandbox.supervisor_client import Sandbox

ENDS = {DONE: "done", RAISED: "error"}
SHOWN = 4096
"""Bytes of a block's output that are shown of its head, and of its tail."""
STAYS = ("done", "error")
"""Ends of a block after which the state is still there."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one block of code printed and how it ended. The program can forge all of it, so it never
    shows that something is right.
    """

    output: str
    """What it printed, with its last expression's value or its traceback: up to 8 KiB, and a line
    that says so where the interpreter has ended."""
    ended: Literal["done", "error", "timeout", "memory", "output", "died"]
    """`error`: it raised, and the state is kept. After all but `done` and `error` the next block
    starts with an empty state."""


class Interpreter:
    """Runs blocks of Python, each within the judge's limits for a program, all together within ten
    times the CPU time.

    It starts with its first block, is stopped between blocks, and ends with the context. If the
    machine ends it, the earlier blocks run again in a new one and must print the same.
    """

    def __init__(self, sandbox: Sandbox, breaker: CircuitBreaker) -> None:
        self._sandbox = sandbox
        self._breaker = breaker
        self._session = 0
        self._ended: Ended | None = None
        """How the last run ended."""
        self._past: list[tuple[str, Observation]] = []
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Interpreter:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with self._lock:
            self._leave()

    async def run(self, code: str) -> Observation:
        """Run a block with the state that the blocks before it left.

        Raises RolloutLostError where the machine fails it twice, SandboxError where nothing can run
        any more.
        """
        async with self._lock:
            try:
                observation = await self._with_retry(code)
            except RolloutLostError as error:
                self._breaker.note(True, str(error))
                raise
            self._breaker.note(False)
            stays = observation.ended in STAYS
            self._past = [*self._past, (code, observation)] if stays else []
            return observation

    async def _with_retry(self, code: str) -> Observation:
        """Run a block; once more where the machine fails."""
        try:
            return await self._run_after_past(code)
        except RolloutLostError:
            first = self._ended
        try:
            return await self._run_after_past(code)
        except RolloutLostError:
            if first is self._ended is Ended.KILLED:
                return observe("", "died", KILLED)  # as for a program that is judged
            raise

    async def _run_after_past(self, code: str) -> Observation:
        """Run a block, and before it the earlier blocks where their state is lost."""
        if not self._session:
            for past, observation in self._past:
                if await self._run(past) != observation:
                    self._leave()
                    raise RolloutLostError(
                        "the machine ended an interpreter whose code did not do the same again"
                    )
        return await self._run(code)

    async def _run(self, code: str) -> Observation:
        payload = code.encode("utf-8", "replace")
        program = Program(payload, pool=INTERPRETERS, session=self._session)
        try:
            result = await self._sandbox.run(program)
        except asyncio.CancelledError:
            self._leave()
            raise
        self._session = result.session
        self._ended = result.ended
        if result.ended in BY_MACHINE:
            raise RolloutLostError(result.detail)
        ended = ENDS.get(result.report) or str(LIMITS.get(result.ended, "died"))
        return observe(shortened(result.stdout), ended, result.detail)

    def _leave(self) -> None:
        """End the interpreter, if there is one."""
        if self._session:
            self._sandbox.drop(self._session)
        self._session = 0


def shortened(output: bytes) -> str:
    """The head and the tail of an output, which may be any bytes."""
    left_out = len(output) - 2 * SHOWN
    if left_out > 0:
        between = f"\n[... {left_out} bytes left out ...]\n".encode()
        output = output[:SHOWN] + between + output[-SHOWN:]
    return output.decode("utf-8", "replace")


def observe(output: str, ended: str, detail: str) -> Observation:
    """An observation, which says so where the state is lost."""
    if ended not in STAYS:
        between = "\n" if output and not output.endswith("\n") else ""
        output += f"{between}[{detail}: the interpreter was ended]\n"
    return Observation(output, ended)  # type: ignore[arg-type]
