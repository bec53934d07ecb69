"""Decides a verdict: pure functions from a worker's report and a process's end to an Execution. The
judge stops when the machine fails too often for its verdicts to be believed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from assay.errors import DataError, SandboxError
from assay.judge.worker_messages import SETUP, Outcome, WorkerReport
from assay.sandbox.program import BY_MACHINE, Ended, Result
from assay.types import Cause, Execution, TestOutcome, Verdict, failing

FAILURES = {
    failure.value: failure
    for failure in (Verdict.FORBIDDEN, Verdict.OUTPUT, Verdict.MEMORY, Verdict.COMPILE,
                    Verdict.NO_CODE, Verdict.ERROR, Verdict.WRONG)
}  # fmt: skip
"""Failures of the program that a worker can report."""
UNJUDGED = {
    "unasked": Cause.TEST, "unsendable": Cause.CARRY, "reference": Cause.REFERENCE,
}  # fmt: skip
"""What a worker can report that is no failure of the program, and whose doing it is."""
OF_CHECK = {"held", "unasked", *FAILURES}
"""Ways in which a check can end."""
FOR_GOOD = {"hung_up", "unsendable", "reference", *FAILURES}
"""Ways in which a job can fail for good."""
BESIDE_TESTS = "an answer ran as code beside the tests, so what came of it is not shown"
AFTER_ANSWER = "the tests came to no verdict on what the program answered: "
CHECKER = "the task's checker fails: "
REFERENCE_FAILS = "the task's own reference fails: "
REFUTABLE = (Cause.TEST, Cause.CARRY)
"""Causes that the program may have chosen. Where the reference passes, it has."""
LIMITS = {
    Ended.CPU: Verdict.TIMEOUT, Ended.WALL: Verdict.TIMEOUT, Ended.MEMORY: Verdict.MEMORY,
    Ended.PRINTED: Verdict.OUTPUT, **dict.fromkeys(BY_MACHINE, Verdict.INFRA),
}  # fmt: skip
DEATHS = {
    Ended.EXITED: Verdict.ERROR, Ended.CRASHED: Verdict.ERROR, Ended.CLOSED: Verdict.FORBIDDEN,
}  # fmt: skip


class ReferenceFailsError(DataError):
    """A task's own reference gives no expected values."""


def unjudged(cause: Cause, detail: str) -> Execution:
    """The execution where the program cannot be judged."""
    return Execution(Verdict.UNJUDGED, detail=detail, cause=cause)


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
        and all(_is_outcome(check, OF_CHECK) for check in report.checks)
        and (report.failure is None or _is_outcome(report.failure, FOR_GOOD))
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
    execution = verdict_of(result, report)
    if result.answer_ran:
        return beside_tests(result, execution, report)
    report = report or WorkerReport([])
    last = [(execution.verdict, execution.detail)] if report.failure else []
    return measured(
        result, execution, result.stderr,
        passed=sum(check.how == "held" for check in report.checks), total=len(report.checks),
        forgeable=report.forgeable, changes=tuple(report.changes),
        tests=failing(dict(enumerate([*report.checks, *last]))),
    )  # fmt: skip


def beside_tests(result: Result, execution: Execution, report: WorkerReport | None) -> Execution:
    """The execution of a program of which an answer ran as code in the worker: that may have
    written the report, and have read the tests. So no text of theirs or of the program's is kept,
    and where the tests came to no verdict, the program has ended them.
    """
    if execution.verdict is Verdict.UNJUDGED:
        execution = Execution(Verdict.ERROR)
    outcomes = [check.how for check in report.checks] if report else []
    detail = "" if execution.verdict is Verdict.PASS else BESIDE_TESTS
    return measured(
        result, execution, b"", detail=detail, passed=outcomes.count("held"),
        total=len(outcomes), forgeable=True,
        tests=failing(dict(enumerate((how, "") for how in outcomes))),
    )  # fmt: skip


def measured(
    result: Result, execution: Execution, output: bytes, stderr: bytes = b"", **others: Any
) -> Execution:  # fmt: skip
    """The execution with what the program printed and used, and `others` of its fields."""
    exited = result.ended is Ended.EXITED and not result.compile_error
    return replace(
        execution,
        output=output.decode("utf-8", "replace"),
        stderr=stderr.decode("utf-8", "replace"),
        cpu_seconds=result.cpu_seconds,
        wall_seconds=result.wall_seconds,
        memory_mb=result.memory_mb,
        exit_status=result.status if exited else None,
        **others,
    )


