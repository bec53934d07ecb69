"""Tasks of your own: JSON lines in assay's, HumanEval's or MBPP's format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from assay.errors import SettingsError
from assay.judge.checkers import CHECKERS
from assay.tasks import mbpp, task_set
from assay.tasks.python_source import called, defines, parsed, without
from assay.tasks.rows import Row, file_rows
from assay.tasks.stdio import exchanges
from assay.types import Check, Task


@task_set
def jsonl(file: str = "") -> Iterator[Task]:
    """Tasks from a file of JSON lines (or a JSON array, or either gzip'd): `jsonl:my.jsonl`."""
    if not file:
        raise SettingsError("the task set jsonl needs a file; write jsonl:PATH")
    return map(task_of, file_rows(Path(file)))


def task_of(row: Row) -> Task:
    """A row in any of the three formats.

    assay's own fields: `task_id` or `id`; `prompt`; `tests` (a list of Python, each item one check) or `test` (a
    `def check(candidate)`, or a script); `entry_point`, unless the tests call a function that the reference defines;
    and, as wanted, `reference` (a whole program) or `canonical_solution` (what completes the stub), `stub` (code to be
    completed; the prompt when that defines the entry point), `setup`, `demonstrations`, `language`.
    A program that reads and prints has `exchanges`, a list of objects with `stdin` and `stdout`, instead of tests, and,
    as wanted, a `checker`: exact, lines (the default), tokens, floats, unordered, or Python that defines
    `check(stdin, output, expected)`. Raises DataError when a field is missing or malformed.
    """
    if "test_list" in row.fields:
        return mbpp.task_of(row)
    if "exchanges" in row.fields:
        return _program(row)
    prompt, language, entry_point = row.text("prompt"), row.text("language", default="python"), _entry_point(row)
    stub = row.text("stub", default="") or (prompt if _defines(prompt, entry_point) else "")
    setup = row.text("setup", default="")
    if stub and not setup and language == "python":
        setup = without(stub, parsed(stub, row, "stub" if "stub" in row.fields else "prompt"), entry_point)
    return Task(
        id=_id(row),
        prompt=prompt,
        checks=tuple(Check(source) for source in _checks(row, entry_point)),
        entry_point=entry_point,
        language=language,
        stub=stub,
        setup=setup,
        reference=_reference(row, stub, entry_point),
        demonstrations=row.texts("demonstrations"),
    )


def _program(row: Row) -> Task:
    """A task of exchanges."""
    given = row.fields["exchanges"]
    if not isinstance(given, list) or not all(isinstance(exchange, dict) for exchange in given):
        raise row.wrong("'exchanges' is no list of objects; give each a 'stdin' and a 'stdout'")
    stdin, stdout = ([exchange.get(name) for exchange in given] for name in ("stdin", "stdout"))
    checker = row.text("checker", default="")
    if checker and checker not in CHECKERS and not defines(parsed(checker, row, "checker"), "check"):
        raise row.wrong(f"'checker' is neither one of {', '.join(CHECKERS)} nor Python that defines `check`")
    return Task(
        id=_id(row),
        prompt=row.text("prompt"),
        checks=exchanges(row, "exchanges", stdin, stdout),
        entry_point="",
        language=row.text("language", default="python"),
        reference=row.text("reference", default="") or None,
        checker=checker,
        demonstrations=row.texts("demonstrations"),
    )


def _id(row: Row) -> str:
    value = row.fields.get("task_id", row.fields.get("id"))
    if not isinstance(value, str | int):
        raise row.wrong("neither 'task_id' nor 'id' names the task; add one")
    return str(value)


def _tests(row: Row) -> tuple[str, ...]:
    if ("tests" in row.fields) == ("test" in row.fields):
        raise row.wrong("give either 'tests', a list of asserts, or 'test', a `def check(candidate)`")
    tests = row.texts("tests") if "tests" in row.fields else (row.text("test"),)
    if not any(test.strip() for test in tests):
        raise row.wrong("has no tests; add an assert, or take the row out")
    return tests


def _checks(row: Row, entry_point: str) -> Iterator[str]:
    for source in _tests(row):
        tree = parsed(source, row, "tests" if "tests" in row.fields else "test")
        calls_itself = re.search(r"^check\(", source, re.MULTILINE)
        yield f"{source}\n\ncheck({entry_point})" if defines(tree, "check") and not calls_itself else source


def _reference(row: Row, stub: str, entry_point: str) -> str | None:
    solution = row.text("canonical_solution", default="")
    whole = row.text("reference", default="") or (solution if _defines(solution, entry_point) else "")
    return whole or (stub + solution if solution else None)


def _entry_point(row: Row) -> str:
    if row.fields.get("entry_point") is not None:
        return row.text("entry_point")
    tests = [parsed(test, row, "tests") for test in _tests(row)]
    field = "reference" if "reference" in row.fields else "canonical_solution"
    found = called(tests, parsed(row.text(field, default=""), row, field))
    if found is None:
        raise row.wrong("'entry_point' is missing; add the name of the function that the tests call")
    return found


def _defines(source: str, name: str) -> bool:
    return re.search(rf"^(async\s+)?(def|class)\s+{re.escape(name)}\b", source, re.MULTILINE) is not None
