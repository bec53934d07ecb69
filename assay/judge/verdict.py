"""Decides a verdict: pure functions from a worker's report and a process's end to an Execution."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from assay.judge.protocol import UNASKED, UNSENDABLE, Outcome, WorkerReport
from assay.sandbox.limits import Limits
from assay.types import Execution, Verdict

FAILURES = {
    failure.value: failure
    for failure in (Verdict.FORBIDDEN, Verdict.OUTPUT, Verdict.MEMORY, Verdict.COMPILE,
                    Verdict.NO_CODE, Verdict.ERROR, Verdict.WRONG)
}  # fmt: skip
"""Failures that a worker can report."""
PROGRAM_FAILURES = {"hung_up", "unsendable", *FAILURES}
"""Ways in which a program can fail for good."""
SETUP = "the task's setup fails: "
REFUSED = "refused: "
"""Starts the detail where the task cannot be judged at all."""
KILLED = "killed by SIGKILL"
NEARLY = 0.8
"""A process that was killed with this share of its memory in use ran out of memory."""
LIBRARIES_MB = 512
"""MiB beyond the limits that files of libraries may account for; more evaded RLIMIT_DATA."""


@dataclass(slots=True)
class RunRecord:
    """What is known of one run; complete once its process has ended."""

    report: WorkerReport | None = None
    """None where the worker died first."""
    stopped: str = ""
    """Why the supervisor stopped it: `cpu`, `wall`, `printed`, `frozen` (a signal had stopped it),
    or empty."""
    alive: bool = False
    """Whether the candidate process lived when the report came."""
    status: int = 0
    """The process's status as of wait(2)."""
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
    wall_seconds: float = 0.0
    printed: bytes | bytearray = field(default_factory=bytearray)
    previous_failure: str = ""
    """How the machine failed the attempt before; empty for the first attempt."""
    killed_for_memory: bool = False
    """Whether the kernel has just killed a process of the slot's control group for memory."""


def parse_report(frame: bytes, failures: Collection[str]) -> WorkerReport | None:
    """A worker's report; None, as for a worker that died, where its frame is no valid report.

    The data set's code can write to the worker's socket, so every value is checked. `failures`: the
    ways in which the program may have failed for good.
    """
    try:
        fields = json.loads(frame)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.keys() != set(WorkerReport._fields):
        return None
    report = WorkerReport(**fields)
    valid = (
        type(report.checks) is list
        and all(_is_outcome(check, {"held", "unasked", *FAILURES}) for check in report.checks)
        and (report.failure is None or _is_outcome(report.failure, failures))
        and type(report.setup_error) is str
        and (report.output is None or type(report.output) is str)
        and type(report.answers) is list
        and all(type(answer) is str for answer in report.answers)
        and type(report.awaits_exit) is bool
    )
    if not valid:
        return None
    failure = report.failure and Outcome(*report.failure)
    return report._replace(checks=[Outcome(*check) for check in report.checks], failure=failure)


def _is_outcome(data: Any, ways: Collection[str]) -> bool:
    if type(data) is not list or len(data) != 2:
        return False
    return type(data[0]) is str and data[0] in ways and type(data[1]) is str


def decide(record: RunRecord, limits: Limits) -> Execution:
    """The execution; its `total` counts only the checks that ran."""
    verdict, detail = verdict_of(record, limits)
    checks = record.report.checks if record.report else []
    output = record.report.output if record.report else None
    printed = record.printed.decode("utf-8", "replace")
    return Execution(
        verdict=verdict,
        passed=sum(check.how == "held" for check in checks),
        total=len(checks),
        detail=detail,
        output=printed if output is None else output,
        stderr="" if output is None else printed,
        cpu_seconds=record.cpu_seconds,
        wall_seconds=record.wall_seconds,
        memory_mb=record.memory_mb,
    )


def verdict_of(record: RunRecord, limits: Limits) -> tuple[Verdict, str]:
    """Verdict and reason in one line. A limit comes before anything that the program may have
    reported.
    """
    report, stopped = record.report, record.stopped
    signal_number = os.WTERMSIG(record.status) if os.WIFSIGNALED(record.status) else 0
    overran = record.cpu_seconds > limits.cpu_seconds + 1
    if stopped == "printed":
        return Verdict.OUTPUT, f"printed more than {limits.printed_mb} MiB"
    if stopped == "cpu" or overran:
        return Verdict.TIMEOUT, f"used more than {limits.cpu_seconds:g} s of CPU time"
    if stopped == "wall":
        return Verdict.TIMEOUT, f"took more than {limits.wall_seconds:g} s"
    if record.memory_mb > limits.memory_mb + limits.stack_mb + LIBRARIES_MB:
        return Verdict.MEMORY, f"had {record.memory_mb:.0f} MiB in use"
    if stopped == "frozen":
        return Verdict.INFRA, "a process was stopped by a signal"
    if report is None:
        return Verdict.INFRA, "the test worker died"
    if report.setup_error:
        return Verdict.INFRA, SETUP + report.setup_error
    if report.failed_by == "hung_up":
        return _death(record, limits, signal_number)
    if report.failed_by == "unsendable":
        return Verdict.INFRA, report.failure.detail if report.failure else ""
    if report.failure:
        return FAILURES[report.failure.how], report.failure.detail
    if report.awaits_exit and record.status != 0:
        return _death(record, limits, signal_number)
    for how, detail in sorted(report.checks, key=lambda check: check.how != "unasked"):
        if how != "held":
            return FAILURES.get(how, Verdict.INFRA), detail
    if not report.checks:
        return Verdict.INFRA, "no check was run"
    if report.awaits_exit or record.alive:
        return Verdict.PASS, ""
    return _death(record, limits, signal_number)


def _death(record: RunRecord, limits: Limits, signal_number: int) -> tuple[Verdict, str]:
    """Verdict on a process that closed its socket, exited or was killed before the end."""
    if record.alive and signal_number == signal.SIGKILL:
        # we killed it; a process that was already exiting keeps its own status
        return Verdict.FORBIDDEN, "closed its channel"
    if signal_number == 0:
        last = record.printed.decode("utf-8", "replace").strip().rpartition("\n")[2]
        ended = f"exited with status {os.WEXITSTATUS(record.status)}"
        return Verdict.ERROR, f"{ended}: {last}" if last else ended
    if signal_number != signal.SIGKILL:
        return Verdict.ERROR, f"killed by {signal.Signals(signal_number).name}"
    if record.killed_for_memory or record.memory_mb >= NEARLY * limits.memory_mb:
        return Verdict.MEMORY, f"killed with {record.memory_mb:.0f} MiB in use"
    # a program can neither send SIGKILL nor have the kernel send it, so the machine did; twice
    # counts as the program's doing
    return (Verdict.ERROR if record.previous_failure == KILLED else Verdict.INFRA), KILLED


def is_unsendable(execution: Execution) -> bool:
    """Whether a check passes an object that cannot be sent to the program."""
    return execution.verdict is Verdict.INFRA and execution.detail.startswith(UNSENDABLE)


def is_tasks_fault(execution: Execution) -> bool:
    """Whether the task itself cannot be judged, which is no sign of a failing machine."""
    by_task = (SETUP, REFUSED, UNSENDABLE, UNASKED)
    return execution.verdict is Verdict.INFRA and execution.detail.startswith(by_task)


def execution_of(fields: dict[str, Any]) -> Execution:
    """The execution of its fields in JSON."""
    return Execution(**{**fields, "verdict": Verdict(fields["verdict"])})
