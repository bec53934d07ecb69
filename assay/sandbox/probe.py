"""What of the walls this machine allows, found by trying."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from assay.errors import SandboxError

ACCEPTABLE = ("A", "B", "C")


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the walls are on this machine, found by trying."""

    tier: str
    """A to E; A, B and C are sound, D lets programs read files, E hardly holds."""
    enforced: tuple[str, ...]
    """Walls that stood when attacked."""
    missing: tuple[str, ...]
    """Walls that could not be had, each with the reason."""
    advice: str
    """What to do about it; empty where nothing is missing that matters."""

    @property
    def sound(self) -> bool:
        """Whether verdicts on untrusted programs can be believed here without the user's say."""
        return self.tier in ACCEPTABLE


@functools.cache
def probe() -> Isolation:
    """Try every wall in a child of its own and attack it there; the answer is kept for this process.

    Raises SandboxError where no process can be started.
    """
    command = [sys.executable, "-I", "-m", "assay.sandbox.attack"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd="/")
        found = json.loads(done.stdout)
    except OSError as error:
        raise SandboxError(f"the walls cannot be tried: {error}") from None
    except (subprocess.SubprocessError, ValueError) as error:
        return Isolation("E", (), (f"everything: the probe did not finish ({type(error).__name__})",), ADVICE["E"])
    return graded(found["stood"], found["failed"], root=os.getuid() == 0)


def graded(stood: list[str], failed: dict[str, str], root: bool) -> Isolation:
    """The tier that walls amount to: `stood` when attacked, or `failed` with a reason."""
    files = {"reading files", "writing files"}
    if failed.keys() - files - {"another user"}:
        tier = "E"
    elif failed.keys() & files:
        tier = "D"
    else:
        tier = "B" if root and "another user" in stood else "C"
    missing = tuple(f"{wall}: {reason}" for wall, reason in failed.items())
    return Isolation(tier, tuple(stood), missing, ADVICE[tier])


ADVICE = {
    "B": "",
    "C": "",
    "D": "landlock is missing, so programs could read your files: use Linux 5.13 or newer with landlock in its lsm=",
    "E": "system call filters are missing: run on Linux (x86-64 or aarch64) outside gVisor or proot",
}
