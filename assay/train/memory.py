"""How much memory a device has, and how much of it this process takes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

GIB = 2**30


class DeviceMemory:
    """Bytes on a GPU that torch holds; on the CPU, the resident memory of this process."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_gpu = device.type == "cuda"

    @property
    def free(self) -> int:
        """Bytes that this process may take beside what it has."""
        if self.on_gpu:
            cached = torch.cuda.memory_reserved(self.device) - self.used
            return int(torch.cuda.mem_get_info(self.device)[0]) + cached
        return _kilobytes(Path("/proc/meminfo"), "MemAvailable")

    @property
    def used(self) -> int:
        """Bytes that this process has."""
        if self.on_gpu:
            return int(torch.cuda.memory_allocated(self.device))
        return _kilobytes(Path("/proc/self/status"), "VmRSS")

    @property
    def peak(self) -> int:
        """The most bytes that it had since `reset_peak`, or since its start where the system does
        not allow a reset.
        """
        if self.on_gpu:
            return int(torch.cuda.max_memory_allocated(self.device))
        return _kilobytes(Path("/proc/self/status"), "VmHWM")

    def reset_peak(self) -> None:
        """Start to measure `peak` from here."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")


def in_words(count: int) -> str:
    """`3.2 GiB`, `41 MiB`."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"


def _kilobytes(file: Path, name: str) -> int:
    lines = (line.split() for line in file.read_text().splitlines())
    return next(int(words[1]) << 10 for words in lines if words[0] == f"{name}:")
