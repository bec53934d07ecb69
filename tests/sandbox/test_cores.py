"""How many processors may be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.sandbox import cores


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


@pytest.mark.parametrize(
    ("membership", "expected"),
    [
        ("0::/pod/box\n", [1.5, 4.0]),
        ("0::/pod\n", [4.0]),
        ("0::/elsewhere\n", []),
        ("3:cpu,cpuacct:/box\n1:name=systemd:/x\n", [2.0]),
        ("5:memory:/box\n", []),
        ("", []),
    ],
)
def test_every_group_above_a_process_may_limit_it(
    tmp_path: Path, membership: str, expected: list[float]
) -> None:
    group(tmp_path / "pod", cpu_max="400000 100000\n")
    group(tmp_path / "pod" / "box", cpu_max="150000 100000\n")
    group(tmp_path / "cpu" / "box", cpu_cfs_quota_us="100000\n", cpu_cfs_period_us="50000\n")
    group(tmp_path / "cpu", cpu_cfs_quota_us="-1\n", cpu_cfs_period_us="100000\n")
    group(tmp_path, cpu_max="max 100000\n")
    assert list(cores._quotas(tmp_path, membership)) == expected


def test_the_least_counts_and_one_is_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "GROUPS", tmp_path)
    assert cores.cores() == len(os.sched_getaffinity(0))
    group(tmp_path, cpu_max="50000 100000\n")
    mine = Path("/proc/self/cgroup").read_text()
    if any(line.startswith("0::") for line in mine.splitlines()):
        assert cores.cores() == 1
