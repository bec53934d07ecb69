"""LiveCodeBench: dated problems of LeetCode, AtCoder and Codeforces (arXiv:2403.07974)."""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from assay.errors import SettingsError
from assay.tasks import task_set
from assay.tasks.cases import cases_of, first_block, joined, parsed_json, task_of_cases
from assay.tasks.rows import PublicSet, Row, usable_tasks
from assay.types import Task

VERSIONS = range(1, 7)
RELEASES = (
    *(f"release_v{last}" for last in VERSIONS),
    *(f"v{last}" for last in VERSIONS),
    *(f"v{first}_v{last}" for last in VERSIONS for first in range(1, last)),
)
"""All problems up to a version, those that a version added, and those of several versions."""
DATE = r"\d{4}-\d\d-\d\d"
WINDOW = re.compile(rf"({DATE})?\.\.({DATE})?")
FILE, HUB = "livecodebench/{}.jsonl", "lighteval/code_generation_lite"
LIVECODEBENCH = PublicSet("livecodebench", FILE, HUB, "{}", RELEASES)


@task_set
def livecodebench(split: str = "release_v6") -> Iterator[Task]:
    """LiveCodeBench (arXiv:2403.07974): a release, and a window of contest dates behind a comma:
    `livecodebench:release_v6,2024-08-01..2025-01-31`.
    """
    release, comma, dates = split.partition(",")
    window = WINDOW.fullmatch(dates)
    if comma and not window:
        raise SettingsError(
            f"the window of dates is {dates!r}; write 2024-08-01..2025-01-31, or leave out one end"
        )
    rows = LIVECODEBENCH.rows(release)
    if window:
        first, last = window[1] or "", window[2] or "9999"
        rows = (row for row in rows if first <= row.text("contest_date")[:10] <= last)
    return usable_tasks(rows, task_of)


def task_of(row: Row) -> Task:
    """A row as released, or in the forms of rLLM and SandboxFusion.

    Raises LeftOutError for a row without usable tests, DataError for a malformed one.
    """
    if "labels" in row.fields:
        return _sandboxfusion(row)
    content = "question_content" if "question_content" in row.fields else "problem"
    if "public_test_cases" not in row.fields:
        cases = cases_of(parsed_json(row, "tests"))
    else:
        cases = cases_of(parsed_json(row, "public_test_cases"))
        cases = replace(cases, visible=len(cases.inputs))
        if row.fields.get("private_test_cases"):
            cases = joined(cases, cases_of(_unpacked(row, "private_test_cases")))
    metadata = parsed_json(row, "metadata")
    name = str(metadata.get("func_name") or "") if isinstance(metadata, dict) else ""
    return task_of_cases(
        f"LiveCodeBench/{row.fields.get('question_id') or row.place}",
        row.text(content),
        replace(cases, name=cases.name or name),
        starter=row.text("starter_code", default=""),
    )


def _sandboxfusion(row: Row) -> Task:
    row.require_python(parsed_json(row, "labels"))
    prompt, tests = row.text("content"), _unpacked(row, "test")
    cases = cases_of(tests)
    starter = first_block(prompt) if cases.is_function else ""
    return task_of_cases(f"LiveCodeBench/{row.fields.get('id')}", prompt, cases, starter=starter)


def _unpacked(row: Row, field: str) -> Any:
    """The data of a field: JSON, or base64 of zlib of a pickle whose last string is JSON. The
    pickle is taken apart, never loaded. Raises DataError.
    """
    text = row.text(field)
    try:
        if not text.startswith(("[", "{")):
            pickled = zlib.decompress(base64.b64decode(text, validate=True))
            texts = [it for _, it, _ in pickletools.genops(pickled) if isinstance(it, str)]
            text = texts[-1]
        return json.loads(text)
    except (binascii.Error, zlib.error, ValueError, IndexError, RecursionError) as error:
        raise row.wrong(f"{field!r} holds no test cases ({error}); fix it") from error
