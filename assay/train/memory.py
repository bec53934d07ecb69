"""How much memory a device has, and how much of it this process takes."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from assay.config.sections import RunSettings
from assay.policy.forward import unwrap_model

GIB = 2**30
LEAST_TOKENS, MOST_TOKENS = 1024, 16_384
"""Bounds of the default size of a micro-batch, which is a multiple of the first."""
GPU_SHARE = 4
"""One over the share of a GPU's memory that activations get by default."""


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
    def total(self) -> int:
        """Bytes of the device."""
        if self.on_gpu:
            return int(torch.cuda.mem_get_info(self.device)[1])
        return _kilobytes(Path("/proc/meminfo"), "MemTotal")

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


def micro_batch_tokens(settings: RunSettings, model: Any, device: torch.device) -> int:
    """`learner.micro_batch_tokens`, or by default how many tokens' activations fit into a sixteenth
    of a processor's memory, or a quarter of a GPU's.
    """
    config = unwrap_model(model).config
    share = DeviceMemory(device).total // (GPU_SHARE if device.type == "cuda" else 16)
    return micro_batch_tokens_in(share, settings, config, model.dtype)


def micro_batch_tokens_in(
    memory: int, settings: RunSettings, config: Any, dtype: torch.dtype
) -> int:
    """The same for a share of so many bytes.

    A layer keeps some 8 vectors of its hidden size, and 4 of its inner size; with gradient
    checkpointing one, or none where that is offloaded, and one layer at a time keeps all.
    """
    if settings.learner.micro_batch_tokens:
        return settings.learner.micro_batch_tokens
    checkpointed, config = settings.policy.gradient_checkpointing, config.get_text_config()
    hidden, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    inside = 8 * hidden + 4 * (inner if isinstance(inner, int) else max(inner))
    left = hidden if checkpointed == "offload" else layers * hidden
    values = left + inside if checkpointed else layers * inside
    fitting = memory // (values * dtype.itemsize)
    return int(min(MOST_TOKENS, max(LEAST_TOKENS, fitting // LEAST_TOKENS * LEAST_TOKENS)))


def in_words(count: int) -> str:
    """`3.2 GiB`, `41 MiB`."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"


def _kilobytes(file: Path, name: str) -> int:
    lines = (line.split() for line in file.read_text().splitlines())
    return next(int(words[1]) << 10 for words in lines if words[0] == f"{name}:")
