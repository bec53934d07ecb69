"""APPS: programs that read and print, and functions, from coding sites (arXiv:2105.09938)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from assay.judge.codec import Packer
from assay.tasks import task_set
from assay.tasks.rows import PublicSet, Row, warn_once
from assay.tasks.stdio import columns, exchanges, program_task, with_parsed
from assay.types import Call, Task

APPS = PublicSet("apps", "apps/selected150.jsonl.gz", "codeparrot/apps")
FUNCTION = re.compile(r"^def (\w+)\((.*)\):", re.MULTILINE)


@task_set
def apps(split: str = "all") -> Iterator[Task]:
    """APPS (arXiv:2105.09938): MapCoder's selection of 150, or rows of the whole set. It leaves
    out unclear ones.
    """
    ids: set[str] = set()
    for row in APPS.rows(split):
        task = task_of(row)
        if task is None:
            warn_once(f"{row.where}: left out: its inputs are not the arguments of its function")
        elif task.id not in ids:
            yield task
        ids.add(task.id if task else "")


def task_of(row: Row) -> Task | None:
    """A row of the hub's (`question`, `input_output`) or MapCoder's (`description`, `test_list`,
    `sample_io`).

    None where the inputs do not say what the function is called with. Raises DataError for a
    malformed row.
    """
    if "question" in row.fields:
        row = with_parsed(row, "input_output", "solutions")
        tests = row.table("input_output")
        name, prompt = str(row.fields.get("problem_id")), row.text("question")
        reference = next(iter(row.texts("solutions")), None)
        inputs, outputs = tests.items("inputs"), tests.items("outputs")
    else:
        cases = [*row.tables("sample_io"), *row.tables("test_list")]
        name, prompt, reference = str(row.fields.get("id")), row.text("description"), None
        inputs, outputs = columns(cases, "input", "output")
    task_id, stub = f"APPS/{name}", row.text("starter_code", default="")
    if not stub:
        return program_task(task_id, prompt, exchanges(row, "tests", inputs, outputs), reference)
    header = FUNCTION.search(stub)
    if header and "question" not in row.fields:
        inputs = _arguments(inputs, header[2])
    is_call = all(isinstance(arguments, list) for arguments in inputs)
    if header is None or not is_call or len(inputs) != len(outputs):
        return None
    calls = tuple(
        Call(
            Packer().text(arguments),
            Packer().text(output[0] if isinstance(output, list) and output else output),
        )
        for arguments, output in zip(inputs, outputs, strict=True)
    )
    return Task(
        task_id, f"{prompt.rstrip()}\n\n{stub.strip()}\n", calls, header[1], reference=reference
    )


def _arguments(inputs: list[Any], parameters: str) -> list[list[Any]]:
    """MapCoder's inputs as arguments: a line each; a parameter whose lines are not all literals
    takes strings. Empty where an input has another number of lines.
    """
    count = len([name for name in parameters.split(",") if name.strip()])
    rows = [str(text).split("\n") if count > 1 else [str(text)] for text in inputs]
    if any(len(row) != count for row in rows):
        return []
    by_parameter = [_values(list(lines)) for lines in zip(*rows, strict=True)]
    return [list(row) for row in zip(*by_parameter, strict=True)]


def _values(lines: list[str]) -> list[Any]:
    try:
        return [ast.literal_eval(line) for line in lines]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return lines
