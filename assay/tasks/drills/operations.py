"""What drills are made of: filters, maps and folds over numbers, words and characters, each with a
plausible slip.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    """One stage of a drill: how it is said, how it is written, what it does."""

    phrase: str
    """Its words in the prompt: `keep the even numbers`."""
    code: str
    """Its Python, with {0} for what it works on: an element, or for a fold the list of them."""
    slip: Operation | None = None
    """The same stage gone wrong, as people get it wrong."""

    def run(self, value: Any) -> Any:
        """What the code makes of an element, or of the list."""
        return _function(self.code)(value)


@cache
def _function(code: str) -> Callable[[Any], Any]:
    return eval(f"lambda given: {code.format('given')}")  # type: ignore[no-any-return]  # noqa: S307  code of the tables below


@dataclass(frozen=True, slots=True)
class Family:
    """Operations that go together, and inputs for them."""

    argument: str
    element: str
    filters: tuple[Operation, ...]
    maps: tuple[Operation, ...]
    folds: tuple[Operation, ...]
    make_input: Callable[[random.Random, int], Any]
    """An input of the given number of elements."""


def stage(phrase: str, code: str, slip: str) -> Operation:
    """A stage with its slip."""
    return Operation(phrase, code, Operation(phrase, slip))


NUMBER_FILTERS = (
    stage("keep the even numbers", "{0} % 2 == 0", "{0} % 2 == 1"),
    stage("keep the odd numbers", "{0} % 2 == 1", "{0} % 2 == 0"),
    stage("keep the positive numbers", "{0} > 0", "{0} >= 0"),
    stage("keep the negative numbers", "{0} < 0", "{0} <= 0"),
    stage("keep those above 3", "{0} > 3", "{0} >= 3"),
    stage("keep those below 5", "{0} < 5", "{0} <= 5"),
    stage("keep the multiples of 3", "{0} % 3 == 0", "{0} % 3 == 1"),
    stage("drop the multiples of 4", "{0} % 4 != 0", "{0} % 4 == 0"),
    stage("drop the zeros", "{0} != 0", "{0} > 0"),
    stage("keep those from 1 to 6", "1 <= {0} <= 6", "1 <= {0} < 6"),
    stage("drop those below -2", "{0} >= -2", "{0} > -2"),
)
NUMBER_MAPS = (
    stage("square each", "{0} * {0}", "{0} * 2"),
    stage("double each", "{0} * 2", "{0} + 2"),
    stage("triple each", "{0} * 3", "{0} ** 3"),
    stage("cube each", "{0} ** 3", "{0} * 3"),
    stage("negate each", "-{0}", "abs({0})"),
    stage("add 1 to each", "{0} + 1", "{0} - 1"),
    stage("subtract 2 from each", "{0} - 2", "2 - {0}"),
    stage("take absolute values", "abs({0})", "-{0}"),
    stage("take each modulo 5", "{0} % 5", "{0} // 5"),
)
NUMBER_FOLDS = (
    stage("return the sum", "sum({0})", "sum({0}, 1)"),
    stage("return the largest or 0", "max({0}, default=0)", "min({0}, default=0)"),
    stage("return the smallest or 0", "min({0}, default=0)", "max({0}, default=0)"),
    stage("count the distinct ones", "len(set({0}))", "len({0})"),
    stage("return them sorted", "sorted({0})", "{0}"),
    stage("return them from high to low", "sorted({0})[::-1]", "sorted({0})"),
    stage("return them reversed", "{0}[::-1]", "sorted({0})[::-1]"),
    stage("return the list", "{0}", "sorted({0})"),
    stage("return every second one", "{0}[::2]", "{0}[1::2]"),
)
WORD_FILTERS = (
    stage("keep words longer than 3", "len({0}) > 3", "len({0}) >= 3"),
    stage("keep words shorter than 5", "len({0}) < 5", "len({0}) <= 5"),
    stage("keep words with an e", '"e" in {0}', '"e" not in {0}'),
    stage("drop words with an a", '"a" not in {0}', '"a" in {0}'),
    stage("keep words ending in t", '{0}[-1] == "t"', '{0}[0] == "t"'),
)
WORD_MAPS = (
    stage("uppercase each", "{0}.upper()", "{0}.title()"),
    stage("reverse each", "{0}[::-1]", "{0}[1:]"),
    stage("take first letters", "{0}[0]", "{0}[-1]"),
    stage("repeat each twice", "{0} * 2", "{0} * 3"),
    stage("add an s to each", '{0} + "s"', '"s" + {0}'),
)
WORD_FOLDS = (
    stage("join with dashes", '"-".join({0})', '"".join({0})'),
    stage("return the total length", 'len("".join({0}))', "len({0})"),
    stage("count the distinct ones", "len(set({0}))", "len({0})"),
    stage("return them sorted", "sorted({0})", "{0}"),
    stage("return them reversed", "{0}[::-1]", "sorted({0})[::-1]"),
)
LETTER_FILTERS = (
    stage("keep the vowels", '{0} in "aeiou"', '{0} in "aeio"'),
    stage("drop the vowels", '{0} not in "aeiou"', '{0} in "aeiou"'),
    stage("keep the digits", "{0}.isdigit()", "{0}.isalnum()"),
    stage("keep the letters", "{0}.isalpha()", "{0}.isalnum()"),
    stage("keep the capitals", "{0}.isupper()", "{0}.islower()"),
    stage("drop the spaces", '{0} != " "', '{0} == " "'),
)
LETTER_MAPS = (
    stage("uppercase each", "{0}.upper()", "{0}.lower()"),
    stage("lowercase each", "{0}.lower()", "{0}.upper()"),
    stage("repeat each twice", "{0} * 2", "{0} * 3"),
    stage("add a dot to each", '{0} + "."', '"." + {0}'),
)
LETTER_FOLDS = (
    stage("return the string", '"".join({0})', '" ".join({0})'),
    stage("join with dashes", '"-".join({0})', '"".join({0})'),
    stage("count the distinct ones", "len(set({0}))", "len({0})"),
    stage("return the string reversed", '"".join({0})[::-1]', '"".join(sorted({0}))'),
)
WORDS = (
    "ant",
    "bee",
    "cat",
    "deer",
    "eagle",
    "goat",
    "hen",
    "horse",
    "mouse",
    "newt",
    "owl",
    "rabbit",
    "tern",
    "toad",
)
LETTERS = "aeiouAEbcdBC0123  "


def _numbers(draw: random.Random, size: int) -> list[int]:
    return [draw.randint(-6, 9) for _ in range(size)]


def _words(draw: random.Random, size: int) -> list[str]:
    return [draw.choice(WORDS) for _ in range(size)]


def _letters(draw: random.Random, size: int) -> str:
    return "".join(draw.choice(LETTERS) for _ in range(size))


FAMILIES = (
    Family("xs", "x", NUMBER_FILTERS, NUMBER_MAPS, NUMBER_FOLDS, _numbers),
    Family("ws", "w", WORD_FILTERS, WORD_MAPS, WORD_FOLDS, _words),
    Family("s", "c", LETTER_FILTERS, LETTER_MAPS, LETTER_FOLDS, _letters),
)
