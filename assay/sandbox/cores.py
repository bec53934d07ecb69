"""How many CPU cores this process may use: by its affinity and the quota of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from assay.sandbox.kernel import read_text

GROUPS = Path("/sys/fs/cgroup")


def cores() -> int:
    """Whole cores, at least one: a container's quota of 1.5 on a machine of 64 is one."""
    quotas = _quotas(GROUPS, read_text("/proc/self/cgroup"))
    return max(1, min([len(os.sched_getaffinity(0)), *map(int, quotas)]))


def _quotas(root: Path, membership: str) -> Iterator[float]:
    """The cores that each control group above this process grants, where it limits them (v1 and
    v2).
    """
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        folder = base / path.lstrip("/")
        while folder.is_relative_to(base):
            version_1 = read_text(folder / "cpu.cfs_quota_us") + read_text(
                folder / "cpu.cfs_period_us"
            )
            quota = (read_text(folder / "cpu.max") or version_1).split()
            if len(quota) == 2 and quota[0].isdigit():
                yield int(quota[0]) / int(quota[1])
            if folder == base:
                break
            folder = folder.parent
