"""Finds out which walls this machine allows, by putting them up and attacking them."""

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
from assay.sandbox.kernel import read_text

ACCEPTABLE = ("A", "B", "C")


@dataclass(frozen=True, slots=True)
class Isolation:
    """The sandbox on this machine."""

    tier: str
    """A to E. A, B and C are sound, and A also hides the host; D lets programs read files; E hardly
    isolates."""
    enforced: tuple[str, ...]
    """Attacks that failed."""
    missing: tuple[str, ...]
    """Walls that are not available, and attacks that got through, each with the reason."""
    advice: str
    """The one thing to do about it; empty where nothing is missing that matters, or nothing
    helps."""
    walls: tuple[str, ...] = ()
    """Walls that are available here; every zygote must put them up."""

    @property
    def sound(self) -> bool:
        """Whether untrusted programs may run here without `allow_weak`."""
        return self.tier in ACCEPTABLE


def probe_isolation() -> Isolation:
    """Put up every wall in a child process and attack it there. The answer is cached, once the
    probe has finished. Raises SandboxError where no process can be started.
    """
    try:
        return _probe(sys.executable)
    except OSError as error:
        raise SandboxError(f"the sandbox cannot be probed: {error}") from None
    except (subprocess.SubprocessError, ValueError) as error:
        written = str(getattr(error, "stderr", None) or "")
        lines = [type(error).__name__, *filter(str.strip, written.split("\n"))]
        why = f"the probe did not finish ({lines[-1]})"
        advised = NOT_INSTALLED if "No module named 'assay'" in written else why
        return Isolation("E", (), (f"everything: {why}",), advised)


@functools.cache
def _probe(python: str) -> Isolation:
    """As `probe_isolation`. Raises also SubprocessError, ValueError."""
    command = [python, "-I", "-m", "assay.sandbox.attack"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd="/")
    return graded(**json.loads(done.stdout))


def graded(walls: Collection[str], stood: list[str], failed: dict[str, str]) -> Isolation:
    """The tier of the `walls` that were put up.

    stood: attacks that failed. failed: attacks that got through and walls that are missing, with
    reasons.
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
"""What may be missing as long as no other attack gets through."""
WEAK = {
    "D": (
        "landlock is missing, so programs could read your files: use Linux 5.13 or newer with"
        " landlock in its lsm="
    ),
    "E": (
        "system call filters are missing: run on Linux (x86-64 or aarch64) outside gVisor or proot"
    ),
}
NOT_INSTALLED = (
    "`python -I`, which starts the sandbox, cannot import assay: install it into this Python"
    " (pip install -e .); PYTHONPATH and the current folder do not count there"
)
SWITCHES = (
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
)
"""Kernel settings that keep ordinary users from namespaces: name, the value that does, a better
one."""


def advice(tier: str, failed: Collection[str]) -> str:
    """The one thing that would improve the sandbox most; empty where nothing would."""
    if tier in WEAK:
        return WEAK[tier]
    if "namespaces" in failed:
        for name, closed, better in SWITCHES:
            if read_text(f"/proc/sys/{name.replace('.', '/')}").strip() == closed:
                return f"for tier A: sudo sysctl {name}={better}"
        if "\nSeccomp:\t2" in read_text("/proc/self/status"):
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
