"""Watches what the processes of a box use together: their own memory, what they share, sockets,
and the files of a box that has no file system of its own.

No limit of one process bounds that, and an ordinary user often has no control group. The first
process of the box looks, by /proc; where a container lets it mount none, nothing is watched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from assay.sandbox import kernel, work_dir
from assay.sandbox.kernel import MIB, PAGE, read_text
from assay.sandbox.program import Ended

LOOK_SECONDS, SHARE = 0.02, 10
"""How often to look; no more of the time than one in so many parts, unless processes become many
more or are half as many as there may be."""
MANY = 16
"""Processes more than at the last look, as those of a fork bomb."""
SOCKET_MB, LARGE_SOCKET_MB = 0.4, 4.0
"""What a socket may hold that nobody reads, with twice the kernel's usual buffer; and one of TCP,
whose buffers grow unless that is bounded."""
IN_USE = re.compile(r"^(sockets: used|TCP6?: inuse) (\d+)", re.MULTILINE)
KCMP, KCMP_VM = (312, 272), 1
IPC_RMID, SHM_STAT, SHM_INFO = 0, 13, 14
STATE_BYTES = 256
"""Room for the kernel's `struct shmid_ds`."""


class SharedSegments(ctypes.Structure):
    """The kernel's `struct shm_info`: System V's shared memory of a namespace, in pages."""

    _fields_ = (("used_ids", ctypes.c_int), *((name, ctypes.c_ulong) for name in (
        "total", "resident", "swapped", "attempts", "successes")))  # fmt: skip


class Use(NamedTuple):
    """What some processes use, in MiB, and how many threads they have."""

    private: float
    shared: float
    """Of memory that several may map, and of files in memory that they map."""
    threads: int = 0


class BoxFolder:
    """What a folder that commands write to holds beyond what it holds now, and on its file system.

    Most looks ask for the file system alone, on which others write too. threads: how many all
    commands may have, which no limit of a user says who runs other things too.
    """

    def __init__(self, path: str, size_mb: int, files: int, threads: int) -> None:
        self.threads = threads
        self._path, self._size, self._files = path, size_mb * MIB, files
        self._used_there, self._files_there = in_use(path)
        self._used, self._files_inside = work_dir.contents(path, sys.maxsize)

    def is_overfull(self, pids: Sequence[int]) -> bool:
        """Whether it holds too much, or hides what it holds; with what these processes removed and
        still hold.
        """
        used, files = in_use(self._path)
        if used - self._used_there <= self._size and files - self._files_there <= self._files:
            return False
        most = self._used + self._size, self._files_inside + self._files
        return work_dir.is_overfull(self._path, pids, *most, self._size)


class BoxWatch:
    """What a box uses, which may be `most_mb` beside shared memory of `shared_mb`, which counts as
    files do. folder: where commands write to; None where a file system of its own bounds that, and
    all that its first process sees belongs to it. tcp_mb: what a socket of TCP may hold.
    """

    def __init__(
        self, most_mb: float, shared_mb: float, folder: BoxFolder | None, tcp_mb: float
    ) -> None:
        self._most_mb, self._shared_mb, self._folder = most_mb, shared_mb, folder
        self._tcp_mb = tcp_mb
        self.next_look = 0.0
        self._processes = 0
        self.peak_mb = 0.0
        """The most that was counted exactly; 0 where what is used was never near the limit; or that
        an orphan had, which has ended."""
        self.orphans_cpu_seconds = 0.0

    def reap(self, awaited: Collection[int]) -> None:
        """Reap the orphans of a command that have ended, each of which would count as a process of
        it. awaited: the children of the first process for which it waits itself.
        """
        for end in kernel.reap_orphans(awaited):
            self.orphans_cpu_seconds += end.cpu_seconds
            self.peak_mb = max(self.peak_mb, end.memory_mb)

    def excess(self) -> tuple[Ended, str] | None:
        """How a command ends that takes too much, and of what. Call it at `next_look` or later."""
        started = time.monotonic()
        pids = self._pids()
        end = self._excess_of(pids)
        now = time.monotonic()
        is_near = self._folder and len(pids) > self._folder.threads // 2
        share = 0 if is_near or len(pids) - self._processes > MANY else SHARE
        self.next_look = now + max(LOOK_SECONDS, share * (now - started))
        self._processes = len(pids)
        return end

    def _excess_of(self, pids: list[int]) -> tuple[Ended, str] | None:
        most = self._folder.threads if self._folder else sys.maxsize
        use = rough_use(pids) if len(pids) <= most else Use(0.0, 0.0, len(pids))
        used_mb = self._total(use)
        if used_mb > self._most_mb:  # what forks share was counted for each of them
            used_mb = self._total(exact_use(pids))
            self.peak_mb = max(self.peak_mb, used_mb)
        if used_mb > self._most_mb:
            return Ended.MEMORY, f"had {used_mb:.0f} MiB in use, all processes together"
        if use.threads > most:
            return Ended.CRASHED, f"had more than {most} processes and threads"
        if self._folder and self._folder.is_overfull(pids):
            return Ended.MEMORY, "filled its folder"
        return None

    def _total(self, use: Use) -> float:
        shared = use.shared
        more_mb = 0.0
        if self._folder is None:
            shared, more_mb = max(shared, segments_mb()), sockets_mb(self._tcp_mb)
        return use.private + more_mb + max(0.0, shared - self._shared_mb)

    def _pids(self) -> list[int]:
        """The processes of the box but the first; one more than it may have where it has more."""
        if self._folder is None:
            with contextlib.suppress(OSError):
                return namespace_pids()
            return []
        pids = [*kernel.children()]
        for pid in pids:
            if len(pids) > self._folder.threads:
                break
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    pids += map(int, read_text(f"/proc/{pid}/task/{thread}/children").split())
        return pids


