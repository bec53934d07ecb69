"""Tasks of your own in assay's, HumanEval's, MBPP's or verl's format, and rows for SFT."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

from assay.errors import SettingsError
from assay.judge.checkers import CHECKERS, checker_named
from assay.judge.codec import Packer
from assay.judge.kinds.test_functions import collect, is_doctest, never_run
from assay.judge.prepared_task import NEEDS_OBJECTS
from assay.languages import language_named
from assay.lines import source_lines
from assay.suggestions import suggest
from assay.task_specs import data_name
from assay.tasks import exact, mbpp, published, repository, task_set
from assay.tasks.cases import AS_JSON, first_block
from assay.tasks.columns import (
    FIELDS_ELSEWHERE,
    LEARNED,
    OF_FUNCTIONS,
    PROMPTS,
    REPLIES,
    TESTS,
    only_named,
    require_fields,
    why_no_task,
    with_lists,
)
from assay.tasks.maths import right_answer
from assay.tasks.python_source import (
    around,
    called_function,
    defines,
    is_stub,
    named_instead,
    parsed,
    undefined_function,
)
from assay.tasks.rows import TOLERANCE, Row, file_rows, tagged, warn_once
from assay.tasks.stdio import columns, exchanges
from assay.tasks.tolerances import NUMBER, stated_tolerance
from assay.types import Call, Check, Message, Task, TestFunctions

EXCHANGES = "what a program reads and prints is 'exchanges', each with a 'stdin' and a 'stdout'"
ENDS = ("stdin", "stdout")
FIELDS = TESTS | repository.FIELDS | {
    "task_id", "id", "prompt", "language", "reference", "demonstrations", "entry_point", "stub",
    "canonical_solution", "setup", "expected", "tolerance", "checker", "format", "tags",
    "difficulty", "tools", "needs",
}  # fmt: skip
"""What a task may have; docs/data.md describes each."""
MBPP = {"text", "code", "test_imports", "test_setup_code", "challenge_test_list", "source_file"}


@task_set
def jsonl(source: str = "") -> Iterator[Task]:
    """Tasks of your own, from a file, a folder, a glob or the hub: `jsonl:my.jsonl`."""
    if not source:
        raise SettingsError("the task set jsonl needs a file; write jsonl:PATH")
    yield from map(own_task, known_rows(source))


def known_rows(source: str) -> Iterator[Row]:
    """The rows of a file, or of whatever a text names. One warning names the fields that no format
    has. Raises SettingsError where the text maps columns to fields that no task has.
    """
    unknown: dict[str, str] = {}
    data = data_name(source)
    names = data.columns
    if names:
        require_fields(names, FIELDS | REPLIES | PROMPTS | MBPP)
    try:
        for row in file_rows(data):
            fields = with_lists(row.fields)
            row = replace(row, fields=_with_columns(fields, names) if names else fields)
            yield row
            unknown |= unknown_fields(row) if _is_whole(row) else {}
    finally:
        warn_of_unknown(unknown, source)


def _with_columns(fields: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    """The fields that count where the user said what the columns are."""
    counted = only_named(fields, names)
    is_judged = not TESTS.isdisjoint(counted)
    ours = FIELDS | MBPP | PROMPTS | names.keys() | (set() if is_judged else REPLIES)
    return {name: value for name, value in counted.items() if name in ours}


def own_task(row: Row) -> Task:
    """The task of a row of a file. Raises DataError as `task_of`, and for a row without a task with
    the columns that it has and those that it needs.
    """
    fields = row.fields.keys()
    is_ours = fields >= {"tree"} or row.fields.get("format") == exact.FORMAT
    if not (is_ours or _is_whole(row) or fields >= published.PAIR or published.is_verl(row)):
        published.refuse(row)
        raise row.wrong(why_no_task(row.fields, row.where.rpartition(", ")[0]))
    return task_of(row)


def _is_whole(row: Row) -> bool:
    """Whether a row has a prompt, and tests or something to learn."""
    fields = row.fields.keys()
    return not PROMPTS.isdisjoint(fields) and not (TESTS | LEARNED).isdisjoint(fields)


def unknown_fields(row: Row) -> dict[str, str]:
    """The fields that no format has, each with the name that it may stand for."""
    names = FIELDS | (REPLIES if row.fields.keys().isdisjoint(TESTS) else set())
    if row.fields.get("format") == exact.FORMAT or published.is_verl(row):
        return {}
    offers = {
        name: f"assay calls it {FIELDS_ELSEWHERE[name]!r}"
        if name in FIELDS_ELSEWHERE
        else suggest(name, sorted(names))
        for name in row.fields.keys() - names - MBPP
    }
    return {
        name: repr(name) if offer.startswith("known") else f"{name!r} ({offer})"
        for name, offer in offers.items()
    }


def warn_of_unknown(unknown: Mapping[str, str], where: str) -> None:
    """Log one warning that names them all, if there are any."""
    if unknown:
        warn_once(f"{where}: ignored unknown fields: {', '.join(sorted(unknown.values()))}")


def task_of(row: Row) -> Task:
    """A row in any of the three formats, an exact one (exact.py), or one for SFT; docs/data.md has
    every field.

    Raises DataError when a field is missing or malformed, or when the row has tests in another
    language than Python.
    """
    task = tagged(_untagged(row), row)
    needs = row.text("needs", default="")
    if needs not in ("", NEEDS_OBJECTS):
        raise row.wrong(f"'needs' is {needs!r}; the only thing to need is {NEEDS_OBJECTS!r}")
    task = replace(task, needs=needs) if needs else task
    return task if task.tools else replace(task, tools=row.tools())


def _untagged(row: Row) -> Task:
    published.refuse(row)
    if published.is_verl(row):
        content = published.of_verl(row)
        return content if isinstance(content, Task) else task_of(content)
    others = {name: FIELDS_ELSEWHERE[name] for name in row.fields if name in FIELDS_ELSEWHERE}
    renames = [f"{old!r} to {name!r}" for old, name in others.items() if name not in row.fields]
    if renames and not _is_whole(row):
        raise row.wrong(f"fields have other names here; rename {', '.join(renames)}")
    if TESTS.isdisjoint(row.fields) and not LEARNED.isdisjoint(row.fields):
        return _without_tests(row)
    language = row.language()
    if row.fields.get("format") == exact.FORMAT:
        return exact.task_of(row)
    if "tree" in row.fields:
        return repository.task_of(row, _id(row))
    if "test_list" in row.fields:
        return mbpp.task_of(row)
    messages = row.messages("prompt") if isinstance(row.fields.get("prompt"), list) else ()
    task = Task(
        id=_id(row),
        prompt=messages[-1].content if messages else row.text("prompt"),
        checks=(),
        entry_point="",
        reference=row.text("reference", default="") or None,
        messages=messages,
        demonstrations=row.texts("demonstrations"),
        language=language,
    )
    if "expected_answer" in row.fields:
        if not row.fields.keys().isdisjoint(OF_FUNCTIONS | {"exchanges"}):
            raise row.wrong("has 'expected_answer' beside tests; make it two rows")
        if language not in ("python", "answer"):
            raise row.wrong(f"has 'expected_answer', but in {language}; leave the language out")
        right = right_answer(row.answer("expected_answer"), task.prompt)
        reference = task.reference or right.answer
        return replace(task, checks=(right,), language="answer", reference=reference)
    if "exchanges" in row.fields and not row.fields.keys().isdisjoint(OF_FUNCTIONS):
        raise row.wrong("has 'exchanges' beside tests of a function; make it two rows")
    if "exchanges" in row.fields:
        return _program(row, task)
    return _of_cases(row, task) if "cases" in row.fields else _function(row, task)


def _without_tests(row: Row) -> Task:
    """A row that SFT learns from, and that nothing can judge."""
    if row.fields.get("label") is False:
        raise row.wrong(
            "its 'label' is false: no reply to learn from; remove the row, or give the file to"
            " 'kto' as algorithm.labels"
        )
    if "messages" in row.fields or isinstance(row.fields.get("prompt"), list):
        *before, last = _conversation(row)
        return Task(
            _id(row), before[-1].content, (), "", messages=tuple(before),
            demonstrations=(last.content,), demonstration_fields=last.fields,
        )  # fmt: skip
    prompt, completion = row.text("prompt"), row.text("completion", default="")
    replies = (completion, row.text("answer", default=""), *row.texts("demonstrations"))
    task = Task(
        _id(row), prompt, (), "", language=row.language(),
        stub=prompt if completion else row.text("stub", default=""),
        reference=row.text("reference", default="") or None,
        demonstrations=tuple(filter(None, replies)),
    )  # fmt: skip
    if not task.demonstrations and not task.reference:
        raise row.wrong("has nothing to learn from; give a 'completion', or remove the row")
    return task


def _conversation(row: Row) -> list[Message]:
    """The messages up to the assistant's last; those of a `prompt` are not learned."""
    if "messages" in row.fields:
        messages = list(row.messages("messages"))
    else:
        messages = [replace(message, learned=False) for message in row.messages("prompt")]
        name = "completion" if "completion" in row.fields else "answer"
        reply = row.fields.get(name)
        messages += (
            row.messages(name)
            if isinstance(reply, list)
            else [Message("assistant", row.text(name))]
        )
    while messages and not (messages[-1].role == "assistant" and messages[-1].learned):
        messages.pop()
    if len(messages) < 2:
        raise row.wrong("holds no answer of the assistant to learn; add one, or remove the row")
    return messages


