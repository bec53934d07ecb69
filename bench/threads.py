"""Small matrix products with two busy processes: how OpenMP's threads wait at barriers.

    python -m bench.threads

Each policy runs in a process of its own, idle and with the load, interleaved; medians of seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from assay.tuning import tune

WORK = """
import time, torch
x = torch.randn(2000, 128)
weights = [torch.randn(128, 128, requires_grad=True) for _ in range(20)]
start = time.perf_counter()
for _ in range(10):
    y = x
    for weight in weights:
        y = torch.relu(y @ weight)
    y.sum().backward()
print(time.perf_counter() - start)
"""


POLICIES: dict[str, dict[str, str]] = {
    "OpenMP's default": {},
    "asleep at once": {"OMP_WAIT_POLICY": "PASSIVE"},
    "assay": tune(),
}


def seconds(policy: dict[str, str]) -> float:
    usual = {name: value for name, value in os.environ.items() if name not in tune()}
    done = subprocess.run(
        [sys.executable, "-c", WORK], env=usual | policy, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"| | {' | '.join(POLICIES)} |\n| --- | --- | --- | --- |")
    for name, busy in (
        ("idle machine", 0),
        ("with one busy process", 1),
        ("with two busy processes", 2),
    ):
        load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            rounds = [[seconds(policy) for policy in POLICIES.values()] for _ in range(repeats)]
        finally:
            for process in load:
                process.kill()
                process.wait()
        medians = (f"{statistics.median(column):.2f} s" for column in zip(*rounds, strict=True))
        print(f"| {name} | {' | '.join(medians)} |", flush=True)


if __name__ == "__main__":
    main()
