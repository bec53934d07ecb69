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

Step = dict[str, float]
"""Of one step: `wall` seconds, `own` ones of the process, which other work disturbs less, and a
side's own numbers."""


@contextlib.contextmanager
def turn() -> Iterator[Step]:
    """A step of this side: it begins when the other side has done one, and ends with its numbers as
    a line for `alternate`.
    """
    sys.stdin.readline()
    wall, own, found = time.perf_counter(), time.process_time(), Step()
    yield found
    found |= {"wall": time.perf_counter() - wall, "own": time.process_time() - own}
    print(json.dumps(found), file=sys.__stdout__, flush=True)


def alternate(commands: Sequence[Sequence[str]], rounds: int) -> list[list[Step]]:
    """Steps of each command's process, by round; the first is a warm-up and left out."""
    sides = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for command in commands
    ]
    found: list[list[Step]] = []
    for _ in range(rounds + 1):
        steps = []
        for side in sides:
            assert side.stdin
            assert side.stdout
            side.stdin.write(b"\n")
            side.stdin.flush()
            steps.append(json.loads(side.stdout.readline()))
        found.append(steps)
    for side in sides:
        side.communicate()
    return found[1:]


def ratio(rounds: Sequence[Sequence[Step]], clock: str) -> str:
    """How many times as long the second side takes: the median, and the range."""
    times = [theirs[clock] / ours[clock] for ours, theirs in rounds]
    return f"**{statistics.median(times):.2f}** times ({min(times):.2f} to {max(times):.2f})"
