"""The requests and answers of the service as JSON: assay's own, SandboxFusion's, and its batches of
test cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, Field

from assay import extract
from assay.errors import DataError
from assay.integrations import cases
from assay.judge import Job
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Execution, Task, Verdict

Fields = Mapping[str, Any]
Unused = Annotated[dict[str, Any] | list[Any] | None, Field(max_length=0)]
"""What programs cannot be given here, so that it must be empty."""


class Run(BaseModel):
    """SandboxFusion's RunCodeRequest; its other fields change nothing."""

    code: str
    language: Literal["python"]
    stdin: str | None = None
    run_timeout: float = Field(10, gt=0, le=3600)
    files: Unused = None
    fetch_files: Unused = None
    args: Unused = None


class Pairs(BaseModel):
    """The test cases of /common_evaluate_batch: what is given, and what must come of it."""

    input: list[Any]
    output: list[Any]
    type: Literal["stdin_stdout", "function_call"] | None = None
    fn_name: str | None = None


class Cases(BaseModel):
    """A request of /common_evaluate_batch."""

    id: Any = 0
    completion: str
    language: Literal["python"] = Field(validation_alias=AliasPath("config", "language"))
    pairs: Pairs = Field(validation_alias=AliasPath("config", "provided_data", "test_cases"))
    all_cases: bool = Field(False, validation_alias=AliasPath("config", "extra", "run_all_cases"))
    """Whether to go on after a case that fails."""

    @property
    def of_function(self) -> bool:
        """Whether the cases call a function; else they run a program."""
        return self.pairs.type == "function_call" or (
            self.pairs.type is None and bool(self.pairs.fn_name)
        )

    def program_and_jobs(self) -> tuple[str | None, list[Job]]:
        """What is cut from the completion, and a job for each case. Raises DataError."""
        name = self.pairs.fn_name if self.of_function else None
        if self.of_function and not name:
            raise DataError(
                "test cases of type function_call need 'fn_name', the function's name; add it"
            )
        given = {"inputs": self.pairs.input, "outputs": self.pairs.output, "fn_name": name}
        task = cases.task_of(given, "test_cases")
        program = cases.cut(task, self.completion)
        whole = cases.completed(task, program)
        return program, [
            Job(replace(task, checks=task.checks[n : n + 1]), whole)
            for n in range(len(task.checks))
        ]


def job(fields: Fields, where: str = "the request") -> Job:
    """{"task": {...}, "program": text}, or the task's fields beside the program; "completion" for a
    reply to cut.

    A task is a row of assay's task files without id and prompt, or test cases as in cases.task_of.
    Raises DataError.
    """
    row, given = Row(fields, where), fields.get("task", fields)
    if not isinstance(given, Mapping):
        raise row.wrong(f"'task' is a {type(given).__name__}; make it an object")
    row.require_python(given)
    if ("program" in fields) == ("completion" in fields):
        raise row.wrong("give either 'program', whole code, or 'completion', a model's reply")
    text = row.text("program" if "program" in fields else "completion")
    if "outputs" in given or "assert_case" in given:
        task = cases.task_of(given, where)
        return Job(
            task, cases.completed(task, text if "program" in fields else cases.cut(task, text))
        )
    task = task_of(Row({"task_id": "request", "prompt": "", **given}, where))
    return Job(task, text if "program" in fields else extract.program(task, text))


MOST_JOBS = 10_000
"""Of one batch: nothing else is served while it is read."""


def batch(fields: Fields) -> list[Job]:
    """{"jobs": [...]}, each as in `job`; a "task" beside them is for those without one of their
    own.
    """
    rows = fields.get("jobs")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError("the request: 'jobs' must be a list of objects, at least one")
    if len(rows) > MOST_JOBS:
        raise DataError(
            f"the request: {len(rows)} jobs are more than the {MOST_JOBS} of a batch; send several"
        )
    common = {"task": fields["task"]} if "task" in fields else {}
    jobs = [job({**common, **row}, f"job {index}") for index, row in enumerate(rows)]
    known: dict[Task, Task] = {}
    return [
        replace(one, task=known.setdefault(one.task, one.task)) for one in jobs
    ]  # the judge makes each ready once


def run_answer(execution: Execution) -> dict[str, Any]:
    """SandboxFusion's RunCodeResponse. A syntax error is a failed run, as it is there; only the
    machine is an Error.
    """
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


def cases_answer(asked: Cases, program: str | None, found: Sequence[Execution]) -> dict[str, Any]:
    """SandboxFusion's EvalResult; `found` is shorter than the cases where one failed and the rest
    was not asked for.
    """
    tests = []
    for execution, given, expected in zip(
        found, asked.pairs.input, asked.pairs.output, strict=False
    ):
        ran = (
            replace(execution, verdict=Verdict.PASS)
            if execution.verdict is Verdict.WRONG
            else execution
        )
        if asked.of_function:
            shown = {
                "type": "function_call",
                "fn_name": asked.pairs.fn_name,
                "input": given,
                "output": expected,
            }
        else:
            shown = {"input": {"stdin": given}, "output": {"stdout": expected}}
        passed = execution.verdict is Verdict.PASS
        tests.append({"passed": passed, "exec_info": run_answer(ran), "test_info": shown})
    return {
        "id": asked.id,
        "accepted": len(tests) == len(asked.pairs.input) and all(test["passed"] for test in tests),
        "extracted_code": program or "",
        "full_code": None,
        "test_code": None,
        "tests": tests,
        "extracted_type": None,
        "extra": None,
    }


def _return_code(execution: Execution) -> int:
    exited = re.match(r"exited with status (\d+)", execution.detail)
    return int(exited[1]) if exited else 1
