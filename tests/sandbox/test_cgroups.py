"""A slot's control group bounds all its processes together; it ends with its judge, or with the
next one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.judge import Judge
from assay.sandbox import cgroups
from assay.sandbox.cgroups import Group, hierarchies, parents
from assay.sandbox.isolation import probe_isolation
from assay.sandbox.kernel import MIB, start_time
from assay.types import Verdict
from tests.judge.jobs import RIGHT, add

needs_groups = pytest.mark.skipif(
    "group" not in probe_isolation().walls, reason="this machine allows no control groups"
)


def groups_of(pid: int) -> list[Path]:
    return sorted(group for parent in set(parents()) for group in parent.glob(f"assay-{pid}-*"))


HOLD = """
def add(a, b):
    import time
    time.sleep(0.3)
    held = b'x' * (300 * 2**20)
    time.sleep(5)
    return a + b
"""


@needs_groups
def test_a_program_that_the_kernel_kills_for_memory_is_over_its_memory() -> None:
    async def starved() -> tuple[Verdict, str, float]:
        async with Judge(slots=1) as judge:
            assert (await judge.run(add(RIGHT))).verdict is Verdict.PASS
            Group(tuple(groups_of(judge.pid))).limit(100 * MIB, 512)
            execution = await judge.run(add(HOLD))
            assert (await judge.run(add(RIGHT))).verdict is Verdict.PASS
            return execution.verdict, execution.detail.split(" with ")[0], execution.memory_mb

    verdict, detail, memory_mb = asyncio.run(starved())
    assert (verdict, detail) == (Verdict.MEMORY, "killed")
    assert memory_mb < 200


@needs_groups
def test_every_process_of_a_slot_is_in_its_group_and_the_group_goes_with_the_judge() -> None:
    async def counted() -> tuple[int, list[int]]:
        async with Judge(slots=1) as judge:
            await judge.run(add(RIGHT))
            groups = groups_of(judge.pid)
            return judge.pid, [
                len((group / "cgroup.procs").read_text().split()) for group in groups
            ]

    supervisor, processes = asyncio.run(counted())
    assert processes
    assert min(processes) >= 1 + 2 + 1
    assert groups_of(supervisor) == []


@needs_groups
def test_a_supervisor_removes_the_groups_of_a_killed_one_and_not_those_of_a_living_one() -> None:
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    left = [parent / f"assay-{dead.pid}-{start_time(dead.pid)}-0" for parent in parents()]
    dead.wait()
    mine = cgroups.make("living", 64 * MIB, 16)
    try:
        for folder in left:
            folder.mkdir()
        cgroups.remove_leftovers()
        assert not any(folder.exists() for folder in left)
        assert all(folder.exists() for folder in mine.folders)
    finally:
        mine.remove()
    assert not any(folder.exists() for folder in mine.folders)


@needs_groups
def test_a_group_whose_last_process_goes_a_moment_later_is_removed_and_no_other_is() -> None:
    mine = cgroups.make("leaving", 64 * MIB, 16)
    with subprocess.Popen(["sleep", "0.2"]) as process:
        mine.add(process.pid)
        mine.remove(0.01)
        assert all(folder.exists() for folder in mine.folders)
        mine.remove(10)
    assert not any(folder.exists() for folder in mine.folders)


@needs_groups
def test_a_killed_supervisor_leaves_no_process_in_its_groups() -> None:
    async def bereft() -> list[Path]:
        async with Judge(slots=1) as judge:
            await judge.run(add(RIGHT))
            os.kill(judge.pid, signal.SIGKILL)
            return groups_of(judge.pid)

    groups = asyncio.run(bereft())
    end = time.monotonic() + 20
    # a group with a process cannot be removed; another judge that starts now may remove these too
    while any(group.exists() for group in groups) and time.monotonic() < end:
        time.sleep(0.02)
        cgroups.remove_leftovers()
    assert groups
    assert not any(group.exists() for group in groups)


def test_in_version_2_the_nearest_group_above_that_hands_both_controllers_down_is_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "user.slice" / "session.scope"
    ours.mkdir(parents=True)
    monkeypatch.setattr(cgroups, "hierarchies", lambda: {"": ours})
    with pytest.raises(FileNotFoundError, match="no control group"):
        parents()
    (ours / "cgroup.subtree_control").write_text("pids\n")
    (ours.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert parents() == (ours.parent,)


def test_both_versions_limit_by_their_own_files_and_count_kills(tmp_path: Path) -> None:
    one, two, pids = tmp_path / "one", tmp_path / "two", tmp_path / "pids"
    for folder, names in ((one, ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]), (pids,
        ["pids.max"]),
                          (two, ["memory.max", "memory.swap.max", "pids.max"])):  # fmt: skip
        folder.mkdir()
        for name in names:
            (folder / name).write_text("max")
    Group((one, pids)).limit(7 * MIB, 9)
    Group((two,)).limit(7 * MIB, 9)
    written = {str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.rglob("*.*")}
    assert written == {
        "one/memory.limit_in_bytes": "7340032", "one/memory.memsw.limit_in_bytes": "7340032",
        "pids/pids.max": "9",
        "two/memory.max": "7340032", "two/memory.swap.max": "0", "two/pids.max": "9",
    }  # fmt: skip
    group = Group((two,))
    (two / "memory.events").write_text("max 3\noom 2\noom_kill 0\n")
    assert not group.killed()
    (two / "memory.events").write_text("max 3\noom 2\noom_kill 2\n")
    assert [group.killed(), group.killed()] == [True, False]


MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
"""
OWN = "4:memory:/docker/abc/inner\n2:cpu,cpuacct:/\n0::/user.slice/session.scope\n"


def test_our_own_groups_are_found_below_what_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/proc/self/cgroup": OWN, "/proc/self/mountinfo": MOUNTS.lstrip()}
    monkeypatch.setattr(cgroups, "read_text", lambda file: files[file])
    assert {name: str(folder) for name, folder in hierarchies().items()} == {
        "memory": "/sys/fs/cgroup/memory/inner",
        "cpu": "/sys/fs/cgroup/cpu",
        "cpuacct": "/sys/fs/cgroup/cpu",
        "": "/sys/fs/cgroup/unified/user.slice/session.scope",
    }
