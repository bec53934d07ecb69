"""A soak: thousands of hostile programs mixed with benign ones, whose verdicts must be right;
nothing may grow or stay.

    python -m bench.hostile --runs 10000

Prints the rate, the memory and the processes as it goes; exit code 1 where something is not as
promised.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from assay.judge import Job, Judge
from assay.sandbox import kernel
from assay.sandbox.limits import Limits
from assay.types import Check, Task
from tests.judge.processes import alive, descendants, zygotes

LIMITS = Limits(cpu_seconds=0.2, wall_seconds=2, memory_mb=96, printed_mb=1, reply_mb=2)
TASK = Task("add", "", (Check("assert add(1, 2) == 3"), Check("assert add(0, 0) == 0")), "add")
RIGHT = "def add(a, b): return a + b"
BENIGN = {
    RIGHT: "pass",
    f"print('x' * 5000)\n{RIGHT}": "pass",
    f"import time\ntime.sleep(0.02)\n{RIGHT}": "pass",
    "import functools, operator\ndef add(*both): return functools.reduce(operator.add, both)": (
        "pass"
    ),
    "def add(a, b): return a": "wrong",
    "def add(a, b): return a / 0": "error",
    "def add(a, b) return a": "compile",
    "def sub(a, b): return a - b": "no_code",
}
HOSTILE = {
    "fork bomb": "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "daemon": "import os\nif os.fork() == 0:\n  os.setsid()\n  os.fork()\n  while True: pass",
    "memory balloon": "hold = []\nwhile True: hold.append(bytearray(10**6))",
    "memory balloon, caught": (
        "hold = []\nwhile True:\n  try: hold.append('x' * 10**6)\n  except MemoryError: pass"
    ),
    "endless output": "while True: print('x' * 10000)",
    "output by many writes": "import os\nwhile True: os.write(1, b'x')",
    "sleeper": "import time\ntime.sleep(60)",
    "disk filler": (
        "with open('/tmp/assay-hostile', 'wb') as file:\n  while True: file.write(bytes(10**6))"
    ),
    "disk filler, caught": (
        "import os\nfor name in range(10**9):\n"
        "  try: os.open(f'/dev/shm/{name}', 66)\n  except OSError: pass"
    ),
    "signal sender": "import os\nfor pid in (os.getppid(), -1, 1, 0): os.kill(pid, 9)",
    "signal sender, caught": (
        "import os\nfor pid in range(2, 10**5):\n  try: os.kill(pid, 9)\n  except OSError: pass"
    ),
    "stops itself": "import signal\ndef add(a, b):\n  signal.raise_signal(signal.SIGSTOP)",
    "ignores signals": (
        "import signal\nfor n in range(1, 65):\n"
        "  try: signal.signal(n, 1)\n  except (OSError, ValueError): pass\nwhile True: pass"
    ),
    "thread bomb": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep,"
        " args=(60,)).start()"
    ),
    "thread bomb, busy": (
        "import threading\ndef spin():\n"
        "  while True: pass\nfor _ in range(20): threading.Thread(target=spin).start()"
    ),
    "descriptor leak": "import os\nwhile True: os.dup(1)",
    "descriptor leak, caught": (
        "import os\nwhile True:\n  try: os.pipe()\n  except OSError: break\ndef add(a, b): return a"
    ),
    "deep recursion": "def add(a, b): return add(b, a)",
    "deep recursion of C": (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "class A:\n  def __repr__(s): return repr(s)\ndef add(a, b): return repr(A())"
    ),
    "huge reply": "def add(a, b): return 'x' * (3 << 20)",
    "huge reply of parts": "def add(a, b): return [[]] * 10**6",
    "deep reply": "def add(a, b):\n  x = []\n  for _ in range(10**5): x = [x]\n  return x",
    "closed channel": "import os\nos.closerange(0, 32)\ndef add(a, b): return a + b",
    "closed channel, sleeping": "import os, time\nos.close(3)\ntime.sleep(1)",
    "forged replies": "import os\ndef add(a, b): os.write(3, b'\\0\\0\\0\\2[]' * 1000)",
    "flooded channel": "import os\nwhile True: os.write(3, bytes(65536))",
    "exit": "import os\ndef add(a, b): os._exit(0)",
    "crash": "import ctypes\nctypes.string_at(0)",
    "busy loop": "while True: pass",
    "busy loop in the call": "def add(a, b):\n  while True: pass",
    "busy loop in C": "def add(a, b): return 7 ** 7 ** 9",
    "busy regular expression": "import re\nre.match('(a+)+b', 'a' * 60)",
}
RARE = ("sleeper",)
GROWTH, SLACK_MIB = 1.05, 2.0
"""How much more memory the last fifth may use than the first."""


@dataclass
class Watch:
    """What a soak has seen."""

    supervisor: int
    started: float = field(default_factory=time.perf_counter)
    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    most_processes: int = 0

    def look(self, runs: int) -> None:
        """Note memory, descriptors and processes; print a line."""
        forked = descendants(self.supervisor)
        shares = [
            resident(os.getpid()),
            resident(self.supervisor),
            sum(map(resident, zygotes(self.supervisor))),
        ]
        self.memory.append(sum(shares[1:]))  # the trainer remembers verdicts, so it grows
        self.files.append(open_files(os.getpid()) + open_files(self.supervisor))
        self.most_processes = max(self.most_processes, len(forked))
        rate = runs / (time.perf_counter() - self.started)
        trainer, supervisor, warm = shares
        print(
            f"{runs:6d} runs {rate:6.1f}/s   MiB: trainer {trainer:.1f}, supervisor"
            f" {supervisor:.1f}, zygotes {warm:.1f}   {len(forked)} processes, {self.files[-1]}"
            " descriptors",
            flush=True,
        )


def resident(pid: int) -> float:
    """MiB in memory; 0 where the process is gone."""
    try:
        return (
            int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / 2**20
        )
    except OSError:
        return 0.0


def open_files(pid: int) -> int:
    """Descriptors of a process; 0 where this user may not see them."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def draw_programs(runs: int, seed: int) -> list[tuple[str, str]]:
    """Name (or the verdict that a benign program must get) and program of each run."""
    draw = random.Random(seed)
    often = [name for name in HOSTILE if name not in RARE]
    rows: list[tuple[str, str]] = []
    for _ in range(runs):
        kind = draw.random()
        if kind < 0.5:
            program, verdict = draw.choice(list(BENIGN.items()))
            rows.append((verdict, program))
        else:
            name = draw.choice(RARE if kind > 0.98 else often)
            rows.append((name, HOSTILE[name]))
    return rows


