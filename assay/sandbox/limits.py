"""Limits of one run of a program."""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.errors import SettingsError

LONGEST = 10
"""The largest factor on the time limits, for tasks whose reference is slow."""
INT_DIGITS = 50_000
"""Most digits of a whole number that is read or shown as text, as in LiveCodeBench. Python's own
limit is 4,300; the time is quadratic, and 10 ms for so many. A program may set another."""
LARGE = 5
"""How many times the memory, and the time of all steps together, a task of large inputs has."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Raises SettingsError where a limit is not above 0."""

    cpu_seconds: float = 4.0
    """CPU time of the program, its import included: decides TIMEOUT. Each call with given arguments
    has it to itself, and all together have LONGEST times it."""
    wall_seconds: float = 20.0
    """Wall time, for programs that sleep or block; of calls as `cpu_seconds`. Waiting for a core
    does not count."""
    memory_mb: int = 512
    """Private writable memory of the program in MiB (RLIMIT_DATA). A program in C, C++, Java,
    Rust or Python may reserve more for stacks: what it uses is limited."""
    stack_mb: int = 64
    """Stack of the program's main thread in MiB; compiled programs may use half of `memory_mb`."""
    output_kb: int = 64
    """Printed text to keep, in KiB; the rest is dropped."""
    printed_mb: int = 10
    """A program that prints more MiB than this is stopped."""
    reply_mb: int = 16
    """Largest returned value in MiB, as JSON."""
    open_files: int = 32
    """File descriptors that the program may hold."""

    def scaled(self, factor: float, share: int = 1) -> Limits:
        """The same limits with `factor` times the CPU and wall time, `share` times the memory."""
        if factor == share == 1:
            return self
        cpu_seconds, wall_seconds = self.cpu_seconds * factor, self.wall_seconds * factor
        memory_mb = self.memory_mb * share
        return replace(
            self, cpu_seconds=cpu_seconds, wall_seconds=wall_seconds, memory_mb=memory_mb
        )

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise SettingsError(f"limits.{name} is {getattr(self, name)}; it must be above 0")
