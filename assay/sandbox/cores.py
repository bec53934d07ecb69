"""How many processors this process may use: by its affinity, and by the quota of its control
groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from assay.sandbox.kernel import said

GROUPS = Path("/sys/fs/cgroup")


def cores() -> int:
    """Whole processors, at least one: a container's quota of 1.5 on a machine of 64 is one."""
    quotas = _quotas(GROUPS, said("/proc/self/cgroup"))
    return max(1, min([len(os.sched_getaffinity(0)), *map(int, quotas)]))


def _quotas(root: Path, membership: str) -> Iterator[float]:
    """The processors that each group above this process grants, where it limits them (v1 and
    v2).
    """
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        folder = base / path.lstrip("/")
        while folder.is_relative_to(base):
            version_1 = said(folder / "cpu.cfs_quota_us") + said(folder / "cpu.cfs_period_us")
            granted = (said(folder / "cpu.max") or version_1).split()
            if len(granted) == 2 and granted[0].isdigit():
                yield int(granted[0]) / int(granted[1])
            if folder == base:
                break
            folder = folder.parent
