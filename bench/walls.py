"""What each wall costs: CPU time of a fork that ends at once, and what a zygote pays once;
interleaved, medians.

    python -m bench.walls

A family's walls are put up once and inherited, so each family is a process of its own that forks on
demand. All have imported what a zygote has, since a fork's cost grows with the pages of its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from assay.judge import Job, Judge, judge
from assay.judge.warmup import MODULES
from assay.sandbox import cgroups, kernel, walls
from assay.sandbox.access import access_rules
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.kernel import MIB
from assay.sandbox.users import claim_user
from assay.types import Check, Task

FORKS = 20
"""Forks in a row of one family, before the next one's turn."""
FAMILIES = {
    "no walls": [],
    "landlock": ["landlock"],
    "landlock, seccomp": ["landlock", "capabilities", "seccomp"],
    "namespaces": ["namespaces"],
    "all walls": ["namespaces", "user", "landlock", "capabilities", "seccomp"],
}


LIMITS = walls.ProcessLimits(cpu_seconds=6, memory_mb=512, stack_mb=64, open_files=32)


def process_steps() -> dict[str, Callable[[], None]]:
    """What a fork may do before it ends, each more than the one before."""
    process = walls.process_walls(LIMITS, os.getpid())
    limits_only = walls.process_walls(LIMITS, os.getpid(), filtered=False)

    def bare() -> None:
        pass

    def limited() -> None:
        walls.put_up(limits_only)

    def full() -> None:
        kernel.forgo_privileges()
        walls.put_up(process)

    return {
        "fork and exit": bare,
        "with a process's limits": limited,
        "with a process's limits and filter": full,
    }


def milliseconds(step: Callable[[], None]) -> float:
    """CPU time of one fork that takes `step` and ends, its parent's included."""
    start = time.process_time()
    pid = kernel.fork()
    if pid == 0:
        try:
            step()
        finally:
            os._exit(0)
    _, _, child = os.wait4(pid, 0)
    return (time.process_time() - start + child.ru_utime + child.ru_stime) * 1000


def measured(required: list[str]) -> tuple[float, dict[str, list[float]]]:
    """A family of its own: what its walls cost, in wall time, and its forks."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            rules = access_rules(claim_user().user)
            start = time.perf_counter()
            walls.enclose_family(rules, required)
            once = (time.perf_counter() - start) * 1000
            steps = process_steps()
            times: dict[str, list[float]] = {name: [] for name in steps}
            for _ in range(FORKS):
                for name, step in steps.items():
                    times[name].append(milliseconds(step))
            os.write(writer, json.dumps([once, times]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        once, times = json.load(answer)
    os.waitpid(child, 0)
    return once, times


def forks(rounds: int, possible: tuple[str, ...]) -> None:
    """Forks of every family, and the families' own walls."""
    forked: dict[tuple[str, str], list[float]] = {}
    put_up: dict[str, list[float]] = {}
    for _ in range(rounds):
        for family, required in FAMILIES.items():
            once, times = measured([wall for wall in required if wall in possible])
            put_up.setdefault(family, []).append(once)
            for step, values in times.items():
                forked.setdefault((family, step), []).extend(values)
    print(f"{'CPU ms; in a family with':26} {'a fork':36}    median      least")
    for (family, step), values in forked.items():
        print(f"{family:26} {step:36} {statistics.median(values):9.2f}  {min(values):9.2f}")
    print("\nms, once for each zygote:")
    for family, values in put_up.items():
        print(
            f"{'walls of a family with ' + family:63} {statistics.median(values):9.2f} "
            f" {min(values):9.2f}"
        )


def groups(rounds: int) -> None:
    """A control group made, given a process, and removed."""
    times = []
    for number in range(rounds):
        child = os.fork()
        if child == 0:
            time.sleep(0.2)
            os._exit(0)
        start = time.perf_counter()
        group = cgroups.make(f"bench{number}", 512 * MIB, 64)
        group.add(child)
        times.append((time.perf_counter() - start) * 1000)
        os.waitpid(child, 0)
        group.remove()
    print(
        f"{'a control group made and a process put into it':63} {statistics.median(times):9.2f} "
        f" {min(times):9.2f}"
    )


TASK = Task("one", "", (Check("assert one() == 1"),), "one")


async def first_verdict() -> float:
    start = time.perf_counter()
    async with Judge(slots=1) as judge:
        await judge.run(Job(TASK, "def one(): return 1"))
        return (time.perf_counter() - start) * 1000


def starts(rounds: int) -> None:
    """From nothing to the first verdict, with and without the walls that a zygote puts up once."""
    machine = probe_isolation()
    without = tuple(wall for wall in machine.walls if wall not in ("namespaces", "user", "group"))
    kinds = {
        "with all walls": machine,
        "without namespaces and control group": replace(machine, walls=without),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, isolation in kinds.items():
            vars(judge)["probe_isolation"] = partial(replace, isolation)
            times[name].append(asyncio.run(first_verdict()))
    print("\nms, from nothing to the first verdict of a judge of one slot:")
    for name, values in times.items():
        print(f"{name:63} {statistics.median(values):9.2f}  {min(values):9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    possible = probe_isolation().walls
    for name in (*MODULES, "assay.judge.candidate", "assay.judge.worker"):
        importlib.import_module(name)
    print(f"tier {probe_isolation().tier}; {rounds * FORKS} forks of each kind\n", flush=True)
    forks(rounds, possible)
    if "group" in possible:
        groups(rounds)
    starts(rounds)


if __name__ == "__main__":
    main()
