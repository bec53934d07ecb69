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
    ("own", "expected"),
    [
        ({"": "pod/box"}, [1.5, 4.0]),
        ({"": "pod"}, [4.0]),
        ({"": "elsewhere"}, []),
        ({"cpu": "cpu/box", "cpuacct": "cpu/box", "name=systemd": "x"}, [2.0]),
        ({"memory": "cpu/box"}, []),
        ({}, []),
    ],
)
def test_every_group_above_a_process_may_limit_it(
    tmp_path: Path, own: dict[str, str], expected: list[float]
) -> None:
    group(tmp_path / "pod", cpu_max="400000 100000\n")
    group(tmp_path / "pod" / "box", cpu_max="150000 100000\n")
    group(tmp_path / "cpu" / "box", cpu_cfs_quota_us="100000\n", cpu_cfs_period_us="50000\n")
    group(tmp_path / "cpu", cpu_cfs_quota_us="-1\n", cpu_cfs_period_us="100000\n")
    group(tmp_path, cpu_max="max 100000\n")
    assert list(cores.quotas({name: tmp_path / path for name, path in own.items()})) == expected


def test_the_least_counts_and_one_is_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "hierarchies", lambda: {"": tmp_path})
    assert cores.cores() == len(os.sched_getaffinity(0))
    group(tmp_path, cpu_max="50000 100000\n")
    assert cores.cores() == 1
