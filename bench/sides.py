"""Two sides that take their steps in turns, each in a process of its own: both meet the same load,
and neither has the other's threads or allocator.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

Step = dict[str, float]
"""The numbers of one step: `wall` seconds, `cpu` seconds of the process (other work disturbs these
less; those of its children are not in them), `peak`, the most memory that the process has taken so
far in MiB, and what a side adds."""


def status(key: str) -> float:
    """A line of /proc/self/status in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


@contextlib.contextmanager
def turn() -> Iterator[Step]:
    """One step of this side. It begins when the other side has done its own, and ends with a line
    of numbers for `alternate`.
    """
    if not sys.stdin.readline():
        raise SystemExit("the benchmark has ended")
    wall, cpu, step = time.perf_counter(), time.process_time(), Step()
    yield step
    step |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    step["peak"] = status("VmHWM")
    print(json.dumps(step), file=sys.__stdout__, flush=True)


def alternate(
    commands: Sequence[Sequence[str]], rounds: int, apart: bool = False
) -> list[list[Step]]:
    """Steps of each command's process, by round. The first round is a warm-up and left out.
    `apart`: a side takes all its steps, then the next one starts, for sides that do not fit into
    memory together.

    Raises SystemExit if a side ends early; both sides have ended then.
    """
    if apart:
        alone = [alternate([command], rounds) for command in commands]
        return [[step for (step,) in steps] for steps in zip(*alone, strict=True)]
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(_process(command)) for command in commands]
        return [[_next_step(side) for side in sides] for _ in range(rounds + 1)][1:]


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    side = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield side
        side.communicate()
    finally:
        side.kill()
        side.wait()


def _next_step(side: subprocess.Popen[bytes]) -> Step:
    assert side.stdin
    assert side.stdout
    with contextlib.suppress(BrokenPipeError):
        side.stdin.write(b"\n")
        side.stdin.flush()
    while (line := side.stdout.readline()) and not line.startswith(b"{"):
        sys.stderr.buffer.write(line)  # what its libraries say
    if not line:
        raise SystemExit(f"this side of the benchmark ended early: {side.args!r}")
    step: Step = json.loads(line)
    return step


def ratio(rounds: Sequence[Sequence[Step]], clock: str) -> str:
    """How many times as long the second side takes: the median, and the range."""
    times = [theirs[clock] / ours[clock] for ours, theirs in rounds]
    return f"**{statistics.median(times):.2f}** times ({min(times):.2f} to {max(times):.2f})"


def peaks(rounds: Sequence[Sequence[Step]]) -> str:
    """The most memory that the processes have taken."""
    ours, theirs = (max(step["peak"] for step in side) for side in zip(*rounds, strict=True))
    return f"peak memory {ours:,.0f} vs. {theirs:,.0f} MiB"
