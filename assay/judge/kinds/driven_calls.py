"""Calls in languages other than Python. A driver in the language, around the program, makes all
calls of a task in one run and leaves a line of JSON for each in a file; they are compared here.

The program's process gets the arguments alone. It may write what it likes into that file: that says
no more than the values that its function returns.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import log2
from typing import Any, NamedTuple

from assay.errors import DataError
from assay.judge.codec import Unpacker, loads
from assay.judge.codec_types import PLAIN_DIGITS, CodecError
from assay.judge.kinds.calls import Calls, equal
from assay.judge.kinds.workbench import Workbench, decided
from assay.judge.test_code import shorten
from assay.languages import DRIVERS, Language, language_named
from assay.sandbox.limits import INT_DIGITS
from assay.sandbox.program import Result
from assay.types import Call, Execution, Task, Verdict, failing

ANSWERS = "answers"
"""The file of the answers. Each line is `[value]` or `{"raised": text}`."""
SHARE, ROOM = 8, 1 << 20
"""It may have so many times the bytes of the right answers, and so many more."""
RAISED = 300
"""Characters that are shown of what a call raised."""
DIGITS = re.compile("[0-9]+")
LONGEST_FLOAT = 1000
"""Bits of a whole number that is surely a float too."""


class PlainCall(NamedTuple):
    """A call with values that all languages have."""

    arguments: list[Any]
    expected: Any
    tolerance: float


def plain_call(call: Call) -> PlainCall:
    """A call as all languages can make it. Raises CodecError where it holds what only Python
    has.
    """
    if call.expected is None:
        raise CodecError("only a reference in Python is asked for expected values; add them")
    arguments, expected = (
        plain(Unpacker(nodes=sys.maxsize).value(loads(text.encode())))
        for text in (call.arguments, call.expected)
    )
    if type(arguments) is not list:
        raise CodecError("the arguments are no list")
    return PlainCall(arguments, expected, call.tolerance)


def plain(value: Any) -> Any:
    """A value as JSON has it, in which nan and infinity are numbers too: tuples become lists, and
    keys texts. Raises CodecError for what only Python has.
    """
    if type(value) in (list, tuple):
        return [plain(item) for item in value]
    if type(value) is dict and all(type(key) in (str, int) for key in value):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if type(value) is int and value.bit_length() > INT_DIGITS * log2(10):
        raise CodecError(f"it has a whole number of over {INT_DIGITS:,} digits")
    is_simple = value is None or type(value) in (bool, int, float)
    if is_simple or (
        type(value) is str and not any("\ud800" <= letter <= "\udfff" for letter in value)
    ):
        return value
    raise CodecError(f"only Python has such a value of type {type(value).__name__}")


def text_of(value: Any) -> str:
    """A plain value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def decide(result: Result, calls: Sequence[PlainCall], name: str) -> Execution:
    """What the answers of a run make of its program. The first fault decides."""
    total, data = len(calls), result.files.get(ANSWERS, b"")
    expected = [text_of(call.expected) for call in calls]
    if len(data) > ROOM + SHARE * sum(map(len, expected)):
        return Execution(Verdict.OUTPUT, total=total, detail="the answers are too large")
    longest = max((len(run) for text in expected for run in DIGITS.findall(text)), default=0)
    longer = re.compile(f"[0-9]{{{max(PLAIN_DIGITS, longest) + 1}}}")
    *lines, rest = data.decode("utf-8", "surrogateescape").split("\n")
    try:
        if rest or len(lines) > total:
            raise ValueError("more than was asked for")
        faults = [
            (Verdict.WRONG, f"call {number}, {name} gives a number of too many digits")
            if longer.search(line)  # to read many of them takes long
            else fault(answer_of(line), call, f"call {number}, {name}")
            for number, (line, call) in enumerate(zip(lines, calls, strict=False), start=1)
        ]
    except (ValueError, RecursionError):
        return Execution(Verdict.FORBIDDEN, total=total, detail="the answers are malformed")
    passed = faults.count(None)
    if len(lines) < total:
        faults.append((Verdict.ERROR, f"it exited after {len(lines)} of {total} calls"))
    verdict, detail = next(filter(None, faults), (Verdict.PASS, ""))
    return Execution(verdict, passed, total, detail, tests=failing(dict(enumerate(faults))))


