"""Short programs that show a bug: calls that a failing test makes, with their values.

No line of the test itself stands in them.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_STEPS, MOST_LINES = 10, 14
"""Calls of a program, and its lines beside imports."""
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")
PLACE = re.compile(r"\0(\d+)\0")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A program, and what it calls last."""

    code: str
    name: str

    @property
    def cost(self) -> tuple[int, int, str, str]:
        """What a reader would rather have less of."""
        return self.code.count("\n"), len(self.code), self.code, self.name


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What a program does with the bug, and what without it, each printed text and exception."""

    snippet: Snippet
    actual: Mapping[str, str]
    expected: Mapping[str, str]


def snippets(steps: Sequence[Mapping[str, Any]]) -> Iterator[Snippet]:
    """Programs of the calls that a test made, each up to one of them and with what it needs."""
    for last, step in enumerate(steps):
        if step["text"] and not step["is_statement"]:
            numbers = _needed(steps, last)
            if numbers and len(numbers) <= MOST_STEPS:
                yield _program([steps[number] for number in numbers], numbers)


def _needed(steps: Sequence[Mapping[str, Any]], last: int) -> list[int]:
    """The steps on whose objects a step rests, with all that is done to these before; none where
    one of them cannot be written.
    """
    objects, included = {*steps[last]["needs"]}, {last}
    while True:
        more = {
            number for number, step in enumerate(steps[:last])
            if number in objects or objects & {*step["needs"]}
        } - included  # fmt: skip
        if not more:
            break
        included |= more
        objects |= {need for number in more for need in steps[number]["needs"]} | (more & objects)
    order = sorted(included)
    return order if all(steps[number]["text"] for number in order) else []


def _program(steps: Sequence[Mapping[str, Any]], numbers: Sequence[int]) -> Snippet:
    needed = {need for step in steps for need in step["needs"]}
    imports = sorted({line for step in steps for line in step["imports"]})
    in_use = {*keyword.kwlist, *dir(builtins), *(line.split()[-1] for line in imports)}
    names: dict[int, str] = {}
    for step, number in zip(steps, numbers, strict=True):
        if number in needed:
            base = step["name"].lower() if step["kind"] == "object" else "result"
            choices = (f"{base}{count or ''}" for count in range(len(in_use) + 2))
            names[number] = next(name for name in choices if name not in in_use)
            in_use.add(names[number])
    lines = []
    for step, number in zip(steps, numbers, strict=True):
        text = _filled(step["text"], names)
        if number == numbers[-1]:
            text = f"list({text})" if step["kind"] == "generator" else text
            lines.append(f"print(repr({text}))")
        else:
            lines.append(f"{names[number]} = {text}" if number in names else text)
    code = "\n".join([*_joined(imports), *([""] if imports else []), *lines])
    return Snippet(code, steps[-1]["name"])


def _joined(imports: Sequence[str]) -> list[str]:
    """Imports, those from one module on one line."""
    plain = [line for line in imports if not line.startswith("from ")]
    names: dict[str, list[str]] = {}
    for line in imports:
        if line.startswith("from "):
            _, module, _, name = line.split()
            names.setdefault(module, []).append(name)
    return plain + [f"from {module} import {', '.join(each)}" for module, each in names.items()]


def _filled(text: str, names: Mapping[int, str]) -> str:
    """An expression with names in the place of numbers of steps."""
    return PLACE.sub(lambda place: names.get(int(place[1]), place[0]), text)


def is_runnable(snippet: Snippet) -> bool:
    """Whether a program is short Python."""
    try:
        ast.parse(snippet.code)
    except (SyntaxError, ValueError):
        return False
    return snippet.code.count("\n") <= MOST_LINES


def tells(first: Mapping[str, str], again: Mapping[str, str]) -> bool:
    """Whether a program did the same twice, and printed no address."""
    return first == again and bool(first) and not ADDRESS.search("".join(first.values()))
