"""How much of the machine one program may use."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.errors import SettingsError

MIB = 1024 * 1024
LONGEST = 10
"""How many times the usual time a task may have whose reference is slow."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one execution. Raises SettingsError where one is not positive."""

    cpu_seconds: float = 4.0
    """CPU time of the candidate over all its calls, its import included: the limit that decides
    TIMEOUT."""
    wall_seconds: float = 20.0
    """Wall time of the whole execution, for programs that sleep or block; waiting for a core is not
    counted."""
    memory_mb: int = 512
    """Private writable memory of the candidate in MiB (RLIMIT_DATA)."""
    stack_mb: int = 64
    """Stack of the candidate's main thread in MiB."""
    output_kb: int = 64
    """Printed text that is kept, in KiB; what comes after is dropped."""
    printed_mb: int = 10
    """Printed text in MiB after which the program is stopped."""
    reply_mb: int = 16
    """Size in MiB that one returned value may have on the wire."""
    open_files: int = 32
    """File descriptors the candidate may hold."""

    def scaled(self, factor: float) -> Limits:
        """The same with `factor` times the time."""
        return replace(
            self, cpu_seconds=self.cpu_seconds * factor, wall_seconds=self.wall_seconds * factor
        )

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise SettingsError(f"limits.{name} is {getattr(self, name)}; it must be above 0")