def namespace_pids() -> list[int]:
    """The processes of this namespace but the first. Raises OSError where there is no /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def in_use(path: str) -> tuple[int, int]:
    """The bytes and the number of all files on a path's file system."""
    there = os.statvfs(path)
    return (there.f_blocks - there.f_bfree) * there.f_frsize, there.f_files - there.f_ffree


def rough_use(pids: Iterable[int]) -> Use:
    """What they use, with what several share as often as there are processes that do."""
    uses = [kernel.memory_of(pid) for pid in pids]
    private = sum(kernel.private_kb(memory) for memory in uses)
    shared = sum(memory.get("RssShmem", 0) for memory in uses)
    threads = sum(memory.get("Threads", 0) for memory in uses)
    return Use(private / 1024, shared / 1024, threads)


def exact_use(pids: Iterable[int]) -> Use:
    """As `rough_use`, with what several share once, as far as the kernel shows that."""
    private = shared = 0
    for pid in pids:
        memory = kernel.memory_of(pid)
        if is_same_memory(pid, memory.get("PPid", 0)):
            continue
        lines = read_text(f"/proc/{pid}/smaps_rollup").splitlines()
        exact = {fields[0]: int(fields[1]) for fields in map(str.split, lines[1:])}
        mine = kernel.private_kb(memory)
        if "Pss_Anon:" in exact:
            mine += exact["Pss_Anon:"] - memory.get("RssAnon", 0)
            mine += exact.get("SwapPss:", 0) - memory.get("VmSwap", 0)
        private += mine
        shared += exact.get("Pss_Shmem:", memory.get("RssShmem", 0))
    return Use(private / 1024, shared / 1024)


def is_same_memory(pid: int, parent: int) -> bool:
    """Whether a process still has its parent's memory, as between vfork and exec."""
    at = os.uname().machine == "aarch64"
    return int(kernel.libc.syscall(KCMP[at], pid, parent, KCMP_VM, 0, 0)) == 0


def segments_mb() -> float:
    """MiB of System V's shared memory in this namespace, mapped or not."""
    segments = SharedSegments()
    if kernel.libc.shmctl(0, SHM_INFO, ctypes.byref(segments)) < 0:
        return 0.0
    return float((segments.resident + segments.swapped) * PAGE / MIB)


def remove_segments() -> None:
    """Remove System V's shared memory of this namespace, which outlives who made it."""
    shmctl, state = kernel.libc.shmctl, ctypes.create_string_buffer(STATE_BYTES)
    for index in range(shmctl(0, SHM_INFO, state) + 1):
        if (segment := shmctl(index, SHM_STAT, state)) >= 0:
            shmctl(segment, IPC_RMID, None)


def sockets_mb(tcp_mb: float) -> float:
    """MiB that the sockets of this network namespace may hold, those of TCP `tcp_mb` beside, also
    where they are closed and have not sent all.
    """
    texts = (read_text(f"/proc/self/net/{name}") for name in ("sockstat", "sockstat6"))
    counts = [each for text in texts for each in IN_USE.findall(text)]
    return sum(int(count) * (tcp_mb if "TCP" in kind else SOCKET_MB) for kind, count in counts)
