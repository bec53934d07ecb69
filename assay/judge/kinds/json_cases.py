"""Cases as QuixBugs has them: lines of JSON, each with the arguments of a call and its value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from assay.judge.codec import Packer
from assay.judge.kinds.driven_calls import (
    ANSWERS,
    DrivenCalls,
    PlainCall,
    decide,
    plain_call,
    text_of,
)
from assay.judge.kinds.kind import Kind, ProgramRun
from assay.languages import Language
from assay.types import Call, Task

DRIVER = """
def _drive():
    import json, sys
    from collections.abc import Iterator
    def plain(value):
        if isinstance(value, (Iterator, set, frozenset)):
            return list(value)
        raise TypeError(f"a {{type(value).__name__}} is no data")
    with open({file!r}, "w") as answers:
        for arguments in json.load(sys.stdin):
            try:
                answer = json.dumps([{name}(*arguments)], default=plain)
            except Exception as error:
                answer = json.dumps({{"raised": f"{{type(error).__name__}}: {{error}}"}})
            print(answer, file=answers)
_drive()
"""
"""Follows a program in Python; other languages have drivers of their own."""


@dataclass(frozen=True, slots=True)
class JsonCases:
    """Calls of the entry point, and the values that are right."""

    cases: str
    """A line for each: `[[17, 0], 17]`, or `[127, 7]` where there is one argument."""
    tolerance: float = 0.0
    """As that of a call."""
    hidden: bool = True


def calls_of(check: JsonCases) -> list[Call]:
    """The calls of a check. Raises ValueError for a line that is none."""
    calls = list[Call]()
    for number, line in enumerate(filter(str.strip, check.cases.splitlines()), start=1):
        try:
            arguments, expected = json.loads(line)
            packed = [Packer().text(value) for value in (arguments, expected)]
        except (ValueError, TypeError, RecursionError):
            raise ValueError(f"case {number} is no JSON list of arguments and a value") from None
        listed = packed[0] if isinstance(arguments, list) else f"[{packed[0]}]"
        calls.append(Call(listed, packed[1], check.tolerance, check.hidden))
    if not calls:
        raise ValueError("there is no case; add one")
    return calls


class CasesOfJson(Kind[JsonCases], judges=JsonCases):
    """All are calls of one run, compared outside of it."""

    started_by_tests = True

    def judges(self, language: Language) -> bool:
        """Whether a driver makes calls in this language."""
        return language.warm or language.driver != ""

    def count(self, check: JsonCases) -> int:
        """Its lines."""
        return len(calls_of(check))

    def runs(
        self, checks: Sequence[JsonCases], task: Task, program: str, language: Language
    ) -> list[ProgramRun]:
        """One run, that makes all calls."""
        calls = [call for check in checks for call in calls_of(check)]
        if not language.warm:
            return DrivenCalls().runs(calls, task, program, language)
        plain_calls: list[PlainCall] = list(map(plain_call, calls))
        source = program + DRIVER.format(name=task.entry_point, file=ANSWERS)
        stdin = text_of([call.arguments for call in plain_calls])
        decides = partial(decide, calls=plain_calls, name=task.entry_point)
        return [ProgramRun(source, stdin, decide=decides, fetch=(ANSWERS,))]

    def show(self, check: JsonCases, task: Task) -> str:
        """A line for each call."""
        return "\n".join(DrivenCalls().show(call, task) for call in calls_of(check))

    def answer(self, check: JsonCases, task: Task) -> str | None:
        """Returns what the first call expects."""
        return DrivenCalls().answer(calls_of(check)[0], task)

    def cheats(self, check: JsonCases, task: Task) -> dict[str, str]:
        """As those of calls."""
        calls = calls_of(check)
        return DrivenCalls().cheats(calls[0], replace(task, checks=tuple(calls)))
