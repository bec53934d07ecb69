"""What the evidence amounts to: one pure function from a worker's report and a leaf's end to an
execution.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Any

from assay.sandbox.limits import Limits
from assay.types import Execution, Verdict

FAILURES = {
    failure.value: failure
    for failure in (Verdict.FORBIDDEN, Verdict.OUTPUT, Verdict.MEMORY, Verdict.COMPILE,
        Verdict.NO_CODE, Verdict.ERROR,
                    Verdict.WRONG)
}  # fmt: skip
"""All that a worker's report can say of a program, but that a check held."""
WALL = "the check cannot be run across the wall: "
SETUP = "the task's setup fails: "
THE_TASKS_DOING = (WALL, SETUP)
"""Begin the detail of an INFRA that is no sign of a machine that fails."""
KILLED = "killed by SIGKILL"
NEARLY = 0.8
"""A leaf killed by nobody we know, with this share of its memory in use, ran out of memory."""
LIBRARIES_MB = 512
"""Memory in use beyond the limits that files of libraries may account for; more got around
RLIMIT_DATA."""


@dataclass(slots=True)
class RunRecord:
    """What is known of an execution; all of it once that has ended."""

    report: dict[str, Any] | None = None
    """What the worker wrote; None where it died first."""
    stopped: str = ""
    """Why the supervisor ended it early: `cpu`, `wall`, `printed`, `frozen` (stopped by a signal),
    or empty."""
    alive: bool = False
    """Whether the leaf lived when the report came."""
    status: int = 0
    """The leaf's status as of wait(2)."""
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
    wall_seconds: float = 0.0
    printed: bytes | bytearray = field(default_factory=bytearray)
    before: str = ""
    """How the machine failed the attempt before this one; empty for the first."""
    killed_for_memory: bool = False
    """Whether the kernel has just killed in the slot's group for want of memory."""


def decide(seen: RunRecord, limits: Limits) -> Execution:
    """The execution; its `total` counts only checks that were run."""
    verdict, detail = judged(seen, limits)
    ended = [how for how, _ in seen.report["checks"]] if seen.report else []
    written = seen.printed.decode("utf-8", "replace")
    output = (seen.report or {}).get("output")
    return Execution(
        verdict=verdict,
        passed=ended.count("held"),
        total=len(ended),
        detail=detail[:500].encode("utf-8", "replace").decode(),
        output=written if output is None else output,
        stderr="" if output is None else written,
        cpu_seconds=seen.cpu_seconds,
        wall_seconds=seen.wall_seconds,
        memory_mb=seen.memory_mb,
    )


def judged(seen: RunRecord, limits: Limits) -> tuple[Verdict, str]:
    """Verdict and the reason in one line. A limit comes before anything that the candidate's side
    may have said.
    """
    signal_number = os.WTERMSIG(seen.status) if os.WIFSIGNALED(seen.status) else 0
    if seen.stopped == "printed":
        return Verdict.OUTPUT, f"printed more than {limits.printed_mb} MiB"
    if (
        seen.stopped == "cpu"
        or signal_number == signal.SIGXCPU
        or seen.cpu_seconds > limits.cpu_seconds + 1
    ):
        return Verdict.TIMEOUT, f"used more than {limits.cpu_seconds:g} s of CPU time"
    if seen.stopped == "wall":
        return Verdict.TIMEOUT, f"took more than {limits.wall_seconds:g} s"
    if seen.memory_mb > limits.memory_mb + limits.stack_mb + LIBRARIES_MB:
        return Verdict.MEMORY, f"had {seen.memory_mb:.0f} MiB in use"
    if seen.stopped == "frozen":
        return Verdict.INFRA, "a process was stopped by a signal"
    if seen.report is None:
        return Verdict.INFRA, "the test worker died"
    if seen.report["setup"]:
        return Verdict.INFRA, SETUP + seen.report["setup"]
    if seen.report["broken"]:
        how, detail = seen.report["broken"]
        if how == "wall":
            return Verdict.INFRA, WALL + detail
        return died(seen, limits, signal_number) if how == "gone" else (FAILURES[how], detail)
    if seen.report["exits"] and seen.status != 0:
        return died(seen, limits, signal_number)
    for how, detail in seen.report["checks"]:
        if how != "held":
            return FAILURES[how], detail
    if not seen.report["checks"]:
        return Verdict.INFRA, "no check was run"
    if seen.report["exits"] or seen.alive:
        return Verdict.PASS, ""
    return died(seen, limits, signal_number)


def died(seen: RunRecord, limits: Limits, signal_number: int) -> tuple[Verdict, str]:
    """The leaf hung up before the verdict: closed its channel, exited, or was killed."""
    if (
        seen.alive and signal_number == signal.SIGKILL
    ):  # ours: one that was on its way out keeps its own status
        return Verdict.FORBIDDEN, "closed its channel"
    if signal_number == 0:
        last = seen.printed.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Verdict.ERROR, f"exited with status {os.WEXITSTATUS(seen.status)}" + (
            f": {last}" if last else ""
        )
    name = signal.Signals(signal_number).name
    if signal_number != signal.SIGKILL:
        return Verdict.ERROR, f"killed by {name}"
    if seen.killed_for_memory or seen.memory_mb >= NEARLY * limits.memory_mb:
        return Verdict.MEMORY, f"killed with {seen.memory_mb:.0f} MiB in use"
    # a leaf cannot send itself SIGKILL, so the machine did; twice in a row is taken for the
    # program's doing
    return (Verdict.ERROR if seen.before == KILLED else Verdict.INFRA), KILLED
