"""Decides a verdict: pure functions from a worker's report and a process's end to an Execution. The
judge stops when the machine fails too often for its verdicts to be believed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from assay.errors import SandboxError
from assay.judge.protocol import CANNOT, SETUP, UNASKED, Outcome, WorkerReport
from assay.sandbox.program import Ended, Result
from assay.types import Execution, TestOutcome, Verdict, failing

FAILURES = {
    failure.value: failure
    for failure in (Verdict.FORBIDDEN, Verdict.OUTPUT, Verdict.MEMORY, Verdict.COMPILE,
                    Verdict.NO_CODE, Verdict.ERROR, Verdict.WRONG)
}  # fmt: skip
"""Failures that a worker can report."""
PROGRAM_FAILURES = {"hung_up", "unsendable", *FAILURES}
"""Ways in which a program can fail for good."""
CHECKER = "the task's checker fails: "
REFUSED = "refused: "
"""Starts the detail where the task cannot be judged at all."""
LIMITS = {
    Ended.CPU: Verdict.TIMEOUT, Ended.WALL: Verdict.TIMEOUT, Ended.MEMORY: Verdict.MEMORY,
    Ended.PRINTED: Verdict.OUTPUT, Ended.LOST: Verdict.INFRA,
}  # fmt: skip
DEATHS = {
    Ended.EXITED: Verdict.ERROR, Ended.CRASHED: Verdict.ERROR, Ended.CLOSED: Verdict.FORBIDDEN,
}  # fmt: skip


def parse_report(frame: bytes) -> WorkerReport | None:
    """A worker's report; None, as for a worker that died, where its frame is no valid report.

    The data set's code can write to the worker's socket, so every value is checked.
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
        and (report.failure is None or _is_outcome(report.failure, PROGRAM_FAILURES))
        and type(report.setup_error) is str
        and _are_texts(report.answers)
        and type(report.forgeable) is bool
        and _are_texts(report.changes)
    )
    if not valid:
        return None
    failure = report.failure and Outcome(*report.failure)
    return report._replace(checks=[Outcome(*check) for check in report.checks], failure=failure)


def _is_outcome(data: Any, ways: Collection[str]) -> bool:
    return _are_texts(data) and len(data) == 2 and data[0] in ways


def _are_texts(data: Any) -> bool:
    return type(data) is list and all(type(item) is str for item in data)


def decide(result: Result) -> Execution:
    """The execution of a program that a worker has checked; its `total` counts only the checks that
    ran.
    """
    report = parse_report(result.report[1:]) if result.report else None
    verdict, detail = verdict_of(result, report)
    execution, ran = measured(result, verdict, detail, result.stderr), report or WorkerReport([])
    tests = failing(dict(enumerate([*ran.checks, *[(verdict, detail)] * bool(ran.failure)])))
    return replace(
        execution, passed=sum(check.how == "held" for check in ran.checks), total=len(ran.checks),
        forgeable=ran.forgeable, changes=tuple(ran.changes), tests=tests,
    )  # fmt: skip


def measured(
    result: Result, verdict: Verdict, detail: str, output: bytes, stderr: bytes = b""
) -> Execution:
    """An execution with what the program printed and used."""
    return Execution(
        verdict=verdict,
        detail=detail,
        output=output.decode("utf-8", "replace"),
        stderr=stderr.decode("utf-8", "replace"),
        cpu_seconds=result.cpu_seconds,
        wall_seconds=result.wall_seconds,
        memory_mb=result.memory_mb,
    )


def verdict_of(result: Result, report: WorkerReport | None) -> tuple[Verdict, str]:
    """Verdict and reason in one line. A limit comes before anything that the program may have
    reported.
    """
    if result.ended in LIMITS:
        return LIMITS[result.ended], result.detail
    if report is None:
        return Verdict.INFRA, "the test worker's report is malformed"
    if report.setup_error:
        return Verdict.INFRA, SETUP + report.setup_error
    if report.failed_by == "hung_up":
        return DEATHS.get(result.ended, Verdict.FORBIDDEN), result.detail
    if report.failure:  # without a verdict of its own, it is `unsendable`
        return FAILURES.get(report.failure.how, Verdict.INFRA), report.failure.detail
    for how, detail in sorted(report.checks, key=lambda check: check.how != "unasked"):
        if how != "held":
            return FAILURES.get(how, Verdict.INFRA), detail
    if not report.checks:
        return Verdict.INFRA, "no check was run"
    if result.ended is Ended.RUNNING:
        return Verdict.PASS, ""
    return DEATHS[result.ended], result.detail


def printed_verdict(result: Result) -> tuple[Verdict, str]:
    """The verdict on a program that reads and prints, before its output is compared: PASS where it
    exited with status 0.
    """
    if result.ended in LIMITS:
        return LIMITS[result.ended], result.detail
    if result.compile_error:
        return Verdict.COMPILE, result.compile_error
    if result.ended is Ended.EXITED and result.status == 0:
        return Verdict.PASS, ""
    return DEATHS[result.ended], result.detail


def compile_failure(result: Result) -> Execution:
    """The execution of a program of which a compiler made nothing."""
    if result.ended is Ended.LOST:
        return measured(result, Verdict.INFRA, result.detail, b"", result.stderr)
    lines = result.stderr.decode("utf-8", "replace").splitlines()
    fault = next((line for line in lines if "error" in line), result.detail)
    return measured(result, Verdict.COMPILE, fault, b"", result.stderr)


def cannot_be_judged(execution: Execution) -> bool:
    """Whether a check does what the wall cannot carry, or its checker comes to no verdict."""
    return execution.verdict is Verdict.INFRA and execution.detail.startswith((CANNOT, CHECKER))


def is_tasks_fault(execution: Execution) -> bool:
    """Whether the task itself cannot be judged, which is no sign of a failing machine."""
    by_task = (SETUP, CHECKER, REFUSED, CANNOT, UNASKED)
    return execution.verdict is Verdict.INFRA and execution.detail.startswith(by_task)


def execution_of(fields: dict[str, Any]) -> Execution:
    """The execution of its fields in JSON."""
    tests = tuple(TestOutcome(**test) for test in fields.get("tests", ()))
    values = {"verdict": Verdict(fields["verdict"]), "tests": tests, "changes": ()}
    return Execution(**{**fields, **values})


TOLERATED = 20
"""Failures among the last WINDOW programs that are accepted."""
WINDOW = 200


class CircuitBreaker:
    """Counts failures of the machine among the last `window` programs."""

    def __init__(self, tolerated: int = TOLERATED, window: int = WINDOW) -> None:
        self.tolerated = tolerated
        self._failed: deque[bool] = deque(maxlen=window)

    def note(self, failure: str) -> None:
        """Count one program: how the machine failed it, or empty. Raises SandboxError for more
        failures than are tolerated.
        """
        self._failed.append(bool(failure))
        if failure and (count := sum(self._failed)) > self.tolerated:
            of = f"{count} of the last {len(self._failed)} programs"
            raise SandboxError(f"the machine failed {of}, at last: {failure}")
