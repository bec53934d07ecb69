"""What the service answers in JSON: assay's own answers, and SandboxFusion's."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from pydantic import BaseModel, ValidationError

from assay.integrations.bodies import CasesRequest, PromptsRequest, SubmitRequest
from assay.integrations.notebook import RESULTS
from assay.judge import Run
from assay.languages import language_named
from assay.prompts import messages
from assay.types import Execution, Task, Verdict


class CellResult(BaseModel):
    """What came of a cell."""

    stdout: str
    stderr: str
    display: list[dict[str, Any]]
    error: list[dict[str, Any]]


def prompts_answer(tasks: Iterable[Task], request: PromptsRequest) -> list[dict[str, Any]]:
    """SandboxFusion's list of Prompts."""
    return [
        {"id": task.id, "prompt": "\n\n".join(message.content for message in messages(task)),
         "labels": {"programming_language": task.language}}
        for task in islice(tasks, request.offset, request.offset + request.limit)
    ]  # fmt: skip


def run_answer(run: Run) -> dict[str, Any]:
    """SandboxFusion's RunCodeResponse. As there, a syntax error of Python is a failed run; only a
    failure of the machine, or a task that cannot be judged, is an Error.
    """
    status, message = _status(run.execution)
    ran = run.compiled is None or run.compiled.verdict is Verdict.PASS
    return {
        "status": status,
        "message": message,
        "compile_result": run.compiled and _command(run.compiled),
        "run_result": _command(run.execution) if ran else None,
        "executor_pod_name": None,
        "files": _encoded(run.files),
    }


def jupyter_answer(run: Run, cells: int) -> dict[str, Any]:
    """SandboxFusion's RunJupyterResponse, with the cells that ended."""
    lines, ended = run.files.get(RESULTS, b"").splitlines()[:cells], list[CellResult]()
    with contextlib.suppress(ValidationError):  # the cells may write there too
        ended.extend(map(CellResult.model_validate_json, lines))
    status, message = _status(run.execution)
    return {
        "status": "Failed" if status == "Success" and len(ended) != cells else status,
        "message": message,
        "driver": _command(run.execution),
        "cells": [cell.model_dump() for cell in ended],
        "executor_pod_name": None,
        "files": _encoded({name: data for name, data in run.files.items() if name != RESULTS}),
    }


def _status(execution: Execution) -> tuple[str, str]:
    """SandboxFusion's RunStatus, and its message."""
    if not execution.is_judged:
        return "SandboxError", execution.detail
    return "Success" if execution.verdict is Verdict.PASS else "Failed", ""


def _command(execution: Execution) -> dict[str, Any]:
    """SandboxFusion's CommandRunResult."""
    lost, timeout = not execution.is_judged, execution.verdict is Verdict.TIMEOUT
    passed = execution.verdict is Verdict.PASS
    return {
        "status": "Error" if lost else "TimeLimitExceeded" if timeout else "Finished",
        "execution_time": execution.wall_seconds,
        "return_code": None if lost or timeout else 0 if passed else _return_code(execution),
        "stdout": execution.output,
        "stderr": execution.stderr if passed or execution.stderr else execution.detail,
    }


def _return_code(execution: Execution) -> int:
    return 1 if execution.exit_status is None else execution.exit_status


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


def _judged(execution: Execution, language: str) -> dict[str, Any]:
    """The RunCodeResponse of a program that was judged: a wrong output is a run that succeeded."""
    if execution.verdict is Verdict.WRONG:
        execution = replace(execution, verdict=Verdict.PASS)
    failed = execution.verdict is Verdict.COMPILE and bool(language_named(language).compile)
    return run_answer(Run(execution, execution if failed else None))


def cases_answer(
    request: CasesRequest, program: str | None, executions: Sequence[Execution]
) -> dict[str, Any]:
    """SandboxFusion's EvalResult. There are fewer executions than cases if one failed and the rest
    was not wanted.
    """
    tests, pairs = [], request.pairs
    for execution, inputs, expected in zip(executions, pairs.input, pairs.output, strict=False):
        passed = execution.verdict is Verdict.PASS
        run = _judged(execution, request.config.language)
        info: dict[str, Any] = {"input": {"stdin": inputs}, "output": {"stdout": expected}}
        if pairs.of_function:
            info = {"type": "function_call", "fn_name": pairs.fn_name}
            info |= {"input": inputs, "output": expected}
        tests.append({"passed": passed, "exec_info": run, "test_info": info})
    accepted = len(tests) == len(pairs.input) and all(test["passed"] for test in tests)
    return _eval_result(request.id, accepted, program, tests)


def submit_answer(
    request: SubmitRequest, task: Task, program: str | None, execution: Execution
) -> dict[str, Any]:
    """SandboxFusion's EvalResult, with all of a task's checks as one test."""
    accepted = execution.verdict is Verdict.PASS
    info = {"passed": execution.passed, "total": execution.total, "verdict": execution.verdict}
    test = {"passed": accepted, "exec_info": _judged(execution, task.language), "test_info": info}
    return _eval_result(request.id, accepted, program, [test])


def _eval_result(
    name: object, accepted: bool, program: str | None, tests: list[dict[str, Any]]
) -> dict[str, Any]:
    unused = dict.fromkeys(("full_code", "test_code", "extracted_type", "extra"))
    answer = {"id": name, "accepted": accepted, "extracted_code": program or ""}
    return {**answer, **unused, "tests": tests}
