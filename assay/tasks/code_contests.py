"""CodeContests: competitive programming from Codeforces, CodeChef and others (arXiv:2203.07814)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from assay.tasks import task_set
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.tasks.stdio import columns, exchanges, program_task, with_parsed
from assay.types import Task

CODE_CONTESTS = PublicSet(
    "code_contests", "codecontests/code_contests_20.jsonl.gz", "deepmind/code_contests"
)
PYTHON3 = 3
"""The number of Python 3 among the languages of `solutions`."""


@task_set
def code_contests(split: str = "all") -> Iterator[Task]:
    """CodeContests: programs that read and print (arXiv:2203.07814), in DeepMind's rows or
    SandboxFusion's.
    """
    return usable_tasks(CODE_CONTESTS.rows(split), task_of)


def task_of(row: Row) -> Task:
    """A row with DeepMind's `description` and `public_tests`..., or SandboxFusion's `content` and
    `test`.

    Raises LeftOutError for a row whose programs read or write a file, DataError for a malformed
    one.
    """
    if row.fields.get("input_file") or row.fields.get("output_file"):
        raise LeftOutError("whose programs read or write a file")
    if "content" in row.fields:
        row = with_parsed(row, "labels", "test")
        language = row.language(row.fields.get("labels"))
        ends = columns(row.tables("test"), "input.stdin", "output.stdout")
        checks = exchanges(row, "test", *ends)
        name, prompt, reference = f"CodeContests/{row.fields.get('id')}", row.text("content"), None
    else:
        checks, language = (), "python"
        for field in ("public_tests", "private_tests", "generated_tests"):
            part, hidden = row.table(field), field != "public_tests"
            checks += exchanges(
                row, field, part.items("input"), part.items("output"), hidden=hidden
            )
        name, prompt = f"CodeContests/{row.text('name')}", row.text("description")
        reference = _solution(row)
    return replace(program_task(name, prompt, checks, reference), language=language)


def _solution(row: Row) -> str | None:
    solutions = row.table("solutions")
    pairs = zip(solutions.items("language"), solutions.texts("solution"), strict=False)
    return next((source for language, source in pairs if language == PYTHON3), None)
