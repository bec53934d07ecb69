"""Maps the columns of a user's rows to the fields of a task: as they say, or as a guess to offer.

A row of our own format has the fields in FIELDS. `columns` renames those that a file calls by other
names; a row that has no task is refused with the columns that it has and the likeliest names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

from assay.errors import DataError, SettingsError
from assay.suggestions import suggest
from assay.task_specs import DataName
from assay.tasks.conversation import decoded

OF_FUNCTIONS = {"tests", "test", "inputs", "cases"}
TESTS = OF_FUNCTIONS | {"exchanges", "test_list", "checks", "expected_answer", "tree"}
"""A row with one of these fields is a task; any other is only for SFT."""
PROMPTS = {"prompt", "messages", "text"}
REPLIES = {"completion", "answer", "messages"}
LEARNED = REPLIES | {"demonstrations", "reference"}
FIELDS_ELSEWHERE = {
    "solution": "reference", "solutions": "reference", "canonical": "reference",
    "messages": "prompt", "question": "prompt", "instruction": "prompt", "problem": "prompt",
    "description": "prompt", "outputs": "expected", "function_name": "entry_point",
    "conversations": "messages", "output": "completion", "response": "completion",
    "final_answer": "expected_answer", "ground_truth": "expected_answer",
    "fn_name": "entry_point", "func_name": "entry_point", "starter_code": "stub",
    "test_cases": "tests", "testcases": "tests", "unit_tests": "tests", "public_tests": "tests",
    "input_output": "tests", "functions": "tools",
}  # fmt: skip
"""What other sets call a field, and what assay does."""
SAME = (PROMPTS, TESTS, {"reference", "canonical_solution", "code"}, {"id", "task_id"})
"""Fields that say the same: where a user names a column for one of them, only what is named
counts."""
AS_TEXT: dict[str, Any] = {
    **dict.fromkeys(("tests", "test_list", "test_imports", "demonstrations"), str),
    **dict.fromkeys(("exchanges", "checks", "prompt", "messages"), dict),
    "inputs": list, "expected": object,
}  # fmt: skip
"""Lists that a table may hold as JSON text, and what their items have to be."""
JSON_BEGINS = "[{-0123456789"
"""How the JSON text of a list, an object or a number begins."""
PEEK = 100
"""Rows whose columns are looked at: rows of JSON need not all have the same."""
NEEDED = (
    "a task needs 'prompt' and tests ('tests', 'test', 'inputs', 'cases', 'exchanges' or"
    " 'expected_answer'), a row for SFT 'prompt' and 'completion', or 'messages'"
)
PROMPT_WORDS = ("prompt", "question", "problem", "instruction", "description", "statement", "query",
                "task", "text", "content")  # fmt: skip
CODE = re.compile(r"^\s*(?:assert\b|def (?:check|test)\w*\()", re.MULTILINE)
OFFERED = re.compile(r"[\w .-]{1,40}")
"""A column that an error offers to name: it is written to be pasted, and strangers chose it."""
MOST_NAMES, LONGEST = 20, 40
"""Columns that an error lists, and letters of each."""


def renamed(rows: Iterator[tuple[str, object]], name: DataName) -> Iterator[tuple[str, object]]:
    """The rows, each with its place, with the columns that `name` maps under the fields' names.
    Raises DataError for a column that the first rows do not have.
    """
    first = list(islice(rows, PEEK))
    _require_columns([fields for _, fields in first if isinstance(fields, dict)], name)
    for where, fields in chain(first, rows):
        if not isinstance(fields, dict):
            yield where, fields
            continue
        sources = {*name.columns.values()}
        rest = {key: value for key, value in fields.items() if key not in sources}
        mapped = {field: _member(fields, column) for field, column in name.columns.items()}
        yield where, rest | mapped


def only_named(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a row of our own format that count where `columns` has these `names`: those,
    and the file's own that say something else. Other columns are none of ours.
    """
    rivals = set().union(*(group for group in SAME if not group.isdisjoint(names)))
    return {name: value for name, value in fields.items() if name in names or name not in rivals}


