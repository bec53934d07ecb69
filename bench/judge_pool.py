"""Verdicts a second of two `assay serve` services, each on one core, compared with one of them.

    ASSAY_DATA=... python -m bench.judge_pool --cores 2 3      # the client runs on the other cores

The programs are those of a group, 9 for each task of HumanEval: three times its reference, a
program that returns nothing and one that raises. Each round starts services anew, one and then two
(or two and then one), and judges programs that they have not seen. All verdicts are compared with
those that are right.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from assay.config.sections import JudgeSettings
from assay.judge import Job
from assay.judges.open import open_judge
from assay.tasks import load
from assay.types import Task, Verdict
from bench.public_data import data_folder

SERVE = ("-m", "assay", "serve", "--port", "0", "--memory-mb", "512")


@contextlib.contextmanager
def service(core: int) -> Iterator[str]:
    """The URL of a service that has one core."""
    with subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, *SERVE], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait()


def jobs_of(tasks: Sequence[Task], copies: int) -> list[tuple[Job, Verdict]]:
    """For each task so many times a right program and two wrong ones, with what each must get."""
    jobs = []
    for task in tasks:
        for number in range(copies):
            nothing = f"def {task.entry_point}(*_): return None  # {number}"
            raising = f"{task.reference}\n\ndef {task.entry_point}(*_): raise OSError({number})"
            right = f"{task.reference}\n# {number}"
            jobs += [(Job(task, right), Verdict.PASS), (Job(task, nothing), Verdict.WRONG),
                     (Job(task, raising), Verdict.ERROR)]  # fmt: skip
    return jobs


async def rate(urls: Sequence[str], tasks: Sequence[Task], copies: int) -> float:
    """Verdicts a second on these services, once they have judged something."""
    async with open_judge(JudgeSettings(servers=tuple(urls))) as pool:
        await pool.all(
            [Job(task, f"{task.reference}\n# first") for task in tasks[: 16 * len(urls)]]
        )
        jobs = jobs_of(tasks, copies)
        started = time.perf_counter()
        executions = await pool.all([job for job, _ in jobs])
        seconds = time.perf_counter() - started
    for (job, verdict), execution in zip(jobs, executions, strict=True):
        assert execution.verdict is verdict, (job, execution)
    return len(jobs) / seconds


def measure(cores: Sequence[int], tasks: Sequence[Task], copies: int) -> float:
    """The rate of services on these cores."""
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(service(core)) for core in cores]
        return asyncio.run(rate(urls, tasks, copies))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cores", type=int, nargs=2, default=(2, 3))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--copies", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, os.sched_getaffinity(0) - set(options.cores))
    tasks = load(f"humaneval:{data_folder() / 'humaneval' / 'HumanEval.jsonl.gz'}")
    ratios: list[float] = []
    rates: dict[int, list[float]] = {1: [], 2: []}
    for number in range(options.rounds):
        ways = [options.cores[number % 2 :][:1], options.cores]
        for cores in ways if number % 2 else reversed(ways):
            rates[len(cores)].append(measure(cores, tasks, options.copies))
        ratios.append(rates[2][-1] / rates[1][-1])
        print(f"one {rates[1][-1]:6.1f}/s   two {rates[2][-1]:6.1f}/s   {ratios[-1]:.2f} times",
              flush=True)  # fmt: skip
    single, two = (statistics.median(rates[count]) for count in (1, 2))
    print(f"median: one {single:.1f}/s, two {two:.1f}/s, {statistics.median(ratios):.2f} times"
          f" ({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
