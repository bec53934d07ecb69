"""Examines this machine: sandbox, versions, tools and accelerators. Imports nothing heavy."""

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.table import Table

from assay.errors import DataError
from assay.languages import language_named, languages
from assay.sandbox.boxes import describe_boxes
from assay.sandbox.cores import cores
from assay.sandbox.isolation import Isolation, probe_isolation
from assay.sync import run_sync

PACKAGES = ("assay", "torch", "transformers", "peft", "datasets", "vllm")
TOOLS = ("iverilog", "yosys", "docker", "podman", "apptainer", "nvidia-smi")


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine offers."""

    isolation: Isolation
    """The sandbox, as its own attacks found it."""
    boxes: str
    """What boxes are here, in which repositories are changed and tested."""
    python: str
    system: str
    """Kernel and architecture."""
    cores: int
    """Cores this process may use: the judge's slots unless set."""
    memory_gb: float
    packages: dict[str, str | None]
    """Versions; None where a package is absent."""
    tools: dict[str, str | None]
    """Paths of other tools; None where absent."""
    languages: dict[str, str]
    """Of each language of programs the versions of its tools, or what to install; then how its
    self-test ended."""
    accelerators: int
    """NVIDIA devices."""


def examine(self_test: bool = False) -> Machine:
    """Examine this machine, in well under a second; with `self_test`, a program of each language
    says hello, which takes some seconds.
    """
    tools = {name: tools_of(name) for name in languages if language_named(name).is_code}
    isolation = probe_isolation()
    for name, answer in hellos(*tools).items() if self_test else ():
        tools[name] += f"; {answer}"
    return Machine(
        isolation=isolation,
        boxes=run_sync(describe_boxes(isolation.walls)),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cores=cores(),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        packages={name: version(name) for name in PACKAGES},
        tools={name: shutil.which(name) for name in TOOLS},
        languages=tools,
        accelerators=len(list(Path("/dev").glob("nvidia[0-9]*"))),
    )


def version(package: str) -> str | None:
    """The version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def tools_of(language: str) -> str:
    """The versions of a language's tools, or what to install."""
    try:
        versions = language_named(language).versions()
        return ", ".join(versions) or f"Python {platform.python_version()}"
    except DataError as error:
        return str(error)


def hellos(*names: str) -> dict[str, str]:
    """The CPU time in which a program of each language says hello in the sandbox, or why it does
    not. Raises SandboxError.
    """
    from assay.judge import Job, judge_all
    from assay.types import Exchange, Task, Verdict

    jobs = []
    for name in names:
        task = Task(name, "", (Exchange("", "hello"),), "", language=name)
        jobs.append(Job(task, language_named(name).hello))
    ended = judge_all(jobs, slots=1, allow_weak=True, skip_refused=True)
    return {
        name: f"hello in {1000 * execution.cpu_seconds:.0f} ms of CPU time"
        if execution.verdict is Verdict.PASS
        else f"{execution.verdict}: {execution.detail}"
        for name, execution in zip(names, ended, strict=True)
    }


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
    table.add_row("boxes", machine.boxes)
    if walls.advice:
        table.add_row("advice", walls.advice)
    table.add_row("python", machine.python)
    table.add_row("system", f"{machine.system}, {machine.cores} cores, {machine.memory_gb:g} GB")
    table.add_row("accelerators", str(machine.accelerators))
    parts: dict[str, Mapping[str, str | None]] = {
        "packages": machine.packages, "languages": machine.languages, "tools": machine.tools,
    }  # fmt: skip
    for title, rows in parts.items():
        table.add_row()
        table.add_row(f"[bold]{title}[/]")
        for name, value in rows.items():
            table.add_row(name, value or "absent")
    return table
