"""The walls stand when attacked: as we are, as an ordinary user, and as a user of the family's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from assay.sandbox.allowed import Allowed, allowed
from assay.sandbox.attack import ATTACKS
from assay.sandbox.probe import graded, probe

ENCLOSED = """
import json, os, sys
from assay.sandbox import attack, walls
from assay.sandbox.limits import Limits
become, reach = json.loads(sys.argv[1])
if become:
    os.setgroups([]); os.setresgid(become, become, become); os.setresuid(become, become, become)
walls.enclose_family(reach["user"], reach["readable"], reach["listable"])
walls.LeafWalls(Limits(), cpu_seconds=9, memory_mb=256).enclose(os.getppid())
stood, failed = attack.attacked(attack.ATTACKS)
import decimal, wave
print(json.dumps({"failed": failed, "stood": stood, "user": os.getuid(), "groups": os.getgroups()}))
"""


def enclosed(reach: Allowed, become: int | None = None, code: str = ENCLOSED) -> dict[str, Any]:
    asked = json.dumps([become, {"user": reach.user, "readable": reach.readable, "listable": reach.listable}])
    done = subprocess.run([sys.executable, "-c", code, asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_wall_stands_on_this_machine() -> None:
    found = probe()
    assert found.tier in "ABC"
    assert set(ATTACKS) <= set(found.enforced)


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")


def test_the_walls_stand_as_we_are_and_the_standard_library_can_be_imported() -> None:
    found = enclosed(replace(allowed(0), user=None))
    assert found["failed"] == {}
    assert set(found["stood"]) == set(ATTACKS)


@needs_root
@pytest.mark.parametrize("become", [65_534, None], ids=["an ordinary user", "a user of its own"])
def test_the_walls_stand_as_somebody_else(become: int | None) -> None:
    code = ENCLOSED.replace("import decimal, wave\n", "")  # this interpreter's folder may be closed to others
    found = enclosed(replace(allowed(0), user=None if become else 60_000), become, code)
    assert found["failed"] == {}
    assert found["user"] == (become or 60_000)
    assert found["groups"] == []


STATUS = """
import json, os, sys
from assay.sandbox import walls
become, reach = json.loads(sys.argv[1])
before = open("/proc/self/status").read()
status = os.open("/proc/self/status", os.O_RDONLY)
walls.enclose_family(reach["user"], reach["readable"], reach["listable"])
lines = os.pread(status, 9999, 0).decode().splitlines()
print(json.dumps(dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)))
"""


def test_capabilities_are_gone_for_good() -> None:
    status = enclosed(replace(allowed(0), user=None), code=STATUS)
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"


BEYOND = """
import json, os, sys
from assay.sandbox import kernel, walls
from assay.sandbox.limits import Limits
become, reach = json.loads(sys.argv[1])
walls.enclose_family(reach["user"], reach["readable"], reach["listable"])
walls.LeafWalls(Limits(), cpu_seconds=9, memory_mb=256).enclose(os.getppid())
libc, found = kernel.libc, {}
import ctypes, threading
for name, call in {
    "clone3": lambda: libc.syscall(435, None, 0),
    "vfork": lambda: libc.syscall(58) if os.uname().machine == "x86_64" else -1,
    "unshare": lambda: libc.unshare(0x10000000),
    "mount": lambda: libc.mount(b"none", b"/", b"tmpfs", 0, None),
    "memfd": lambda: libc.memfd_create(b"x", 0),
    "io_uring": lambda: libc.syscall(425, 1, None),
    "keyctl": lambda: libc.syscall(250, 0, 0) if os.uname().machine == "x86_64" else -1,
    "a call of the future": lambda: libc.syscall(500),
    "die with parent no more": lambda: libc.prctl(1, 0, 0, 0, 0),
    "kill by thread": lambda: libc.syscall(234, os.getpid(), os.getpid(), 9) if os.uname().machine == "x86_64" else -1,
}.items():
    found[name] = call()
done = []
threads = [threading.Thread(target=done.append, args=(1,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"calls": found, "threads": len(done)}))
"""


def test_calls_that_widen_the_kernel_are_refused_and_threads_are_not() -> None:
    found = enclosed(replace(allowed(0), user=None), code=BEYOND)
    assert set(found["calls"].values()) == {-1}
    assert found["threads"] == 4


THREADS = """
import json, os, sys, threading
from assay.sandbox import walls
from assay.sandbox.limits import Limits
become, reach = json.loads(sys.argv[1])
walls.enclose_family(reach["user"], reach["readable"], reach["listable"])
walls.LeafWalls(Limits(), cpu_seconds=9, memory_mb=256, own_user=True).enclose(os.getppid())
threading.stack_size(32768)
done, started = threading.Event(), 0
try:
    for started in range(1000): threading.Thread(target=done.wait, daemon=True).start()
except RuntimeError:
    pass
done.set()
print(json.dumps({"threads": started}))
"""


@needs_root
def test_a_user_of_its_own_has_so_many_threads_and_no_more() -> None:
    assert 100 < enclosed(replace(allowed(0), user=60_999), code=THREADS)["threads"] < 256


def test_no_test_nor_data_of_ours_may_be_read() -> None:
    reach = allowed(0)
    for path in reach.readable:
        assert not os.path.realpath(__file__).startswith(os.path.realpath(path).rstrip("/") + "/")
        assert not path.endswith("site-packages")


@pytest.mark.parametrize(
    ("failed", "tier"),
    [
        ([], "C"),
        (["another user"], "C"),
        (["network"], "E"),
        (["reading files"], "D"),
        (["writing files"], "D"),
        (["processes", "reading files"], "E"),
        (["other processes"], "E"),
    ],
)
def test_the_tier_is_the_weakest_wall(failed: list[str], tier: str) -> None:
    found = graded([], dict.fromkeys(failed, "got through"), root=False)
    assert found.tier == tier
    assert found.sound == (tier == "C")
    assert bool(found.advice) == (tier != "C")


def test_root_with_a_user_of_its_own_is_a_tier_better() -> None:
    assert graded(["another user"], {}, root=True).tier == "B"