def _program(row: Row, task: Task) -> Task:
    """`task` with exchanges."""
    pairs = row.tables("exchanges")
    for pair, end in product(pairs, ENDS):
        if end not in pair.fields:
            pair.text(end)
    others = {name for pair in pairs for name in pair.fields.keys() - ENDS}
    names = {name: f"{name!r} of 'exchanges'" for name in others}
    warn_of_unknown(names, row.where.rpartition(", ")[0] or row.where)
    checker = row.text("checker", default="")
    if (
        checker
        and checker_named(checker) is None
        and not defines(parsed(checker, row, "checker"), "check")
    ):
        raise row.wrong(
            f"'checker' is neither one of {', '.join(CHECKERS)} nor Python that defines `check`"
        )
    checks = exchanges(row, "exchanges", *columns(pairs, *ENDS))
    if not checker and any(NUMBER.search(check.stdout) for check in checks):
        stated = stated_tolerance(task.prompt)
        checker = stated.checker if stated else ""
    return replace(task, checks=checks, checker=checker)


def _function(row: Row, task: Task) -> Task:
    """`task` with tests or calls of its entry point."""
    if not language_named(task.language).warm and row.fields.keys().isdisjoint({"tests", "test"}):
        name, stub = row.text("entry_point"), row.text("stub", default="")
        return replace(task, checks=tuple(_calls(row, task.prompt)), entry_point=name, stub=stub)
    entry_point, setup = _entry_point(row), row.text("setup", default="")
    python = language_named("python")
    completes = not task.messages and is_stub(task.prompt, entry_point)
    stub = row.text("stub", default="") or (task.prompt if completes else "")
    if stub and not setup:
        setup = around(stub, row, "stub" if "stub" in row.fields else "prompt", entry_point)
    solution = row.text("canonical_solution", default="")
    completed = (
        solution
        if not solution or python.defines(solution, entry_point)
        else (stub or _shown_stub(task.prompt, entry_point)) + solution
    )
    checker = row.text("checker", default="")
    if checker and not defines(parsed(checker, row, "checker"), "check"):
        raise row.wrong("'checker' defines no function 'check(arguments, value, expected)'")
    return replace(
        task,
        checks=(*_checks(row, entry_point), *_calls(row, task.prompt)),
        entry_point=entry_point,
        stub=stub,
        setup=setup,
        reference=task.reference or completed or None,
        checker=checker,
    )


