"""Tasks whose programs read and print, as the public sets write them: lists of inputs and
outputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from assay.tasks.rows import Row
from assay.types import Exchange, Task

DECIMAL = re.compile(r"(?<!\S)-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE]-\d+)(?!\S)")


def exchanges(
    row: Row, field: str, inputs: Any, outputs: Any, *, hidden: bool = True
) -> tuple[Exchange, ...]:
    """One exchange for each input with its output. Raises DataError where they are no two lists of
    equal length.
    """
    if not (isinstance(inputs, list) and isinstance(outputs, list) and len(inputs) == len(outputs)):
        raise row.wrong(f"{field!r} needs as many outputs as inputs, both in lists")
    return tuple(
        Exchange(text(row, field, stdin), text(row, field, stdout), hidden)
        for stdin, stdout in zip(inputs, outputs, strict=True)
    )


def columns(cases: Sequence[Row], *paths: str) -> Iterator[list[Any]]:
    """For each path, such as `input` or `input.stdin`, the values there in all cases."""
    for path in paths:
        *tables, last = path.split(".")
        yield [reduce(Row.table, tables, case).fields.get(last) for case in cases]


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
    return row.encodable(field, value, "surrogateescape")


def program_task(
    task_id: str, prompt: str, checks: tuple[Exchange, ...], reference: str | None = None
) -> Task:
    """A task whose program reads and prints. Where an expected output holds a decimal fraction, the
    checker is `floats`: such answers have a tolerance.
    """
    checker = "floats" if any(DECIMAL.search(check.stdout) for check in checks) else ""
    return Task(task_id, prompt, checks, "", reference=reference, checker=checker)


def with_parsed(row: Row, *names: str) -> Row:
    """The row, with fields that may be the text of JSON parsed; None where the text is empty.
    Raises DataError.
    """
    texts = {name: text for name in names if isinstance(text := row.fields.get(name), str)}
    try:
        parsed = {name: json.loads(text) if text else None for name, text in texts.items()}
    except (ValueError, RecursionError) as error:
        which = " or ".join(map(repr, texts))
        raise row.wrong(f"{which} is no valid JSON ({error}); fix it") from error
    return Row({**row.fields, **parsed}, row.where)
