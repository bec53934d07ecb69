"""The benchmarks start, or say in one line what they need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["attacks", "evalplus", "judge", "languages", "verdicts"])
def test_without_public_data_a_benchmark_says_what_to_set(name: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "ASSAY_DATA"}
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("ASSAY_DATA is not set")
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_the_benchmark_of_an_update_on_a_gpu_runs_dry_with_each_lever_off() -> None:
    command = [sys.executable, "-m", "bench.step", "--levers", "--dry"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = [line.partition(":")[0] for line in done.stdout.splitlines()[1:]]
    levers = [
        "every lever",
        "without shared prompts",
        "without packing",
        "without packing, with whole logits",
    ]
    assert names == [f"{kind}, {lever}" for kind in ("full", "LoRA") for lever in levers]
