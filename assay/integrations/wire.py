"""The service's requests and answers in JSON: assay's own, and SandboxFusion's."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from assay import extract
from assay.errors import DataError
from assay.files import split_spec
from assay.integrations import cases
from assay.integrations.notebook import RESULTS
from assay.judge import Job, Run
from assay.judges.terms import key_of
from assay.languages import language_named
from assay.prompts import messages
from assay.sandbox.program import FETCHED, Folder
from assay.tasks import exact, is_file, jsonl, load
from assay.tasks.cases import with_prelude
from assay.tasks.rows import Row
from assay.types import Execution, Task, Verdict

Fields = Mapping[str, Any]
SETS = 4
"""Task sets that stay loaded."""
PLAIN = re.compile(r"[\w.-]*")
"""A split that is no path."""
OF_FOLDERS = ("harbor", "rtllm", "swe_bench")
"""Task sets whose split may be a folder of any name."""


def _known(language: str) -> str:
    return Row({"language": language}, "the request").language()


def _unused(value: object) -> object:
    if value:
        raise ValueError("this field of SandboxFusion's is not supported here; leave it out")
    return value


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if not (path.name and name.isprintable()) or path.is_absolute() or ".." in path.parts:
        raise ValueError("only files below the program's own folder are supported: folder/name")
    return str(path)


Known = Annotated[str, AfterValidator(_known)]
Unused = Annotated[Any, AfterValidator(_unused)]
Name = Annotated[str, AfterValidator(_inside)]
Data = Annotated[bytes, BeforeValidator(partial(base64.b64decode, validate=True))]


class Request(BaseModel):
    """Base of the requests; OpenAPI shows the docstrings of classes and fields."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")


class JudgeRequest(Request):
    """A program and its task. The task's fields may also stand beside the program."""

    task: dict[str, Any] | None = None
    """A row of a task file without id and prompt, with `tests` and `entry_point`, or `exchanges`.
    Or test cases: `inputs` and `outputs`, with `fn_name` for a function; or `assert_case`. Or a
    whole task in assay's own format (tasks/exact.py)."""
    task_key: str | None = None
    """The key of such a task that was sent before (judges/terms.py), instead of it."""
    program: str | None = None
    """A whole program; give either this or `completion`."""
    completion: str | None = None
    """A model's reply, from which the program is cut."""

    def job(
        self, where: str = "the request", common: Fields | None = None,
        sent: MutableMapping[str, Task] | None = None,
    ) -> Job:  # fmt: skip
        """The program and its task, else the `common` one, else the one of the fields beside it.
        `sent` are whole tasks by their keys. Raises DataError, beginning with `where`.
        """
        beside = self.model_extra or {}
        fields = next((task for task in (self.task, common) if task is not None), beside)
        row = Row({"program": self.program, "completion": self.completion}, where)
        sent, key = {} if sent is None else sent, self.task_key
        if any("tree" in row for row in (fields, *Row(fields, where).items("checks", dict))):
            raise row.wrong("a repository's tree is a folder here, which no client may name")
        if fields.get("format") == exact.FORMAT:
            key = key_of(fields)
            sent[key] = sent.get(key) or exact.task_of(Row(fields, where))
        if key is not None:
            if key not in sent:
                raise UnknownTaskError(f"{where}: its task is not known; send it whole")
            return Job(sent[key], row.text("program"))
        fields = {"language": Row(beside, where).language(fields), **fields}
        if (self.program is None) == (self.completion is None):
            raise row.wrong("give either 'program', whole code, or 'completion', a model's reply")
        of_cases = "outputs" in fields or "assert_case" in fields
        whole = Row({"task_id": "request", "prompt": "", **fields}, where)
        task = cases.task_of(fields, where) if of_cases else jsonl.task_of(whole)
        if self.program is None:
            return Job(task, extract.program(task, row.text("completion")))
        program = row.text("program")
        return Job(task, with_prelude(program) if of_cases and task.entry_point else program)


class UnknownTaskError(DataError):
    """A task was named by its key, and was never sent, or was dropped."""


class BatchRequest(Request):
    """Many programs."""

    jobs: list[JudgeRequest] = Field(min_length=1, max_length=10_000)
    task: dict[str, Any] | None = None
    """The task of the jobs that have none of their own."""

    def all_jobs(self) -> list[Job]:
        """The jobs in their order. Raises DataError."""
        jobs = [job.job(f"job {index}", self.task) for index, job in enumerate(self.jobs)]
        first_equal: dict[Task, Task] = {}
        # equal tasks become one object, which the judge prepares once
        return [replace(job, task=first_equal.setdefault(job.task, job.task)) for job in jobs]


class FolderRequest(Request):
    """Files of a program's folder."""

    files: dict[Name, Data | None] | None = None
    """Files that lie in the folder, in base64, by their paths."""
    fetch_files: list[Name] | None = Field(None, max_length=FETCHED - 1)
    """Files to hand back in base64, where the program makes them."""

    def folder(self, source: str, *fetch: str) -> Folder:
        """The folder; `fetch` are more files to hand back. Raises DataError for a file that has the
        name of the program's own `source`.
        """
        if source in (self.files or ()):
            raise DataError(f"files: {source!r} is the program's own file; give another name")
        files = {name: data for name, data in (self.files or {}).items() if data is not None}
        return Folder(files, (*fetch, *(self.fetch_files or ())))


