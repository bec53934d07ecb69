"""What clients ask of the service in JSON: in assay's own form, and in SandboxFusion's."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from assay import extract
from assay.errors import DataError
from assay.integrations import case_rows
from assay.judge import Job
from assay.judges.terms import key_of
from assay.sandbox.program import FETCHED, Folder
from assay.task_specs import names_files, split_spec
from assay.tasks import exact, jsonl, load
from assay.tasks.cases import with_prelude
from assay.tasks.rows import Row
from assay.types import Task

Fields = Mapping[str, Any]
SETS = 4
"""Task sets that stay loaded."""
PLAIN = re.compile(r"[\w.-]*")
"""A split that is no path."""
FOLDERS = ("tree", "test_script")
"""Fields that name a folder of this machine."""
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


MOST_CHECKS, MOST_CODE = 5_000, 1 << 20
"""Checks of a task, and characters of Python in it. The largest of the public sets have 1,100 and
13,000. What the service itself does of a task, it does in some milliseconds for 1,000 checks."""
CODE = ("tests", "test", "test_list", "assert_case", "setup", "reference", "canonical_solution",
        "checker", "stub", "prompt")  # fmt: skip
"""Fields of a task that may be Python."""
CODE_OF_CHECKS = ("source", "module", "code")


class Request(BaseModel):
    """Base of the requests; OpenAPI shows the docstrings of classes and fields."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="allow")

    def work(self) -> Work:
        """What there is to do. Raises DataError."""
        return Work(self)


@dataclass(frozen=True, slots=True)
class Work:
    """What a request asks for."""

    request: Request | None
    """Absent where the jobs say all."""
    jobs: Sequence[Job] = ()
    program: str | None = None
    """The program of all jobs, where they share it."""
    key: str | None = None
    """Of the only job's task, where the client names it later by that."""


ReadTasks = dict[tuple[int, str], Task]
"""Tasks by the id of their fields, which somebody holds, and their language or key."""


def require_allowed(fields: Fields, where: str) -> None:
    """Raises DataError for a task that no client may send."""
    rows = fields, *Row(fields, where).items("checks", dict)
    if any(name in row for row in rows for name in FOLDERS):
        raise DataError(f"{where}: a repository's tree is a folder here, which no client may name")
    _require_bounded(fields, where)


