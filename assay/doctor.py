"""Examines this machine: sandbox, versions, tools and accelerators. Imports nothing heavy."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.table import Table

from assay.sandbox.cores import cores
from assay.sandbox.isolation import Isolation, probe_isolation

PACKAGES = ("assay", "torch", "transformers", "peft", "datasets", "vllm")
TOOLS = ("iverilog", "yosys", "g++", "node", "java", "go", "rustc", "nvidia-smi")


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine offers."""

    isolation: Isolation
    """The sandbox, as its own attacks found it."""
    python: str
    system: str
    """Kernel and architecture."""
    cores: int
    """Cores this process may use: the judge's slots unless set."""
    memory_gb: float
    packages: dict[str, str | None]
    """Versions; None where a package is absent."""
    tools: dict[str, str | None]
    """Paths of other languages' tools; None where absent."""
    accelerators: int
    """NVIDIA devices."""


def examine() -> Machine:
    """Examine this machine, in well under a second."""
    return Machine(
        isolation=probe_isolation(),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cores=cores(),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        packages={name: version(name) for name in PACKAGES},
        tools={name: shutil.which(name) for name in TOOLS},
        accelerators=len(list(Path("/dev").glob("nvidia[0-9]*"))),
    )


def version(package: str) -> str | None:
    """The version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def as_dict(machine: Machine) -> dict[str, Any]:
    """As plain data, for JSON."""
    return asdict(machine) | {"sound": machine.isolation.sound}


def render(machine: Machine) -> Table:
    """As a table of two columns."""
    walls = machine.isolation
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("isolation", f"tier {walls.tier}, {'sound' if walls.sound else 'NOT sound'}")
    table.add_row("walls", ", ".join(walls.walls) or "none")
    table.add_row("attacks that failed", ", ".join(walls.enforced) or "none")
    for gap in walls.missing:
        table.add_row("missing", gap)
    if walls.advice:
        table.add_row("advice", walls.advice)
    table.add_row("python", machine.python)
    table.add_row("system", f"{machine.system}, {machine.cores} cores, {machine.memory_gb:g} GB")
    table.add_row("accelerators", str(machine.accelerators))
    for name, value in {**machine.packages, **machine.tools}.items():
        table.add_row(name, value or "absent")
    return table
