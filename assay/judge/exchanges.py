"""Programs that read and print: one run for each exchange, the one that tells most programs apart first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from assay.judge.bundle import Bundle
from assay.judge.line import Line
from assay.judge.memory import KEPT, Latest
from assay.judge.profiles import Profile
from assay.types import Execution, Verdict


class Exchanges:
    """Has programs run once for each exchange of their task; with `stop_early`, until one fails."""

    def __init__(self, line: Line, stop_early: bool) -> None:
        self._line = line
        self._stop_early = stop_early
        self._failed: Latest[bytes, Counter[int]] = Latest(KEPT)

    async def run(self, bundle: Bundle, program: str, profile: Profile) -> Execution:
        """Judge one program. Raises SandboxError."""
        failed = self._failed.setdefault(bundle.digest, Counter())
        order = sorted(range(len(bundle.exchanges)), key=lambda at: -failed[at])

        async def one(at: int) -> Execution:
            exchange = bundle.exchanges[at]
            return await self._line.execute(bundle.exchange(program, profile, exchange.stdin, exchange.stdout))

        found: dict[int, Execution] = {}
        if not self._stop_early:
            found = dict(enumerate(await asyncio.gather(*map(one, range(len(order))))))
        for at in order if self._stop_early else []:
            found[at] = await one(at)
            if found[at].verdict is not Verdict.PASS:
                failed[at] += found[at].verdict is not Verdict.INFRA
                break
        return whole(found)


def whole(found: Mapping[int, Execution]) -> Execution:
    """One execution from those of a program's exchanges by their numbers.

    The first that failed decides, one that the machine failed only where no other did. Time and memory are the most
    that any exchange took, since each has the limits to itself; wall time is the sum.
    """
    numbers = sorted(found, key=lambda at: (found[at].verdict is Verdict.PASS, found[at].verdict is Verdict.INFRA, at))
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