def _of_cases(row: Row, task: Task) -> Task:
    """`task` with calls from lines of JSON, each of arguments and a value, as QuixBugs has them."""
    if "inputs" in row.fields or "expected" in row.fields:
        raise row.wrong("has 'cases' beside 'inputs' or 'expected'; give one of them")
    lines = enumerate(source_lines(row.text("cases")), start=1)
    cases = [_case(line, f"'cases', line {number}", row) for number, line in lines if line.strip()]
    if not cases:
        raise row.wrong("'cases' has no line; write [[17, 0], 17]")
    inputs, expected = map(list, zip(*cases, strict=True))
    fields = {**row.fields, "inputs": inputs, "expected": expected}
    task = _function(Row(fields, row.where), task)
    if task.checker or not language_named(task.language).warm:
        return task
    tolerance = next(check.tolerance for check in task.checks if isinstance(check, Call))
    return replace(task, checker=f"TOLERANCE = {tolerance!r}\n{AS_JSON}")


def _case(line: str, where: str, row: Row) -> tuple[list[Any], Any]:
    """Arguments and value of one line. Raises DataError."""
    case: Any = None
    with suppress(ValueError, RecursionError):
        case = json.loads(line)
    if not isinstance(case, list) or len(case) != 2:
        why = "no JSON list of arguments and a value; write [[17, 0], 17]"
        raise row.wrong(f"{where}: {why}")
    arguments, value = case
    return arguments if isinstance(arguments, list) else [arguments], value


