"""The service's requests and answers in JSON: assay's own, and SandboxFusion's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from assay import extract
from assay.errors import DataError
from assay.integrations import cases
from assay.judge import Job
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Execution, Task, Verdict

Fields = Mapping[str, Any]
Unused = Annotated[dict[str, Any] | list[Any] | None, Field(max_length=0)]
"""A field of SandboxFusion's that must be empty: programs get no files and no arguments here."""


def _known(language: str) -> str:
    return Row({"language": language}, "the request").language()


Known = Annotated[str, AfterValidator(_known)]


class Request(BaseModel):
    """Base of the requests; OpenAPI shows the docstrings of classes and fields."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")


class JudgeRequest(Request):
    """A program and its task. The task's fields may also stand beside the program."""

    task: dict[str, Any] | None = None
    """A row of a task file without id and prompt, with `tests` and `entry_point`, or `exchanges`.
    Or test cases: `inputs` and `outputs`, with `fn_name` for a function; or `assert_case`."""
    program: str | None = None
    """A whole program; give either this or `completion`."""
    completion: str | None = None
    """A model's reply, from which the program is cut."""


class BatchRequest(Request):
    """Many programs."""

    jobs: list[JudgeRequest] = Field(min_length=1, max_length=10_000)
    task: dict[str, Any] | None = None
    """The task of the jobs that have none of their own."""


class RunRequest(Request):
    """SandboxFusion's RunCodeRequest; its other fields change nothing."""

    code: str
    language: Known
    stdin: str | None = None
    run_timeout: float = Field(10, gt=0, le=3600)
    """Seconds of wall time, of which waiting for a core does not count; and of CPU time."""
    files: Unused = None
    fetch_files: Unused = None
    args: Unused = None


class Pairs(Request):
    """Inputs of test cases, and the outputs that they must give."""

    input: list[Any]
    output: list[Any]
    type: Literal["stdin_stdout", "function_call"] | None = None
    fn_name: str | None = None


class ProvidedData(Request):
    """Holds the test cases."""

    test_cases: Pairs


class Extra(Request):
    """More options."""

    run_all_cases: bool = False
    """Whether to go on after a case that fails."""


class CasesConfig(Request):
    """The test cases, and how they are run."""

    language: Known
    provided_data: ProvidedData
    extra: Extra | None = None


class CasesRequest(Request):
    """SandboxFusion's request of /common_evaluate_batch."""

    id: Any = 0
    completion: str
    config: CasesConfig

    @property
    def pairs(self) -> Pairs:
        """The test cases."""
        return self.config.provided_data.test_cases

    @property
    def of_function(self) -> bool:
        """Whether the cases call a function; otherwise they run a program."""
        kind, name = self.pairs.type, self.pairs.fn_name
        return kind == "function_call" or (kind is None and bool(name))

    def program_and_jobs(self) -> tuple[str | None, list[Job]]:
        """The program cut from the completion, and a job for each case. Raises DataError."""
        name = self.pairs.fn_name if self.of_function else None
        if self.of_function and not name:
            raise DataError(
                "test cases of type function_call need 'fn_name', the function's name; add it"
            )
        given = {"inputs": self.pairs.input, "outputs": self.pairs.output, "fn_name": name,
                 "language": self.config.language}  # fmt: skip
        task = cases.task_of(given, "test_cases")
        program = cases.cut(task, self.completion)
        whole = cases.completed(task, program)
        return program, [
            Job(replace(task, checks=task.checks[n : n + 1]), whole)
            for n in range(len(task.checks))
        ]


def job(fields: Fields, where: str = "the request") -> Job:
    """The job that a JudgeRequest describes. Raises DataError, beginning with `where`."""
    row, given = Row(fields, where), fields.get("task", fields)
    if not isinstance(given, Mapping):
        raise row.wrong(f"'task' is a {type(given).__name__}; make it an object")
    given = {"language": row.language(given), **given}
    if ("program" in fields) == ("completion" in fields):
        raise row.wrong("give either 'program', whole code, or 'completion', a model's reply")
    text = row.text("program" if "program" in fields else "completion")
    if "outputs" in given or "assert_case" in given:
        task = cases.task_of(given, where)
        program = text if "program" in fields else cases.cut(task, text)
        return Job(task, cases.completed(task, program))
    task = task_of(Row({"task_id": "request", "prompt": "", **given}, where))
    return Job(task, text if "program" in fields else extract.program(task, text))


def batch(fields: Fields) -> list[Job]:
    """The jobs of a BatchRequest. Raises DataError and ValidationError."""
    BatchRequest.model_validate(fields)
    common = {"task": fields["task"]} if "task" in fields else {}
    jobs = [job({**common, **row}, f"job {index}") for index, row in enumerate(fields["jobs"])]
    known: dict[Task, Task] = {}
    # equal tasks become one object, which the judge prepares once
    return [replace(one, task=known.setdefault(one.task, one.task)) for one in jobs]


def run_answer(execution: Execution) -> dict[str, Any]:
    """SandboxFusion's RunCodeResponse. As there, a syntax error is a failed run; only a failure of
    the machine is an Error.
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


def cases_answer(
    request: CasesRequest, program: str | None, executions: Sequence[Execution]
) -> dict[str, Any]:
    """SandboxFusion's EvalResult. There are fewer executions than cases if one failed and the rest
    was not wanted.
    """
    tests, pairs = [], request.pairs
    for execution, given, expected in zip(executions, pairs.input, pairs.output, strict=False):
        passed, wrong = execution.verdict is Verdict.PASS, execution.verdict is Verdict.WRONG
        run = run_answer(replace(execution, verdict=Verdict.PASS) if wrong else execution)
        shown: dict[str, Any] = {"input": {"stdin": given}, "output": {"stdout": expected}}
        if request.of_function:
            shown = {"type": "function_call", "fn_name": pairs.fn_name}
            shown |= {"input": given, "output": expected}
        tests.append({"passed": passed, "exec_info": run, "test_info": shown})
    accepted = len(tests) == len(pairs.input) and all(test["passed"] for test in tests)
    unused = dict.fromkeys(("full_code", "test_code", "extracted_type", "extra"))
    answer = {"id": request.id, "accepted": accepted, "extracted_code": program or ""}
    return {**answer, **unused, "tests": tests}


def _return_code(execution: Execution) -> int:
    exited = re.match(r"exited with status (\d+)", execution.detail)
    return int(exited[1]) if exited else 1
