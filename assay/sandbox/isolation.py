"""What of the walls this machine allows, found by trying."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass

from assay.errors import SandboxError
from assay.sandbox.kernel import said

ACCEPTABLE = ("A", "B", "C")


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the walls are on this machine, found by trying."""

    tier: str
    """A to E; A, B and C are sound, and A hides all else; D lets programs read files, E hardly
    holds."""
    enforced: tuple[str, ...]
    """Walls that stood when attacked."""
    missing: tuple[str, ...]
    """Walls that could not be had, each with the reason."""
    advice: str
    """The one thing to do about it; empty where nothing is missing that matters, or nothing would
    help."""
    walls: tuple[str, ...] = ()
    """Walls that can be put up here, and so are required of every zygote."""

    @property
    def sound(self) -> bool:
        """Whether verdicts on untrusted programs can be believed here without the user's say."""
        return self.tier in ACCEPTABLE


@functools.cache
def probe_isolation() -> Isolation:
    """Try every wall in a child of its own and attack it there; the answer is kept for this
    process.

    Raises SandboxError where no process can be started.
    """
    command = [sys.executable, "-I", "-m", "assay.sandbox.attack"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True, cwd="/"
        )
        return graded(**json.loads(done.stdout))
    except OSError as error:
        raise SandboxError(f"the walls cannot be tried: {error}") from None
    except (subprocess.SubprocessError, ValueError) as error:
        return Isolation(
            "E", (), (f"everything: the probe did not finish ({type(error).__name__})",), WEAK["E"]
        )


def graded(walls: Collection[str], stood: list[str], failed: dict[str, str]) -> Isolation:
    """The tier of `walls` that were put up, of which some `stood` when attacked; what `failed`,
    with the reasons.
    """
    if failed.keys() - FILES - HARMLESS:
        tier = "E"
    elif failed.keys() & FILES:
        tier = "D"
    else:
        tier = "A" if "namespaces" in walls else "B" if "user" in walls else "C"
    missing = tuple(f"{wall}: {reason}" for wall, reason in failed.items())
    return Isolation(tier, tuple(stood), missing, advice(tier, failed.keys()), tuple(walls))


FILES = {"reading files", "writing files"}
HARMLESS = {"namespaces", "user", "landlock", "group", "looking at files", "seeing processes"}
"""What a sound judge can do without, as long as no other attack gets through."""
WEAK = {
    "D": (
        "landlock is missing, so programs could read your files: use Linux 5.13 or newer with"
        " landlock in its lsm="
    ),
    "E": (
        "system call filters are missing: run on Linux (x86-64 or aarch64) outside gVisor or proot"
    ),
}
SWITCHES = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
)
"""Settings of the kernel that keep ordinary users from namespaces: name, the value that does, a
better one."""


def advice(tier: str, failed: Collection[str]) -> str:
    """The one thing that would improve the walls most; empty where nothing would, or nothing is
    known.
    """
    if tier in WEAK:
        return WEAK[tier]
    if "namespaces" in failed:
        for name, closed, better in SWITCHES:
            if said(f"/proc/sys/{name.replace('.', '/')}").strip() == closed:
                return f"for tier A: sudo sysctl {name}={better}"
        if "\nSeccomp:\t2" in said("/proc/self/status"):
            return (
                "a filter around us refuses namespaces, as Docker's does; for tier A: "
                "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
            )
    if "group" in failed and os.getuid() != 0 and shutil.which("systemd-run"):
        return (
            "for a limit on all memory together: systemd-run --user --scope -p Delegate=yes"
            " assay ..."
        )
    return ""
