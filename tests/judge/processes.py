"""What runs, as /proc tells: the processes behind a judge."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

from assay.sandbox.isolation import probe_isolation


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def zygotes(supervisor: int) -> list[int]:
    """Where a zygote has namespaces of its own, someone waits for it outside of them."""
    started = children(supervisor)
    return (
        [inner for outer in started for inner in children(outer)]
        if "namespaces" in probe_isolation().walls
        else started
    )


def alive(pids: list[int]) -> list[int]:
    def runs(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    return [pid for pid in pids if runs(pid)]


def named(*names: str) -> set[int]:
    """The processes of the machine that have one of these names."""
    found = set[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if (folder / "comm").read_text().strip() in names:
                found.add(int(folder.name))
    return found


def staying(names: Collection[str], before: set[int], seconds: float = 20) -> set[int]:
    """The processes of these names that began since `before` and do not end in time. Those of
    another test, which runs beside this one, end.
    """
    end, stay = time.monotonic() + seconds, named(*names) - before
    while stay and time.monotonic() < end:
        time.sleep(0.2)
        stay &= named(*names)
    return stay


def gone(pids: list[int], seconds: float = 3.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pids)


async def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
