"""How a process of torch waits and keeps memory."""

import os
import subprocess
import sys

import pytest

from assay.tuning import tune

FAULTS = """
import ctypes, os, resource, sys, threading
from assay.tuning import tune
if "tuned" in sys.argv:
    os.environ.update(tune())
import torch
torch.set_num_threads(1)
def fill():
    tensors = [torch.ones(int(sys.argv[1])) for _ in range(int(sys.argv[2]))]
    while tensors:
        tensors.pop(0)
def faults_of_a_use():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for _ in range(9):
    faults_of_a_use()
ctypes.CDLL(None).mlockall(1)  # of what is mapped now, the kernel takes no page meanwhile
print(min(faults_of_a_use() for _ in range(11)))
"""


def faults(*arguments: str) -> int:
    """Of the best of eleven uses: under pressure the kernel moves pages in any of them."""
    environment = {name: value for name, value in os.environ.items() if name not in tune()}
    environment.pop("OMP_WAIT_POLICY", None)
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *arguments],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
@pytest.mark.parametrize(("elements", "count"), [(100_000, 500), (3_000_000, 8)])
def test_tensors_freed_in_a_thread_are_used_again_without_page_faults(
    elements: int, count: int
) -> None:
    assert faults(str(elements), str(count), "tuned") < 20


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_without_tuning_small_tensors_freed_in_a_thread_cost_page_faults() -> None:
    assert faults("100000", "500") > 200  # large ones only at times: glibc adapts its threshold


def test_a_wait_policy_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    assert tune() == {"THP_MEM_ALLOC_ENABLE": "0"}
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert tune()["OMP_WAIT_POLICY"] == "ACTIVE"
