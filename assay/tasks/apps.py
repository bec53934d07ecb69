"""APPS: programs that read and print, and functions, from coding sites (arXiv:2105.09938)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from assay.tasks import task_set
from assay.tasks.cases import Cases, question_task, task_of_cases
from assay.tasks.rows import LeftOutError, PublicSet, Row, usable_tasks
from assay.tasks.stdio import columns, exchanges, program_task
from assay.types import Task

APPS = PublicSet("apps", "apps/selected150.jsonl.gz", "codeparrot/apps")
FUNCTION = re.compile(r"^def (\w+)\((.*)\):", re.MULTILINE)


@task_set
def apps(split: str = "all") -> Iterator[Task]:
    """APPS (arXiv:2105.09938): MapCoder's selection of 150, or rows of the whole set. It leaves
    out unclear ones.
    """
    ids: set[str] = set()
    for task in usable_tasks(APPS.rows(split), task_of):
        if task.id not in ids:
            yield task
        ids.add(task.id)


def task_of(row: Row) -> Task:
    """A row of the hub's (`question`, `input_output`) or MapCoder's (`description`, `test_list`,
    `sample_io`).

    Raises LeftOutError where the inputs do not say what the function is called with, DataError for
    a malformed row.
    """
    if "question" in row.fields:
        return question_task(f"APPS/{row.fields.get('problem_id', row.place)}", row)
    tests = [*row.tables("sample_io"), *row.tables("test_list")]
    inputs, outputs = columns(tests, "input", "output")
    task_id, prompt = f"APPS/{row.fields.get('id')}", row.text("description")
    stub = row.text("starter_code", default="")
    if not stub:
        return program_task(task_id, prompt, exchanges(row, "tests", inputs, outputs))
    header = FUNCTION.search(stub)
    if header is None:
        raise LeftOutError("whose starter code defines no function")
    values = [output[0] if isinstance(output, list) and output else output for output in outputs]
    cases = Cases(_arguments(inputs, header[2]), values, is_function=True, name=header[1])
    return task_of_cases(task_id, prompt, cases, starter=stub)


def _arguments(inputs: list[Any], parameters: str) -> list[list[Any]]:
    """MapCoder's inputs as arguments: a line each; a parameter whose lines are not all literals
    takes strings. Raises LeftOutError where an input has another number of lines.
    """
    count = len([name for name in parameters.split(",") if name.strip()])
    rows = [str(text).split("\n") if count > 1 else [str(text)] for text in inputs]
    if any(len(row) != count for row in rows):
        raise LeftOutError("whose inputs are no arguments")
    by_parameter = [_values(list(lines)) for lines in zip(*rows, strict=True)]
    return [list(row) for row in zip(*by_parameter, strict=True)]


def _values(lines: list[str]) -> list[Any]:
    try:
        return [ast.literal_eval(line) for line in lines]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return lines
