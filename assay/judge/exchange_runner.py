"""Programs that read and print: one run for each exchange, the one that tells most programs apart
first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from assay.judge.failure_counts import FailureCounts
from assay.judge.prepared_task import PreparedTask
from assay.judge.proxy_features import ProxyFeatures
from assay.judge.supervisor_client import SupervisorClient
from assay.types import Execution, Verdict

SAYS_NOTHING = (Verdict.INFRA, Verdict.COMPILE)
"""Failures that are no test's merit."""


class ExchangeRunner:
    """Has programs run once for each exchange of their task; with `stop_early`, until one fails."""

    def __init__(self, line: SupervisorClient, tally: FailureCounts, stop_early: bool) -> None:
        self._supervisor = line
        self._failure_counts = tally
        self._stop_early = stop_early

    async def run(self, bundle: PreparedTask, program: str, profile: ProxyFeatures) -> Execution:
        """Judge one program. Raises SandboxError."""

        async def one(at: int) -> Execution:
            exchange = bundle.exchanges[at]
            return await self._supervisor.execute(
                bundle.exchange(program, profile, exchange.stdin, exchange.stdout)
            )

        order = self._failure_counts.order(bundle.digest, len(bundle.exchanges))
        if not self._stop_early:
            return whole(dict(zip(order, await asyncio.gather(*map(one, order)), strict=True)))
        found: dict[int, Execution] = {}
        for at in order:
            found[at] = await one(at)
            if found[at].verdict is not Verdict.PASS:
                if found[at].verdict not in SAYS_NOTHING:
                    self._failure_counts.note(bundle.digest, at)
                break
        return whole(found)


def whole(found: Mapping[int, Execution]) -> Execution:
    """One execution from those of a program's exchanges by their numbers.

    The first that failed decides, one that the machine failed only where no other did. Time and
    memory are the most that any exchange took, since each has the limits to itself; wall time is
    the sum.
    """
    numbers = sorted(
        found,
        key=lambda at: (found[at].verdict is Verdict.PASS, found[at].verdict is Verdict.INFRA, at),
    )
    decides = found[numbers[0]]
    return replace(
        decides,
        passed=sum(execution.verdict is Verdict.PASS for execution in found.values()),
        total=len(found),
        detail=f"test {numbers[0] + 1}: {decides.detail}" if decides.detail else "",
        cpu_seconds=max(execution.cpu_seconds for execution in found.values()),
        wall_seconds=sum(execution.wall_seconds for execution in found.values()),
        memory_mb=max(execution.memory_mb for execution in found.values()),
    )
