"""What interpreters cost: time to open one and to run a small block, alone and many at once; memory
while they wait.

    python -m bench.interpreter --open 300
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from pathlib import Path

from assay.judge import Judge
from assay.sandbox.processes import is_stopped
from tests.judge.processes import descendants

BLOCK = "found = [n * n for n in range(10)]\nsum(found)"
IMPORTING = "import numpy\nnumpy.arange(3).sum()"


async def timed(judge: Judge, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds to open an interpreter with a first block, and for a block after that, one at a
    time.
    """
    opened, run = [], []
    for _ in range(rounds):
        async with judge.interpreter() as python:
            start = time.perf_counter()
            await python.run(BLOCK)
            opened.append((time.perf_counter() - start) * 1e3)
            start = time.perf_counter()
            await python.run(BLOCK)
            run.append((time.perf_counter() - start) * 1e3)
    return opened, run


def private_mb(pid: int) -> float:
    """MiB that a process has for itself alone, page tables included."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return (
        sum(
            int(line.split()[1])
            for line in rollup + status
            if line.startswith(("Private_", "VmPTE"))
        )
        / 1024
    )


async def crowd(judge: Judge, count: int, block: str) -> str:
    """A line about so many interpreters at once."""
    async with contextlib.AsyncExitStack() as stack:
        pythons = [await stack.enter_async_context(judge.interpreter()) for _ in range(count)]
        start = time.perf_counter()
        await asyncio.gather(*(python.run(block) for python in pythons))
        opening = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(5):
            await asyncio.gather(*(python.run(block) for python in pythons))
        running = (time.perf_counter() - start) / 5
        supervisor = judge.pid
        memory = [private_mb(pid) for pid in descendants(supervisor) if is_stopped(pid)]
    return (
        f"{count} at once: opened at {count / opening:.0f}/s, blocks at {count / running:.0f}/s;"
        f" waiting, one has {statistics.mean(memory):.2f} MiB of its own ({len(memory)} stopped)"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    async with Judge() as judge:
        start = time.perf_counter()
        async with judge.interpreter() as python:
            await python.run(BLOCK)
        print(f"the first of all, with its zygotes: {(time.perf_counter() - start) * 1e3:.0f} ms")
        for name, times in zip(
            ("open, with a first block", "a block"),
            await timed(judge, arguments.rounds),
            strict=True,
        ):
            print(
                f"{name}: {statistics.median(times):.2f} ms (p95"
                f" {statistics.quantiles(times, n=20)[-1]:.2f})"
            )
        for name, block in (("a small block", BLOCK), ("with numpy", IMPORTING)):
            print(f"{name}, {await crowd(judge, arguments.open, block)}")


if __name__ == "__main__":
    asyncio.run(main())
