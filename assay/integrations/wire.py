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
from assay.tasks import jsonl
from assay.tasks.cases import with_prelude
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

    def job(self, where: str = "the request", common: Fields | None = None) -> Job:
        """The program and its task, else the `common` one, else the one of the fields beside it.
        Raises DataError, beginning with `where`.
        """
        beside = self.model_extra or {}
        given = next((one for one in (self.task, common) if one is not None), beside)
        row = Row({"program": self.program, "completion": self.completion}, where)
        given = {"language": Row(beside, where).language(given), **given}
        if (self.program is None) == (self.completion is None):
            raise row.wrong("give either 'program', whole code, or 'completion', a model's reply")
        of_cases = "outputs" in given or "assert_case" in given
        whole = Row({"task_id": "request", "prompt": "", **given}, where)
        task = cases.task_of(given, where) if of_cases else jsonl.task_of(whole)
        if self.program is None:
            return Job(task, extract.program(task, row.text("completion")))
        program = row.text("program")
        return Job(task, with_prelude(program) if of_cases and task.entry_point else program)


class BatchRequest(Request):
    """Many programs."""

    jobs: list[JudgeRequest] = Field(min_length=1, max_length=10_000)
    task: dict[str, Any] | None = None
    """The task of the jobs that have none of their own."""

    def all_jobs(self) -> list[Job]:
        """The jobs in their order. Raises DataError."""
        jobs = [one.job(f"job {index}", self.task) for index, one in enumerate(self.jobs)]
        known: dict[Task, Task] = {}
        # equal tasks become one object, which the judge prepares once
        return [replace(one, task=known.setdefault(one.task, one.task)) for one in jobs]


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
        program = extract.program(task, self.completion)
        return program, [Job(replace(task, checks=(check,)), program) for check in task.checks]


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