def answer_of(line: str) -> list[Any] | str:
    """A list of the value, or what was raised. Raises ValueError, RecursionError."""
    match json.loads(line):
        case [value]:
            return [value]
        case {"raised": str(raised), **others} if not others:
            return raised
    raise ValueError("no answer")


def fault(answer: list[Any] | str, call: PlainCall, where: str) -> tuple[Verdict, str] | None:
    """What is wrong with the answer to a call, if anything is."""
    call_text = f"{where}({shorten(text_of(call.arguments)[1:-1])})"
    if isinstance(answer, str):
        return Verdict.ERROR, f"{answer[:RAISED]} at {call_text}"
    if equal(as_numbers(answer[0], call.expected), call.expected, call.tolerance):
        return None
    got, right = (shorten(text_of(value)) for value in (answer[0], call.expected))
    return Verdict.WRONG, f"{call_text} gives {got}, not {right}"


def as_numbers(value: Any, expected: Any) -> Any:
    """A value with floats for whole numbers where floats are expected: not all languages tell 1.0
    from 1.
    """
    if type(value) is int and type(expected) is float and value.bit_length() < LONGEST_FLOAT:
        return float(value)
    if type(value) is type(expected) is list and len(value) == len(expected):
        return list(map(as_numbers, value, expected))
    if type(value) is type(expected) is dict:
        return {key: as_numbers(item, expected.get(key)) for key, item in value.items()}
    return value


class DrivenCalls(Calls, judges=Call):
    """Calls in all languages."""

    def judges(self, language: Language) -> bool:
        """Whether a driver makes calls in this language, if no worker does."""
        return language.warm or language.driver != ""

    async def judge(
        self, workbench: Workbench, checks: Sequence[Call], task: Task, program: str
    ) -> Execution:
        """In a worker, or in one run that makes all calls. Raises DataError where the task has what
        no driver can do.
        """
        if workbench.language.warm:
            return await super().judge(workbench, checks, task, program)
        language = workbench.language
        if task.checker or not task.entry_point.isidentifier():
            what = f"a function of {language.title} has neither a checker nor a class"
            raise DataError(f"task {task.id!r}: {what}; name a function, and give expected values")
        calls = [plain_call(call) for call in checks]
        arguments = [call.arguments for call in calls]
        source, beside = language.drive(program, task.entry_point, arguments)
        ran = await workbench.run(source, text_of(arguments), beside=beside, fetch=(ANSWERS,))
        return await decided(ran, partial(decide, calls=calls, name=task.entry_point))

    def show(self, call: Call, task: Task) -> str:
        """The call with its answer; as an assert of Python's where it can be one."""
        if language_named(task.language).warm or call.tolerance:
            return super().show(call, task)
        arguments, expected, _ = plain_call(call)
        return f"{task.entry_point}({text_of(arguments)[1:-1]}) gives {text_of(expected)}"

    def problem(self, call: Call, task: Task) -> str | None:
        """Why the call cannot be made or judged."""
        if language_named(task.language).warm:
            return super().problem(call, task)
        try:
            plain_call(call)
        except CodecError as error:
            return str(error)
        return None

    def cheats(self, call: Call, task: Task) -> dict[str, str]:
        """With a task's first call, a program that leaves the commonest answer for every call."""
        if call is not task.checks[0]:
            return {}
        forger = DRIVERS / f"forger.{language_named(task.language).driver.rpartition('.')[2]}"
        expected = [
            text_of(plain_call(call).expected) for call in task.checks if type(call) is Call
        ]
        answers = f"[{Counter(expected).most_common(1)[0][0]}]\n" * len(expected)
        program = forger.read_text().replace("FUNCTION", task.entry_point)
        return {"constant": program.replace("ANSWERS", text_of(answers))}