def verdict_of(result: Result, report: WorkerReport | None) -> Execution:
    """Verdict and reason. A limit comes before anything that the program may have reported."""
    if result.ended in LIMITS:
        return Execution(LIMITS[result.ended], detail=result.detail)
    if result.ended is Ended.ABANDONED:
        return no_verdict(result, result.detail)
    if report is None:
        return no_verdict(result, "a test has written over the report of the tests")
    if report.setup_error:
        return unjudged(Cause.TASK, SETUP + report.setup_error)
    if report.failure:
        if report.failure.how == "hung_up":
            return Execution(DEATHS.get(result.ended, Verdict.FORBIDDEN), detail=result.detail)
        return _failed(report.failure)
    for check in sorted(report.checks, key=lambda check: check.how != "unasked"):
        if check.how != "held":
            return _failed(check)
    if not report.checks:
        return no_verdict(result, "the tests hold no check that was run")
    if result.ended is Ended.RUNNING:
        return Execution(Verdict.PASS)
    return Execution(DEATHS[result.ended], detail=result.detail)


def no_verdict(result: Result, why: str) -> Execution:
    """The execution where the tests came to no verdict. Once the program has answered, its answer
    may have led them there, so it is wrong, and an error where it ran as code; if it has not, its
    task's reference ends the tests too.
    """
    if result.was_asked:
        verdict = Verdict.ERROR if result.answer_ran else Verdict.WRONG
        return Execution(verdict, detail=AFTER_ANSWER + why)
    return unjudged(Cause.TEST, why)


def _failed(outcome: Outcome) -> Execution:
    if outcome.how in UNJUDGED:
        return unjudged(UNJUDGED[outcome.how], outcome.detail)
    return Execution(FAILURES[outcome.how], detail=outcome.detail)


def printed_verdict(result: Result) -> Execution:
    """The verdict on a program that reads and prints, before its output is compared: PASS where it
    exited with status 0.
    """
    if result.ended in LIMITS:
        return Execution(LIMITS[result.ended], detail=result.detail)
    if result.compile_error:
        return Execution(Verdict.COMPILE, detail=result.compile_error)
    if result.ended is Ended.EXITED and result.status == 0:
        return Execution(Verdict.PASS)
    return Execution(DEATHS[result.ended], detail=result.detail)


def compile_failure(result: Result) -> Execution:
    """The execution of a program of which a compiler made nothing."""
    if result.ended in BY_MACHINE:
        return measured(result, Execution(Verdict.INFRA, detail=result.detail), b"", result.stderr)
    lines = result.stderr.decode("utf-8", "replace").splitlines()
    fault = next((line for line in lines if "error" in line), result.detail)
    return measured(result, Execution(Verdict.COMPILE, detail=fault), b"", result.stderr)


def execution_of(fields: dict[str, Any]) -> Execution:
    """The execution of its fields in JSON."""
    tests = tuple(TestOutcome(**test) for test in fields.get("tests", ()))
    values = {"verdict": Verdict(fields["verdict"]), "cause": Cause(fields["cause"]),
              "tests": tests, "changes": ()}  # fmt: skip
    return Execution(**{**fields, **values})


TOLERATED = 20
"""Failures among the last WINDOW programs that are accepted."""
WINDOW = 200


class CircuitBreaker:
    """Counts failures of the machine, and nothing else, among the last `window` programs."""

    def __init__(self, tolerated: int = TOLERATED, window: int = WINDOW) -> None:
        self.tolerated = tolerated
        self._failed: deque[bool] = deque(maxlen=window)

    def note(self, failed: bool, failure: str = "") -> None:
        """Count one program: whether the machine failed it, and how. Raises SandboxError for more
        failures than are tolerated.
        """
        self._failed.append(failed)
        if failed and (count := sum(self._failed)) > self.tolerated:
            of = f"{count} of the last {len(self._failed)} programs"
            raise SandboxError(f"the machine failed {of}, at last: {failure}")
