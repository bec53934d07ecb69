"""What a zygote holds, which each fork pays for."""

from __future__ import annotations

import subprocess
import sys


def test_a_zygote_loads_no_module_that_only_others_need() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, assay.judge.warmup; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # the kernel copies and drops the entry of each page that they fill, at every fork
    unneeded = {"pathlib", "subprocess", "asyncio", "assay.sandbox.cgroups"}
    assert unneeded.isdisjoint(loaded.stdout.split())
