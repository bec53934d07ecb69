"""No false alarms under load: real programs judged again and again with busy processes; how many
verdicts change.

    ASSAY_DATA=... python -m bench.verdicts --rounds 10

HumanEval's and MBPP's references, and recorded completions of real models with the verdict that
their authors recorded. A failing program may fail in more than one way: one that takes memory in a
loop without end reaches either limit first. Exit code 1 where passing changes or differs from the
record.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from assay.judge import Job, Judge
from assay.tasks import load
from bench.public_data import data_folder
from tests.judge.samples import samples


def programs() -> list[tuple[Job, bool]]:
    """Every job, and whether it is to pass."""
    references = [
        (Job(task, task.reference), True)
        for name in ("humaneval", "mbpp:all")
        for task in load(name)
    ]
    return references + [(sample.job, sample.passed) for sample in samples()]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but take time."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


async def repeated(jobs: list[tuple[Job, bool]], rounds: int, slots: int) -> tuple[int, int]:
    """How many jobs got more than one verdict, and how many judgements are not what is recorded,
    passing or not.
    """
    counts: list[Counter[str]] = [Counter() for _ in jobs]
    disagreeing = 0
    async with Judge(slots=slots) as judge:
        for number in range(1, rounds + 1):
            started, slowest = time.perf_counter(), 0.0
            fresh = (
                replace(job, program=f"{job.program}\n# {number}") for job, _ in jobs
            )  # or it is remembered
            async for index, execution in judge.stream(fresh):
                counts[index][execution.verdict.value] += 1
                slowest = max(slowest, execution.wall_seconds)
                if (execution.verdict.value == "pass") is not jobs[index][1]:
                    disagreeing += 1
                    print(
                        f"{jobs[index][0].task.id}: {execution.verdict.value} ({execution.detail})"
                    )
            changed = sum(len(verdicts) > 1 for verdicts in counts)
            seconds = time.perf_counter() - started
            print(
                f"round {number}: {len(jobs)} programs, {len(jobs) / seconds:.0f}/s, slowest"
                f" {slowest:.1f} s wall; so far {changed} changed, {disagreeing} disagree; load"
                f" {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    for (job, _), verdicts in zip(jobs, counts, strict=True):
        if len(verdicts) > 1:
            print(f"{job.task.id}: {dict(verdicts)}")
    return sum(len(verdicts) > 1 for verdicts in counts), disagreeing


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--slots", type=int, default=2 * cores)
    parser.add_argument("--busy", type=int, default=cores)
    options = parser.parse_args()
    data_folder("humaneval", "mbpp", "llm_samples")
    jobs = programs()
    with busy(options.busy):
        changed, disagreeing = asyncio.run(repeated(jobs, options.rounds, options.slots))
    total = len(jobs) * options.rounds
    print(
        f"{total} judgements of {len(jobs)} programs on {options.slots} slots with {options.busy}"
        f" busy processes: {changed} programs failed in more than one way, {disagreeing} judgements"
        " differ from the record"
    )
    sys.exit(1 if disagreeing else 0)


if __name__ == "__main__":
    main()
