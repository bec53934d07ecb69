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
