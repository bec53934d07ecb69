"""How many CPU cores this process may use: by its affinity and the quota of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.sandbox.cgroups import hierarchies
from assay.sandbox.kernel import read_text


def cores() -> int:
    """Whole cores, at least one: a container's quota of 1.5 on a machine of 64 is one."""
    return max(1, min([len(os.sched_getaffinity(0)), *map(int, quotas(hierarchies()))]))


def quotas(groups: Mapping[str, Path]) -> Iterator[float]:
    """The cores that each control group above this process grants, where it limits them (v1 and
    v2). `groups`: its own by controller, as `hierarchies` gives them.
    """
    for group in {groups[name] for name in ("cpu", "") if name in groups}:
        for folder in (group, *group.parents):
            v1 = [read_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
            quota = (read_text(folder / "cpu.max") or "".join(v1)).split()
            if len(quota) == 2 and quota[0].isdigit():
                yield int(quota[0]) / int(quota[1])