async def soak(runs: int, slots: int, seed: int) -> list[str]:
    """Judge them all; what was not as promised."""
    rows = draw_programs(runs, seed)
    every = max(1, runs // 25)
    broken: list[str] = []
    verdicts: Counter[tuple[str, str]] = Counter()
    before = open_files(os.getpid())
    async with Judge(LIMITS, slots) as judge:
        supervisor = judge.pid
        for kind, more in enumerate(
            ("", "def save(x): open('x', 'w')"), 1
        ):  # with a folder, second
            program = f"{next(iter(BENIGN))}\n{more}"
            while len(zygotes(supervisor)) < kind * slots:  # what starts is no growth
                now = time.monotonic()
                await judge.all([Job(TASK, f"{program}\n# {now} {slot}") for slot in range(slots)])
        watch = Watch(supervisor)
        done = 0
        async for index, execution in judge.stream(
            Job(TASK, f"{program}\n# {at}") for at, (_, program) in enumerate(rows)
        ):
            name, program = rows[index]
            verdicts[name, execution.verdict.value] += 1
            expected = BENIGN.get(program)
            ok = (
                execution.verdict == expected
                if expected
                else execution.verdict not in ("pass", "infra", "unjudged")
            )
            if not ok:
                broken.append(f"{name}: {execution.verdict.value} ({execution.detail})")
            done += 1
            if done % every == 0:
                watch.look(done)
        seconds = time.perf_counter() - watch.started
    for (name, verdict), count in sorted(verdicts.items()):
        print(f"{name:28s} {verdict:10s} {count}")
    left = alive(descendants(os.getpid()))
    fifth = max(1, len(watch.memory) // 5)
    first, last = statistics.median(watch.memory[:fifth]), statistics.median(watch.memory[-fifth:])
    after = open_files(os.getpid())
    print(
        f"{runs} runs in {seconds:.0f} s ({runs / seconds:.1f}/s) on {slots} slots; median MiB of"
        f" supervisor and zygotes in the first fifth {first:.1f}, in the last {last:.1f};"
        f" {watch.most_processes} processes at most, {len(left)} left; the trainer's descriptors"
        f" {before} before, {after} after; {len(broken)} verdicts not as promised"
    )
    if last > first * GROWTH + SLACK_MIB:
        broken.append(f"memory grew from {first:.1f} to {last:.1f} MiB")
    if left:
        broken.append(f"{len(left)} processes are left")
    if after > before:
        broken.append(f"descriptors grew from {before} to {after}")
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=4 * len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kernel.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: whatever the judge might leave comes to us
    broken = asyncio.run(soak(options.runs, options.slots, options.seed))
    for line in broken:
        print(line)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
