"""Calls of the kernel that the standard library lacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOVE = """
import os, re
from assay.sandbox import kernel
def area():
    at = kernel.ctypes.cast(kernel.ctypes.pythonapi.PyDict_New, kernel.ctypes.c_void_p).value
    for one in re.split(r"\\n(?=[0-9a-f]+-)", kernel.read_text("/proc/self/smaps")):
        low, high = (int(end, 16) for end in one.split()[0].split("-"))
        if low <= at < high:
            return one
kernel.use_huge_pages_for_code()
found = area()
print(found.split()[1], re.search(r"AnonHugePages: +(\\d+)", found)[1], sum({1: 2}.values()))
"""


def test_the_code_of_the_interpreter_moves_to_huge_pages_and_cannot_be_written() -> None:
    done = subprocess.run([sys.executable, "-c", MOVE], capture_output=True, text=True, check=True)
    mode, huge, answer = done.stdout.split()
    assert answer == "2"
    if huge == "0":
        pytest.skip("this machine gave no huge pages, or the code fills none")
    assert mode == "r-xp"


def test_a_zygote_loads_no_module_that_only_others_need() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, assay.judge.warmup; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # each page of it would cost every fork 0.2 us
    unneeded = {"pathlib", "subprocess", "asyncio", "assay.sandbox.cgroups"}
    assert unneeded.isdisjoint(loaded.stdout.split())
