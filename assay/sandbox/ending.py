"""How a run ended: pure functions from what is known of a process to a reason."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, field

from assay.sandbox.kernel import signal_name
from assay.sandbox.limits import Limits
from assay.sandbox.program import Ended

KILLED = "killed by SIGKILL"
NEARLY = 0.8
"""A process that was killed with this share of its memory in use ran out of memory."""
LIBRARIES_MB, OWN_MB = 512, 128
"""MiB beyond the limits that files of libraries may account for, and those of a compiled program;
more evaded RLIMIT_DATA."""
DONE, HUNG_UP, MISTREATED = b"+", b"-", b"!"
"""What starts a companion's report: it is done with the program; the program hung up; the program
sent what it should not, so the companion takes no other job."""
ANSWER_RAN = b"*"
"""What a companion sends before what the program has answered runs as code in it, once. Whatever
the companion says from then on may be the program's."""
ASKED = b"?"
"""What a companion sends once, before it reads anything that the program says. What ends it after
that may be the program's doing."""
NO_PROGRAM, NO_START = b"c", b"s"
"""What starts the report of a program that stands alone: its text is none; the machine failed to
start it."""


NAMES_ERROR = re.compile(
    r"^(?:[\w.]*(?:Error|Exception)\b|Exception in |panic: |fatal error: |thread .* panicked).*",
    re.MULTILINE,
)


@dataclass(slots=True)
class RunRecord:
    """What is known of one run; complete once its process has ended."""

    companion: bool = True
    """Whether the program has one."""
    report: bytes | None = None
    """What the companion reported; None where it died first. What kept a program that stands alone
    from starting; None where nothing did."""
    stopped: Ended | None = None
    """Why the supervisor stopped it, if it did."""
    alive: bool = False
    """Whether the process lived when the run ended."""
    status: int = 0
    """The process's status as of wait(2)."""
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
    wall_seconds: float = 0.0
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that it made and that were to be fetched."""
    was_killed: bool = False
    """Whether the machine killed the program in the attempt before."""
    killed_for_memory: bool = False
    """Whether the kernel has just killed a process of the slot's control group for memory."""
    why: str = ""
    """Why it was stopped, where the limits do not say it."""
    companion_status: int | None = None
    """The companion's status as of wait(2); None where it was not waited for."""
    companion_alive: bool = False
    """Whether the companion lived when the run ended without a report."""
    waits_for_code: bool = False
    """Whether its process waits for more code."""
    answer_ran: bool = False
    """Whether an answer of the program's may have run as code in the companion."""
    was_asked: bool = False
    """Whether the companion had something of the program's before it ended or reported."""
    was_lost: bool = False
    """Whether the companion was lost in the attempt before."""

    @property
    def hung_up(self) -> bool:
        """Whether the program's end of the channel was closed."""
        return not (self.companion or self.waits_for_code) or (self.report or b"")[:1] == HUNG_UP

    def reported(self, mark: bytes) -> str:
        """The text of a report that starts so; empty where there is none."""
        report = b"" if self.companion else self.report or b""
        return report[1:].decode("utf-8", "replace") if report[:1] == mark else ""


def ending(
    record: RunRecord, limits: Limits, steps: float = 1.0, libraries_mb: int = LIBRARIES_MB
) -> tuple[Ended, str]:
    """How it ended, and why in one line. A limit comes before anything else. `steps`: how many
    times the time limits all its steps together have.
    """
    total, wall_seconds = steps * limits.cpu_seconds, limits.wall_seconds
    match record.stopped:
        case Ended.PRINTED:
            return Ended.PRINTED, record.why or f"printed more than {limits.printed_mb} MiB"
        case Ended.WALL:
            most = steps * wall_seconds
            most = most if record.wall_seconds >= most else wall_seconds
            return Ended.WALL, f"took more than {most:g} s"
        case Ended.MEMORY | Ended.CLOSED as ended:
            return ended, record.why
    if record.stopped is Ended.CPU or record.cpu_seconds > total + 1:
        most = total if record.cpu_seconds >= total else limits.cpu_seconds
        return Ended.CPU, f"used more than {most:g} s of CPU time"
    if record.memory_mb > limits.memory_mb + limits.stack_mb + libraries_mb:
        return Ended.MEMORY, f"had {record.memory_mb:.0f} MiB in use"
    if record.answer_ran and (record.stopped is Ended.LOST or record.report is None):
        return Ended.ABANDONED, "an answer that ran as code ended the tests"
    if record.stopped is Ended.LOST:
        return Ended.LOST, record.why or "a process was stopped by a signal"
    if start_error := record.reported(NO_START):
        return Ended.LOST, start_error
    if record.companion and record.report is None:
        if record.companion_alive:
            return Ended.ABANDONED, "a test closed the channel on which it reports"
        if left := _left(record.companion_status):
            return Ended.ABANDONED, left
        if record.killed_for_memory:
            return Ended.ABANDONED, "the tests ran out of memory"
        if record.was_asked and record.was_lost:  # as of a program that is killed twice
            return Ended.ABANDONED, "the tests were killed twice"
        return Ended.LOST, "the test worker died"
    if record.alive and not record.hung_up:
        return Ended.RUNNING, ""
    return _death(record, limits)


def _left(status: int | None) -> str:
    """How a companion ended itself; empty where the machine may have ended it, since no code there
    can send SIGKILL.
    """
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        return ""
    if os.WIFSIGNALED(status):
        return f"a test ended its process by {signal_name(os.WTERMSIG(status))}"
    return f"a test ended its process with status {os.WEXITSTATUS(status)}"


def telling_line(text: str) -> str:
    """The last line in which a language's runtime names an error, else the last."""
    lines: list[str] = NAMES_ERROR.findall(text)
    return lines[-1] if lines else text.rpartition("\n")[2]


def _death(record: RunRecord, limits: Limits) -> tuple[Ended, str]:
    """Of a process that closed its channel, exited or was killed before the end."""
    number = os.WTERMSIG(record.status) if os.WIFSIGNALED(record.status) else 0
    if record.alive and number == signal.SIGKILL:
        # we killed it; a process that was already exiting keeps its own status
        return Ended.CLOSED, "closed its channel"
    if number == 0:
        line = telling_line(record.stderr.decode("utf-8", "replace").strip())
        ended = f"exited with status {os.WEXITSTATUS(record.status)}"
        return Ended.EXITED, f"{ended}: {line}" if line else ended
    if number != signal.SIGKILL:
        return Ended.CRASHED, f"killed by {signal_name(number)}"
    if record.killed_for_memory or record.memory_mb >= NEARLY * limits.memory_mb:
        return Ended.MEMORY, f"killed with {record.memory_mb:.0f} MiB in use"
    # a program can neither send SIGKILL nor have the kernel send it, so the machine did; twice
    # counts as the program's doing
    return (Ended.CRASHED if record.was_killed else Ended.KILLED), KILLED
