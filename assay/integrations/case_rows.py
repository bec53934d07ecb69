"""Test cases of PRIME, verl and SandboxFusion: inputs and outputs of a program or a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from assay.tasks import jsonl
from assay.tasks.cases import PRELUDE, cases_of, task_of_cases
from assay.tasks.published import called_by
from assay.tasks.rows import LeftOutError, Row
from assay.types import Task


def task_of(fields: object, where: str) -> Task:
    """The task of {"inputs", "outputs"}, with "fn_name" for a function, or of a list of asserts,
    which {"assert_case": [...]} may hold.

    Raises DataError for anything else, beginning with `where`.
    """
    row = Row(fields if isinstance(fields, Mapping) else {"assert_case": fields}, where)
    asserts, language = row.fields.get("assert_case"), row.language()
    if isinstance(asserts, list) and all(isinstance(line, str) for line in asserts):
        fields = {"task_id": "cases", "prompt": "", "language": language, "tests": asserts}
        fields["entry_point"] = called_by(asserts, row)
        return replace(jsonl.task_of(Row(fields, where)), stub=PRELUDE)
    try:
        return replace(task_of_cases("cases", "", cases_of(row.fields)), language=language)
    except LeftOutError as reason:
        raise row.wrong(
            f'test cases {reason}; give lists "inputs" and "outputs" of the same length, with'
            ' "fn_name" for a function, or asserts in a list "assert_case"'
        ) from None
