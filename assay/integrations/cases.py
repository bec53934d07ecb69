"""Test cases of PRIME, verl and SandboxFusion: inputs and outputs of a program or a function."""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assay import extract
from assay.tasks import jsonl
from assay.tasks.cases import AGREES, PRELUDE
from assay.tasks.python_source import parsed
from assay.tasks.rows import Row
from assay.types import Task


def task_of(found: object, where: str) -> Task:
    """The task of {"inputs", "outputs"}, with "fn_name" for a function, or of a list of asserts,
    which {"assert_case": [...]} may hold.

    Raises DataError for anything else, beginning with `where`.
    """
    row = Row(found if isinstance(found, Mapping) else {"assert_case": found}, where)
    language = row.language()
    asserts, inputs, outputs = map(row.fields.get, ("assert_case", "inputs", "outputs"))
    if isinstance(asserts, list) and all(isinstance(one, str) for one in asserts):
        fields = {"tests": asserts, "entry_point": _called(asserts, row)}
    elif not isinstance(inputs, list) or not isinstance(outputs, list):
        raise row.wrong(
            'the test cases need lists "inputs" and "outputs", or asserts in a list "assert_case"'
        )
    elif not inputs or len(inputs) != len(outputs):
        raise row.wrong(
            f"{len(inputs)} inputs and {len(outputs)} outputs; give as many of each, and at"
            " least one"
        )
    elif name := row.fields.get("fn_name"):
        fields = _calls(name, inputs, outputs, row)
    else:
        pairs = zip(map(_lines, inputs), map(_lines, outputs), strict=True)
        fields = {"exchanges": [{"stdin": given, "stdout": printed} for given, printed in pairs]}
    return jsonl.task_of(
        Row({"task_id": "cases", "prompt": "", "language": language, **fields}, where)
    )


def cut(task: Task, reply: str) -> str | None:
    """The program in a reply, as `extract.program` cuts it; a class `Solution` may hold the
    function.
    """
    a_class = bool(task.entry_point) and "class Solution" in reply
    return extract.program(replace(task, entry_point="Solution") if a_class else task, reply)


def completed(task: Task, program: str | None) -> str | None:
    """The program with common imports, and a method of `Solution` made a function."""
    if program is None or not task.entry_point:
        return program
    prelude = "" if "from __future__" in program else PRELUDE
    method = (
        f"{task.entry_point} = Solution().{task.entry_point}\n"
        if "class Solution" in program
        else ""
    )
    return f"{prelude}{program}\n{method}"


def _called(asserts: list[str], row: Row) -> str:
    """The first function that the asserts call and that is not a built-in."""
    for node in [
        node for source in asserts for node in ast.walk(parsed(source, row, "assert_case"))
    ]:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and not hasattr(builtins, node.func.id)
        ):
            return node.func.id
    raise row.wrong("no assert calls a function of the program's; give asserts that do")


def _calls(name: object, inputs: list[Any], outputs: list[Any], row: Row) -> dict[str, Any]:
    """A row's fields. An input may be text with a line of JSON per argument, an output JSON."""
    if not isinstance(name, str) or not name.isidentifier():
        raise row.wrong(f"fn_name is {name!r}; give the name of a function")
    try:
        given = [
            list(map(json.loads, text.split("\n"))) if isinstance(text, str) else text
            for text in inputs
        ]
        expected = [json.loads(text) if isinstance(text, str) else text for text in outputs]
    except (ValueError, RecursionError) as error:
        raise row.wrong(
            f"an input or output is not JSON ({error}); write each argument and the result so"
        ) from None
    return {"entry_point": name, "inputs": given, "expected": expected, "checker": AGREES}


def _lines(text: object) -> str:
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)
