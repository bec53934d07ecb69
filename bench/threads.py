"""Small matrix products beside two busy processes: OpenMP threads that spin at barriers against threads that sleep.

    python -m bench.threads

Each policy runs in a process of its own, idle and beside the load, interleaved; medians of seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

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


def seconds(policy: str) -> float:
    environment = {**os.environ, "OMP_WAIT_POLICY": policy}
    done = subprocess.run([sys.executable, "-c", WORK], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    print("| | spinning (OpenMP's default) | sleeping (assay) | ratio |\n| --- | --- | --- | --- |")
    for name, busy in (("idle machine", 0), ("beside two busy processes", 2)):
        load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            pairs = [(seconds("ACTIVE"), seconds("PASSIVE")) for _ in range(repeats)]
        finally:
            for process in load:
                process.kill()
                process.wait()
        spinning, sleeping = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| {name} | {spinning:.2f} s | {sleeping:.2f} s | {spinning / sleeping:.1f} |")


if __name__ == "__main__":
    main()