def _require_bounded(fields: Fields, where: str) -> None:
    """Raises DataError for a task that holds too much."""
    checks = [check for check in _listed(fields.get("checks")) if isinstance(check, Mapping)]
    parts = [*(fields.get(name) for name in CODE), *(each.get(it) for each in checks
             for it in CODE_OF_CHECKS)]  # fmt: skip
    texts = [text for part in parts for text in _listed(part) if isinstance(text, str)]
    if sum(map(len, texts)) > MOST_CODE:
        raise DataError(
            f"{where}: its task has more than 1 MiB of code; split it into several tasks"
        )
    counts = [len(_listed(fields.get(name))) for name in ("inputs", "exchanges", "checks", "tests")]
    if max(counts) > MOST_CHECKS:
        raise DataError(
            f"{where}: its task has more than {MOST_CHECKS:,} checks; split it into several"
        )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


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

    def work(self) -> Work:
        """Its job; or itself, where that names a task that was sent before. Raises DataError."""
        if self.task_key is not None and self.task is None:
            return Work(self)
        sent = dict[str, Task]()
        return Work(None, [self.job(sent=sent)], key=next(iter(sent), None))

    def job(
        self, where: str = "the request", common: Fields | None = None,
        sent: MutableMapping[str, Task] | None = None, read: ReadTasks | None = None,
    ) -> Job:  # fmt: skip
        """The program and its task, else the `common` one, else the one of the fields beside it.
        `sent` are whole tasks by their keys, `read` those of fields that were read before. Raises
        DataError, beginning with `where`.
        """
        beside = self.model_extra or {}
        fields = next((task for task in (self.task, common) if task is not None), beside)
        row = Row({"program": self.program, "completion": self.completion}, where)
        is_exact, read = fields.get("format") == exact.FORMAT, {} if read is None else read
        if is_exact or self.task_key is not None:
            place = id(fields), "" if is_exact else str(self.task_key)
            if place not in read:
                require_allowed(fields, where)
                read[place] = self._whole_task(fields, where, {} if sent is None else sent)
            return Job(read[place], row.text("program"))
        place = id(fields), Row(beside, where).language(fields)
        if (self.program is None) == (self.completion is None):
            raise row.wrong("give either 'program', whole code, or 'completion', a model's reply")
        of_cases = "outputs" in fields or "assert_case" in fields
        if place not in read:
            require_allowed(fields, where)
            fields = {"language": place[1], **fields}
            whole = Row({"task_id": "request", "prompt": "", **fields}, where)
            read[place] = case_rows.task_of(fields, where) if of_cases else jsonl.task_of(whole)
        task = read[place]
        if self.program is None:
            return Job(task, extract.program(task, row.text("completion")))
        program = row.text("program")
        return Job(task, with_prelude(program) if of_cases and task.entry_point else program)

    def _whole_task(self, fields: Fields, where: str, sent: MutableMapping[str, Task]) -> Task:
        key = self.task_key
        if fields.get("format") == exact.FORMAT:
            key = key_of(fields)
            sent[key] = sent.get(key) or exact.task_of(Row(fields, where))
        if key is None or key not in sent:
            raise UnknownTaskError(f"{where}: its task is not known; send it whole")
        return sent[key]


class UnknownTaskError(DataError):
    """A task was named by its key, and was never sent, or was dropped."""


class BatchRequest(Request):
    """Many programs."""

    jobs: list[JudgeRequest] = Field(min_length=1, max_length=10_000)
    task: dict[str, Any] | None = None
    """The task of the jobs that have none of their own."""

    def work(self) -> Work:
        """Its jobs. Raises DataError."""
        return Work(None, self.all_jobs())

    def all_jobs(self) -> list[Job]:
        """The jobs in their order. Raises DataError."""
        read: ReadTasks = {}
        jobs = [job.job(f"job {at}", self.task, read=read) for at, job in enumerate(self.jobs)]
        first_equal: dict[Task, Task] = {}
        tasks = {id(job.task): job.task for job in jobs}  # a comparison reads all of a task
        first = {at: first_equal.setdefault(task, task) for at, task in tasks.items()}
        # equal tasks become one object, which the judge prepares once
        return [replace(job, task=first[id(job.task)]) for job in jobs]


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

    def work(self) -> Work:
        """The program cut from the completion, and a job for each case. Raises DataError."""
        name = self.pairs.fn_name if self.pairs.of_function else None
        if self.pairs.of_function and not name:
            raise DataError(
                "test cases of type function_call need 'fn_name', the function's name; add it"
            )
        fields = {"inputs": self.pairs.input, "outputs": self.pairs.output, "fn_name": name,
                 "language": self.config.language}  # fmt: skip
        _require_bounded(fields, "test_cases")
        task = case_rows.task_of(fields, "test_cases")
        program = extract.program(task, self.completion)
        jobs = [Job(replace(task, checks=(check,)), program) for check in task.checks]
        return Work(self, jobs, program)


def tasks_of(dataset: str) -> dict[str, Task]:
    """The tasks of a set by their ids. Raises DataError for files or folders, and as `load`."""
    name, split = split_spec(dataset)
    is_path = names_files(split) or not PLAIN.fullmatch(split)
    if name == "jsonl" or is_path or (name in OF_FOLDERS and split and Path(split).exists()):
        raise DataError("dataset: files are not supported; name a task set, or ask /judge")
    return {task.id: task for task in _loaded(dataset)}


_loaded = lru_cache(SETS)(load)