class RunRequest(FolderRequest):
    """SandboxFusion's RunCodeRequest; its other fields change nothing."""

    code: str
    language: Known
    stdin: str | None = None
    run_timeout: float = Field(10, gt=0, le=3600)
    """Seconds of wall time, waiting for a core included; and of CPU time."""
    args: Unused = None


class JupyterRequest(FolderRequest):
    """SandboxFusion's RunJupyterRequest; its other fields change nothing."""

    cells: list[str]
    """Python, without IPython's `%` and `!`."""
    cell_timeout: float = Field(0, ge=0, le=3600)
    """Seconds after which a cell gets a TimeoutError; 0 for none."""
    total_timeout: float = Field(45, gt=0, le=3600)
    """As `run_timeout` of /run_code, for all cells together."""
    kernel: Literal["python3"] = "python3"


class CellResult(BaseModel):
    """What came of a cell."""

    stdout: str
    stderr: str
    display: list[dict[str, Any]]
    error: list[dict[str, Any]]


class SetConfig(Request):
    """Options; the service's limits hold, and the set says the language."""

    custom_extract_logic: Unused = None
    provided_data: Unused = None
    is_fewshot: Unused = None


class PromptsRequest(Request):
    """SandboxFusion's GetPromptsRequest."""

    dataset: str
    """A task set, with a split if it has some: `humaneval`, `mbpp:test`."""
    config: SetConfig = SetConfig()
    offset: int = Field(0, ge=0)
    limit: int = Field(1_000_000, ge=0)


class SubmitRequest(Request):
    """SandboxFusion's SubmitRequest."""

    dataset: str
    """As in /get_prompts."""
    id: int | str
    """The id of one of its prompts."""
    completion: str
    config: SetConfig = SetConfig()


class Pairs(Request):
    """Inputs of test cases, and the outputs that they must give."""

    input: list[Any]
    output: list[Any]
    type: Literal["stdin_stdout", "function_call"] | None = None
    fn_name: str | None = None

    @property
    def of_function(self) -> bool:
        """Whether the cases call a function; otherwise they run a program."""
        return self.type == "function_call" or (self.type is None and bool(self.fn_name))


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

    def program_and_jobs(self) -> tuple[str | None, list[Job]]:
        """The program cut from the completion, and a job for each case. Raises DataError."""
        name = self.pairs.fn_name if self.pairs.of_function else None
        if self.pairs.of_function and not name:
            raise DataError(
                "test cases of type function_call need 'fn_name', the function's name; add it"
            )
        fields = {"inputs": self.pairs.input, "outputs": self.pairs.output, "fn_name": name,
                 "language": self.config.language}  # fmt: skip
        task = cases.task_of(fields, "test_cases")
        program = extract.program(task, self.completion)
        return program, [Job(replace(task, checks=(check,)), program) for check in task.checks]


def tasks_of(dataset: str) -> dict[str, Task]:
    """The tasks of a set by their ids. Raises DataError for files or folders, and as `load`."""
    name, split = split_spec(dataset)
    is_path = is_file(split) or not PLAIN.fullmatch(split)
    if name == "jsonl" or is_path or (name in OF_FOLDERS and split and Path(split).exists()):
        raise DataError("dataset: files are not supported; name a task set, or ask /judge")
    return {task.id: task for task in _loaded(dataset)}


_loaded = lru_cache(SETS)(load)


def prompts_answer(tasks: Iterable[Task], request: PromptsRequest) -> list[dict[str, Any]]:
    """SandboxFusion's list of Prompts."""
    return [
        {"id": task.id, "prompt": "\n\n".join(message.content for message in messages(task)),
         "labels": {"programming_language": task.language}}
        for task in islice(tasks, request.offset, request.offset + request.limit)
    ]  # fmt: skip


def run_answer(run: Run) -> dict[str, Any]:
    """SandboxFusion's RunCodeResponse. As there, a syntax error of Python is a failed run; only a
    failure of the machine is an Error.
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
    if execution.verdict is Verdict.INFRA:
        return "SandboxError", execution.detail
    return "Success" if execution.verdict is Verdict.PASS else "Failed", ""


def _command(execution: Execution) -> dict[str, Any]:
    """SandboxFusion's CommandRunResult."""
    infra, timeout = execution.verdict is Verdict.INFRA, execution.verdict is Verdict.TIMEOUT
    passed = execution.verdict is Verdict.PASS
    return {
        "status": "Error" if infra else "TimeLimitExceeded" if timeout else "Finished",
        "execution_time": execution.wall_seconds,
        "return_code": None if infra or timeout else 0 if passed else _return_code(execution),
        "stdout": execution.output,
        "stderr": execution.stderr if passed or execution.stderr else execution.detail,
    }


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


def _return_code(execution: Execution) -> int:
    exited = re.match(r"exited with status (\d+)", execution.detail)
    return int(exited[1]) if exited else 1
