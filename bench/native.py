"""A soak of programs that are started by exec: the attacks in C and JavaScript over and over, of
which none may get through and nothing may stay: no process, file, mount or control group.

    python -m bench.native --runs 5000

Each attack in C is compiled once. Exit code 1 where something is not as promised.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from assay.sandbox import kernel
from assay.sandbox.cgroups import parents
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.program import Ended, Program
from assay.sandbox.supervisor_client import Sandbox
from tests.attacks.native import NATIVE_ATTACKS, NativeAttack
from tests.attacks.test_native import LIMITS, compiler, prepared
from tests.judge.processes import alive, descendants

FOLDERS = ("/tmp", "/dev/shm", "/var/tmp", "/usr/bin", "/usr/include")
PRINTS = "output without end"


def traces(supervisor: int = 0) -> dict[str, set[str]]:
    """What an attack could leave, by its kind; other judges may work beside this one."""
    groups, prefix = set[str](), f"assay-{supervisor}-"
    with suppress(OSError):
        groups = {str(group) for parent in set(parents()) for group in parent.glob(f"{prefix}*")}
    files = {f"{folder}/{name}" for folder in FOLDERS for name in os.listdir(folder)}  # noqa: PTH208
    return {
        "files": {file for file in files if "native" in file or prefix in file},
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "groups": groups,
    }


async def soak(runs: int, slots: int, seed: int) -> tuple[list[str], int]:
    """Run the attacks; what was not as promised, and the pid of the supervisor."""
    draw, broken, ends = random.Random(seed), list[str](), Counter[str]()
    isolation = probe_isolation()
    sandbox = Sandbox("assay.judge.warmup")
    await sandbox.start(LIMITS, slots, isolation.walls)
    try:
        pairs: list[tuple[NativeAttack, Program]] = []
        for attack in NATIVE_ATTACKS:
            compiled = await sandbox.run(compiler(attack)) if attack.language == "c" else None
            pairs.append((attack, prepared(attack, compiled)))
        sample = [pairs[at % len(pairs)] for at in range(runs)]
        draw.shuffle(sample)
        left, started = iter(enumerate(sample, start=1)), time.perf_counter()

        async def work() -> None:
            for number, (attack, program) in left:
                result = await sandbox.run(program)
                ends[result.ended.value] += 1
                if b"through" in result.stdout and attack.name != PRINTS:
                    broken.append(f"{attack.name} got through")
                if result.compile_error or result.ended is Ended.LOST:
                    broken.append(f"{attack.name}: {result.compile_error or result.detail}")
                if number % max(1, runs // 10) == 0:
                    forked = len(descendants(sandbox.pid))
                    print(f"{number:6d} runs, {forked} processes", flush=True)

        await asyncio.gather(*(work() for _ in range(2 * slots)))
        seconds = time.perf_counter() - started
    finally:
        await sandbox.close()
    print(
        f"tier {isolation.tier}: {runs} runs of {len(pairs)} attacks in {seconds:.0f} s"
        f" ({runs / seconds:.1f}/s) on {slots} slots; ended: {dict(ends)}"
    )
    return broken, sandbox.pid


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--slots", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)  # whatever the sandbox might leave comes to us
    before = traces()
    broken, supervisor = asyncio.run(soak(options.runs, options.slots, options.seed))
    left = {kind: names - before[kind] for kind, names in traces(supervisor).items()}
    left["processes"] = set(map(str, alive(descendants(os.getpid()))))
    print("left: " + ", ".join(f"{len(names)} {kind}" for kind, names in left.items()))
    broken += [f"left: {name}" for names in left.values() for name in sorted(names)]
    for line in broken:
        print(line)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
