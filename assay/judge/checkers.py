"""Compares what a program printed with the expected text. A task's `checker` names one of these
functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context
from itertools import zip_longest

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
TOLERANCE = Context().create_decimal("1e-6")
SHOWN = 80


def exact(output: str, expected: str) -> bool:
    """Every character counts."""
    return output == expected


def lines(output: str, expected: str) -> bool:
    """Spaces at the ends of lines and empty lines at the end do not count."""
    return stripped(output) == stripped(expected)


def tokens(output: str, expected: str) -> bool:
    """The same words in the same order, whatever space is between them."""
    return output.split() == expected.split()


def floats(output: str, expected: str) -> bool:
    """As `tokens`, with a tolerance of 1e-6 on decimal numbers: absolute or relative, but absolute
    where a whole number is expected.
    """
    words, expected_words = output.split(), expected.split()
    return len(words) == len(expected_words) and all(map(close, words, expected_words))


def unordered(output: str, expected: str) -> bool:
    """As `lines`, in any order."""
    return sorted(stripped(output)) == sorted(stripped(expected))


DEFAULT_CHECKER = "lines"
CHECKERS: dict[str, Callable[[str, str], bool]] = {
    "exact": exact, "lines": lines, "tokens": tokens, "floats": floats, "unordered": unordered,
}  # fmt: skip


def stripped(text: str) -> list[str]:
    """The lines without spaces at their ends, and without empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def close(word: str, expected: str) -> bool:
    """Whether two words are the same, or the same number within the tolerance."""
    if word == expected:
        return True
    both = (word, expected)
    if not all(map(NUMBER.fullmatch, both)) or all(map(WHOLE.fullmatch, both)):
        return False
    every_digit = Context(prec=len(word) + len(expected), traps=[])  # floats end at 2**53
    a, b = map(every_digit.create_decimal, both)
    error = every_digit.abs(every_digit.subtract(a, b))
    scale = 1 if WHOLE.fullmatch(expected) else every_digit.max(1, every_digit.abs(b))
    return b.is_finite() and error <= every_digit.multiply(TOLERANCE, scale)


def difference(output: str, expected: str) -> str:
    """The first line that differs, for messages."""
    pairs = zip_longest(stripped(output), stripped(expected))
    for number, (line, right) in enumerate(pairs, start=1):
        if line != right:
            return f"line {number} is {shortened(line)}, not {shortened(right)}"
    return "spaces or line ends differ"


def shortened(line: str | None) -> str:
    """A line for messages."""
    if line is None:
        return "missing"
    return repr(line) if len(line) <= SHOWN else f"{line[:SHOWN]!r}..."