def _shown_stub(prompt: str, entry_point: str) -> str:
    """The stub in the first fence of a prompt; empty where there is none."""
    block = first_block(prompt)
    return block if is_stub(block, entry_point) else ""


def _id(row: Row) -> str:
    """The row's id, or else where it stands in its file: `line 3`."""
    value = row.fields.get("task_id", row.fields.get("id", row.where.rpartition(", ")[2]))
    if not isinstance(value, str | int):
        raise row.wrong(f"the id is {str(value)[:40]!r}; make it a string or a whole number")
    return str(value)


def _tests(row: Row) -> tuple[str, ...]:
    if "inputs" in row.fields and not {"tests", "test"} & row.fields.keys():
        return ()
    if row.fields.keys() >= published.PAIR:
        raise row.wrong(
            "a pair of DPO ('chosen', 'rejected') has no tests; give the file as algorithm.pairs"
        )
    if ("tests" in row.fields) == ("test" in row.fields):
        raise row.wrong(
            "give either 'tests', a list of asserts, or 'test', a `def check(candidate)`; the"
            " answer to a question is 'expected_answer'"
        )
    what = f"a list of strings, or call one text 'test'; {EXCHANGES}"
    tests = row.texts("tests", what) if "tests" in row.fields else (row.text("test"),)
    if not any(test.strip() for test in tests):
        raise row.wrong("has no tests; add an assert, or remove the row")
    return tests


def _checks(row: Row, entry_point: str) -> Iterator[Check | TestFunctions]:
    for source in _tests(row):
        calls_itself = re.search(r"^check\(", source, re.MULTILINE)
        if language_named("python").defines(source, "check") and not calls_itself:
            name = entry_point if entry_point.isidentifier() else "candidate"
            source = f"{source}\n\ncheck({name})"
        try:
            if has_tests := never_run(source):
                collect(source)
        except ValueError as error:
            raise row.wrong(f"the tests cannot be run: {error}") from None
        if has_tests:
            yield TestFunctions(source)
        else:
            parsed(source, row, "tests" if "tests" in row.fields else "test")
            yield Check(source)


def _calls(row: Row, prompt: str) -> Iterator[Call]:
    """The calls of a row with `inputs`. The prompt may state the tolerance."""
    if "inputs" not in row.fields:
        return
    stated = stated_tolerance(prompt) if "tolerance" not in row.fields else None
    default = float(stated.most) if stated and stated.kind != "relative" else TOLERANCE
    inputs, tolerance = row.fields["inputs"], row.fields.get("tolerance", default)
    if (
        not isinstance(inputs, list)
        or not inputs
        or not all(isinstance(arguments, list) for arguments in inputs)
    ):
        raise row.wrong("'inputs' is no list of argument lists; write [[1, 2]] for f(1, 2)")
    if type(tolerance) not in (int, float) or not tolerance >= 0:
        raise row.wrong(f"'tolerance' is {tolerance!r}; make it a number, 0 or above")
    expected = row.fields.get("expected")
    if expected is None and not ("reference" in row.fields or "canonical_solution" in row.fields):
        raise row.wrong(
            "'inputs' have neither 'expected' nor a 'reference' to ask; add one of them"
        )
    if expected is not None and not (isinstance(expected, list) and len(expected) == len(inputs)):
        raise row.wrong(f"'expected' is no list of {len(inputs)} values, one for each of 'inputs'")
    values = (
        [None] * len(inputs) if expected is None else [Packer().text(value) for value in expected]
    )
    for arguments, value in zip(inputs, values, strict=True):
        yield Call(Packer().text(arguments), value, tolerance)


def _entry_point(row: Row) -> str:
    if row.fields.get("entry_point") is not None:
        return row.text("entry_point")
    tests = [parsed(test, row, "tests") for test in _tests(row) if not is_doctest(test)]
    field = "reference" if "reference" in row.fields else "canonical_solution"
    reference = parsed(row.text(field, default=""), row, field)
    function = called_function(tests, reference)
    if function is None:
        setup = parsed(row.text("setup", default=""), row, "setup")
        name = undefined_function([*tests, setup])
        if name and (others := named_instead(name, reference)):
            raise row.wrong(
                f"the tests call {name!r}, but {field!r} defines {others}; rename one of them"
            )
        raise row.wrong(
            "'entry_point' is missing; add the name of the function that the tests call, or a"
            f" 'reference' that defines it; {EXCHANGES}"
        )
    return function
