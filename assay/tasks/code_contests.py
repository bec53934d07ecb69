"""CodeContests: competitive programming from Codeforces, CodeChef and others (arXiv:2203.07814)."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tasks import task_set
from assay.tasks.rows import PublicSet, Row
from assay.tasks.stdio import exchanges, parsed_json, program_task
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
    return map(task_of, CODE_CONTESTS.rows(split))


def task_of(row: Row) -> Task:
    """A row with DeepMind's `description` and `public_tests`..., or SandboxFusion's `content` and
    `test`.

    Raises DataError when a field is missing or malformed.
    """
    if "content" in row.fields:
        row.require_python(parsed_json(row, "labels"))
        cases = parsed_json(row, "test")
        if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
            raise row.wrong("'test' is no list of cases; fix it")
        inputs = [(case.get("input") or {}).get("stdin") for case in cases]
        checks = exchanges(
            row, "test", inputs, [(case.get("output") or {}).get("stdout") for case in cases]
        )
        name, prompt, reference = f"CodeContests/{row.fields.get('id')}", row.text("content"), None
    else:
        parts = {
            field: row.fields.get(field) or {}
            for field in ("public_tests", "private_tests", "generated_tests")
        }
        checks = tuple(
            exchange
            for field, part in parts.items()
            for exchange in exchanges(
                row, field, part.get("input", []), part.get("output", []), hidden=field[1] != "u"
            )
        )
        name, prompt = f"CodeContests/{row.text('name')}", row.text("description")
        reference = _solution(row)
    return program_task(name, prompt, checks, reference)


def _solution(row: Row) -> str | None:
    given = row.fields.get("solutions") or {}
    pairs = zip(given.get("language", []), given.get("solution", []), strict=False)
    return next((str(source) for language, source in pairs if language == PYTHON3), None)
