"""Judges programs that read and print: one run for each exchange. The test that fails most programs
comes first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from assay.judge.prepared_task import PreparedTask, ProxyFeatures
from assay.judge.supervisor_client import SupervisorClient
from assay.judge.verdict_cache import CACHED, BoundedDict
from assay.types import Execution, Verdict


class FailureCounts:
    """Failures by task and by the number of the test."""

    def __init__(self) -> None:
        self._failed: BoundedDict[bytes, Counter[int]] = BoundedDict(CACHED)

    def order(self, task: bytes, count: int) -> list[int]:
        """The numbers of `count` tests, with those first that failed most programs."""
        failed = self._failed.get(task, Counter[int]())
        return sorted(range(count), key=lambda test: -failed[test])

    def note(self, task: bytes, test: int) -> None:
        """Count one program that failed a test."""
        self._failed[task] = self._failed.get(task, Counter()) + Counter([test])


NOT_A_TESTS_MERIT = (Verdict.INFRA, Verdict.COMPILE)
"""Failures that say nothing about the test."""


class ExchangeRunner:
    """Runs a program for each exchange of its task; with `stop_early`, until one fails."""

    def __init__(
        self, supervisor: SupervisorClient, counts: FailureCounts, stop_early: bool
    ) -> None:
        self._supervisor = supervisor
        self._counts = counts
        self._stop_early = stop_early

    async def run(self, task: PreparedTask, program: str, features: ProxyFeatures) -> Execution:
        """Judge one program. Raises SandboxError."""

        async def one(at: int) -> Execution:
            exchange = task.exchanges[at]
            return await self._supervisor.execute(
                task.exchange_job(program, features, exchange.stdin, exchange.stdout)
            )

        order = self._counts.order(task.digest, len(task.exchanges))
        if not self._stop_early:
            return combined(dict(zip(order, await asyncio.gather(*map(one, order)), strict=True)))
        executions: dict[int, Execution] = {}
        for at in order:
            executions[at] = await one(at)
            if executions[at].verdict is not Verdict.PASS:
                if executions[at].verdict not in NOT_A_TESTS_MERIT:
                    self._counts.note(task.digest, at)
                break
        return combined(executions)


def combined(executions: Mapping[int, Execution]) -> Execution:
    """One execution from those of a program's exchanges by their numbers.

    The first failure decides; the machine's failure only where there is no other. CPU time and
    memory are the maximum, since each exchange has the limits to itself; wall time is the sum.
    """

    def rank(at: int) -> tuple[bool, bool, int]:
        verdict = executions[at].verdict
        return verdict is Verdict.PASS, verdict is Verdict.INFRA, at

    first, every = min(executions, key=rank), executions.values()
    return replace(
        executions[first],
        passed=sum(execution.verdict is Verdict.PASS for execution in every),
        total=len(every),
        detail=f"test {first + 1}: {executions[first].detail}" if executions[first].detail else "",
        cpu_seconds=max(execution.cpu_seconds for execution in every),
        wall_seconds=sum(execution.wall_seconds for execution in every),
        memory_mb=max(execution.memory_mb for execution in every),
    )