def with_lists(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with those that tables keep as JSON text: a column has cells of one kind, and
    CSV has texts alone.
    """
    return {name: _from_text(name, value) for name, value in fields.items()}


def _from_text(name: str, value: Any) -> Any:
    if not (isinstance(value, str) and (name in AS_TEXT or name in ("tags", "tolerance"))):
        return value
    content = decoded(value) if value.lstrip()[:1] in JSON_BEGINS else value
    if name == "prompt" and not is_conversation(content):
        return value  # a text that is JSON by chance
    if name not in AS_TEXT:
        return content if isinstance(content, dict | int | float) else value
    is_list = isinstance(content, list) and bool(content)
    return content if is_list and all(isinstance(it, AS_TEXT[name]) for it in content) else value


def is_conversation(content: Any) -> bool:
    """Whether it is a list of messages."""
    are_messages = isinstance(content, list) and bool(content)
    return are_messages and all(isinstance(it, dict) and "role" in it for it in content)


def require_fields(names: Mapping[str, str], fields: set[str]) -> None:
    """Raises SettingsError where `columns` names what no task has."""
    for name in names:
        if name not in fields:
            raise SettingsError(f"columns: no task has a field {name!r}; {suggest(name, fields)}")


def why_no_task(fields: Mapping[str, Any], file: str) -> str:
    """Why a row of these columns cannot be read, what would be needed, and the nearest guess."""
    has_prompt, has_tests = not PROMPTS.isdisjoint(fields), not TESTS.isdisjoint(fields)
    absent = [*(["prompt"] * (not has_prompt)), *(["tests"] * (not has_tests))]
    names = [name[:LONGEST] for name in fields]
    listed = ", ".join(names[:MOST_NAMES]) + ", ..." * (len(names) > MOST_NAMES)
    why = f"no {' and no '.join(absent)} among the columns {listed or 'of this row'}; {NEEDED}"
    guess = _guess(fields)
    if not guess or not all(OFFERED.fullmatch(column) for column in guess.values()):
        return why
    table = ", ".join(f'{name} = "{column}"' for name, column in guess.items())
    words = ",".join(f"{name}={column}" for name, column in guess.items())
    offer = shlex.quote(f"{file},{words}")
    return f"{why}; did you mean columns = {{ {table} }}? On a command line: {offer}"


def _require_columns(rows: list[dict[str, Any]], name: DataName) -> None:
    columns = dict.fromkeys(str(key)[:LONGEST] for fields in rows for key in fields)
    for field, column in name.columns.items():
        if rows and not any(_has(fields, column) for fields in rows):
            above, _, last = column.rpartition(".")
            inner = [decoded(_member(fields, above)) for fields in rows] if above else []
            keys = {key for table in inner if isinstance(table, dict) for key in table}
            offer = suggest(last, sorted(map(str, keys or columns))[:MOST_NAMES])
            raise DataError(f"{name.path} has no column {column!r} for {field!r}; {offer}")


def _has(fields: Mapping[str, Any], column: str) -> bool:
    if column in fields:
        return True
    first, dot, rest = column.partition(".")
    table = decoded(fields.get(first))
    return bool(dot) and isinstance(table, dict) and _has(table, rest)


def _member(fields: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of a member of one, which may be an object as JSON text."""
    if column in fields:
        return fields[column]
    first, dot, rest = column.partition(".")
    table = decoded(fields.get(first))
    return _member(table, rest) if dot and isinstance(table, dict) else None


def _guess(fields: Mapping[str, Any]) -> dict[str, str]:
    """The likeliest column of each field that a task needs and that a row lacks; empty where the
    row has nothing to be a prompt or nothing to be tests.
    """
    columns = {name: value for name, value in fields.items() if isinstance(name, str)}
    for name, value in fields.items():
        if isinstance(value, dict):
            columns |= {f"{name}.{key}": inner for key, inner in value.items()}
    guess: dict[str, str] = {}
    if PROMPTS.isdisjoint(fields) and (prompt := _prompt_among(columns)):
        guess["prompt"] = prompt
    if TESTS.isdisjoint(fields):
        guess |= _tests_among(columns)
    elif "test_list" in fields and guess:  # MBPP's, whose prompt has another name
        guess["tests"] = "test_list"
    for name in columns if "reference" not in fields else ():
        is_program = FIELDS_ELSEWHERE.get(_last(name)) == "reference" or _last(name) == "code"
        if guess and is_program and isinstance(columns[name], str):
            guess.setdefault("reference", name)
    has_tests = not (TESTS | LEARNED).isdisjoint({*guess, *fields})
    has_prompt = not PROMPTS.isdisjoint({*guess, *fields})
    return guess if has_tests and has_prompt else {}


def _last(column: str) -> str:
    return column.rpartition(".")[2].lower()


def _prompt_among(columns: Mapping[str, Any]) -> str:
    """The column whose name is likeliest a prompt's; empty where there is none."""
    texts = [name for name, value in columns.items() if isinstance(value, str) and value.strip()]
    usual = [name for name in texts if FIELDS_ELSEWHERE.get(_last(name)) == "prompt"]
    words = [
        name
        for word in PROMPT_WORDS
        for name in texts
        if word in re.split(r"[^a-z]+", _last(name)) and " " in columns[name].strip()
    ]
    return next(iter(usual + words), "")


def _tests_among(columns: Mapping[str, Any]) -> dict[str, str]:
    """The column that holds tests, under the field that takes tests of its form, or else a reply
    for SFT.
    """
    for name, value in columns.items():
        content = decoded(value)
        items = content if isinstance(content, list) else [content]
        if any(isinstance(item, str) and CODE.search(item) for item in items):
            return {"tests" if isinstance(content, list) else "test": name}
    for name in columns:
        field = FIELDS_ELSEWHERE.get(_last(name), "")
        if field in ("tests", "expected_answer"):
            return {field: name}
    replies = [name for name in columns if FIELDS_ELSEWHERE.get(_last(name)) == "completion"]
    return {"completion": replies[0]} if replies else {}
