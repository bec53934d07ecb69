"""The requests and answers of the service as JSON: assay's own, SandboxFusion's, and its batches of test cases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay import extract
from assay.errors import DataError
from assay.integrations import cases
from assay.judge import Job
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Execution, Task, Verdict

Fields = Mapping[str, Any]
LANGUAGE = "python"


@dataclass(frozen=True, slots=True)
class Run:
    """A request of SandboxFusion's /run_code."""

    code: str
    stdin: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Cases:
    """A request of /common_evaluate_batch: one job for each test case."""

    id: object
    code: str
    jobs: tuple[Job, ...]
    shown: tuple[dict[str, Any], ...]
    """Each case as the answer repeats it."""
    all_cases: bool
    """Whether to go on after a case that fails."""


def job(fields: Fields, where: str = "the request") -> Job:
    """{"task": {...}, "program": text}, or the task's fields beside the program; "completion" for a reply to cut.

    A task is a row of assay's task files without id and prompt, or test cases as in cases.task_of. Raises DataError.
    """
    given = fields.get("task", fields)
    if not isinstance(given, Mapping):
        raise DataError(f"{where}: 'task' is a {type(given).__name__}; make it an object")
    if ("program" in fields) == ("completion" in fields):
        raise DataError(f"{where}: give either 'program', whole code, or 'completion', a model's reply")
    text = Row(fields, where).text("program" if "program" in fields else "completion")
    if "inputs" in given or "assert_case" in given:
        task = cases.task_of(given)
        return Job(task, cases.completed(task, text if "program" in fields else cases.cut(task, text)))
    task = task_of(Row({"task_id": "request", "prompt": "", **given}, where))
    _require_python(task.language)
    return Job(task, text if "program" in fields else extract.program(task, text))


def batch(fields: Fields) -> list[Job]:
    """{"jobs": [...]}, each as in `job`; a "task" beside them is for those without one of their own."""
    rows = fields.get("jobs")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError("the request: 'jobs' must be a list of objects, at least one")
    common = {"task": fields["task"]} if "task" in fields else {}
    return [job({**common, **row}, f"job {index}") for index, row in enumerate(rows)]


def run(fields: Fields) -> Run:
    """SandboxFusion's RunCodeRequest. Raises DataError for what is not Python alone."""
    _require_python(fields.get("language"))
    for name in ("files", "fetch_files", "args"):
        if fields.get(name):
            raise DataError(f"{name!r} is not empty; programs run without files and arguments here, leave it out")
    code, stdin = fields.get("code"), fields.get("stdin") or ""
    if not isinstance(code, str) or not isinstance(stdin, str):
        raise DataError("'code' must be a string, and so must 'stdin' if there is one")
    return Run(code, stdin, _seconds(fields.get("run_timeout", 10)))


def cases_of(fields: Fields) -> Cases:
    """{"completion", "config": {"language", "provided_data": {"test_cases": {...}}, "extra"}}. Raises DataError."""
    config = _object(fields, "config")
    _require_python(config.get("language"))
    given = _object(_object(config, "provided_data"), "test_cases")
    inputs, outputs, name = given.get("input"), given.get("output"), given.get("fn_name")
    kind = given.get("type") or ("function_call" if name else "stdin_stdout")
    if kind not in ("stdin_stdout", "function_call"):
        raise DataError(f"test cases of type {kind!r} are not judged here; use stdin_stdout or function_call")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise DataError("'input' and 'output' of 'test_cases' must be lists")
    called = {"fn_name": str(name)} if kind == "function_call" else {}
    whole = cases.task_of({"inputs": inputs, "outputs": outputs, **called})
    code = cases.cut(whole, Row(fields, "the request").text("completion"))
    return Cases(
        id=fields.get("id", 0),
        code=code or "",
        jobs=tuple(Job(_only(whole, number), cases.completed(whole, code)) for number in range(len(inputs))),
        shown=tuple(_shown(kind, name, *pair) for pair in zip(inputs, outputs, strict=True)),
        all_cases=bool(_object({"extra": {}, **config}, "extra").get("run_all_cases")),
    )


def run_answer(execution: Execution) -> dict[str, Any]:
    """SandboxFusion's RunCodeResponse. A syntax error is a failed run, as it is there; only the machine is an Error."""
    infra, timeout = execution.verdict is Verdict.INFRA, execution.verdict is Verdict.TIMEOUT
    passed = execution.verdict is Verdict.PASS
    stderr = execution.stderr if passed or execution.stderr else execution.detail
    result = {
        "status": "Error" if infra else "TimeLimitExceeded" if timeout else "Finished",
        "execution_time": execution.wall_seconds,
        "return_code": None if infra or timeout else 0 if passed else _return_code(execution),
        "stdout": execution.output,
        "stderr": stderr,
    }
    return {
        "status": "SandboxError" if infra else "Success" if passed else "Failed",
        "message": execution.detail if infra else "",
        "compile_result": None,
        "run_result": result,
        "executor_pod_name": None,
        "files": {},
    }


def cases_answer(asked: Cases, found: Sequence[Execution]) -> dict[str, Any]:
    """SandboxFusion's EvalResult; `found` is shorter than the cases where one failed and the rest was not asked for."""
    tests = []
    for execution, shown in zip(found, asked.shown, strict=False):
        ran = replace(execution, verdict=Verdict.PASS) if execution.verdict is Verdict.WRONG else execution
        passed = execution.verdict is Verdict.PASS
        tests.append({"passed": passed, "exec_info": run_answer(ran), "test_info": shown})
    return {
        "id": asked.id,
        "accepted": len(tests) == len(asked.jobs) and all(test["passed"] for test in tests),
        "extracted_code": asked.code,
        "full_code": None,
        "test_code": None,
        "tests": tests,
        "extracted_type": None,
        "extra": None,
    }


def _return_code(execution: Execution) -> int:
    exited = re.match(r"exited with status (\d+)", execution.detail)
    return int(exited[1]) if exited else 1


def _only(task: Task, number: int) -> Task:
    return replace(task, checks=task.checks[number : number + 1])


def _shown(kind: str, name: object, given: object, expected: object) -> dict[str, Any]:
    if kind == "stdin_stdout":
        return {"input": {"stdin": given}, "output": {"stdout": expected}}
    return {"type": kind, "fn_name": name, "input": given, "output": expected}


def _object(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    if not isinstance(value, Mapping):
        raise DataError(f"the request: {name!r} is missing or no object")
    return value


def _require_python(language: object) -> None:
    if language != LANGUAGE:
        raise DataError(f"the language {language!r} is not run here; only {LANGUAGE!r} is")


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise DataError(f"'run_timeout' is {value!r}; give seconds above 0 and up to 3600")
    return float(value)
