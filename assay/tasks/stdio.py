"""Tasks whose programs read and print, as the public sets write them: lists of inputs and
outputs.
"""

from __future__ import annotations

import json
import re
from typing import Any

from assay.tasks.rows import Row
from assay.types import Exchange, Task

DECIMAL = re.compile(r"(?<!\S)-?\d+\.\d+(?!\S)")


def exchanges(
    row: Row, field: str, inputs: Any, outputs: Any, *, hidden: bool = True
) -> tuple[Exchange, ...]:
    """One exchange for each input with its output. Raises DataError where they are no two lists of
    equal length.
    """
    if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)):
        raise row.wrong(f"{field!r} needs as many outputs as inputs, both in lists")
    return tuple(
        Exchange(text(row, field, given), text(row, field, wanted), hidden)
        for given, wanted in zip(inputs, outputs, strict=True)
    )


def text(row: Row, field: str, value: Any) -> str:
    """What is read or printed: a string, or a list of lines, or of one string. Raises DataError for
    anything else.
    """
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise row.wrong(
            f"{field!r} holds {str(value)[:40]}, where a string is read or printed; make it a"
            " string"
        )
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise row.wrong(f"{field!r} holds half a character ({error.reason}); fix it") from None
    return value


def program_task(
    task_id: str, prompt: str, checks: tuple[Exchange, ...], reference: str | None = None
) -> Task:
    """A task whose program reads and prints. Where an expected output holds a decimal fraction, the
    checker is `floats`: such answers have a tolerance.
    """
    checker = "floats" if any(DECIMAL.search(check.stdout) for check in checks) else ""
    return Task(task_id, prompt, checks, "", reference=reference, checker=checker)


def parsed_json(row: Row, field: str) -> Any:
    """A field that is JSON, or the text of JSON; None where it is empty. Raises DataError."""
    value = row.fields.get(field)
    if not isinstance(value, str) or not value:
        return value or None
    try:
        return json.loads(value)
    except ValueError as error:
        raise row.wrong(f"{field!r} is no valid JSON ({error}); fix it") from error
