"""Compares what a program printed with the expected text. A task's `checker` names one of these
functions; `floats` may have a tolerance of its own: `floats 1e-4`, `floats 1e-4 absolute`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial
from itertools import zip_longest

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
TOLERANCE = Decimal("1e-6")
KINDS = "absolute", "relative", "either"
WITH_TOLERANCE = re.compile(rf"floats (\d+e-\d+)(?: ({'|'.join(KINDS)}))?")
FINE = 6
"""Decimals of an expected number from which its last digit counts as rounded."""
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


def floats_within(tolerance: Decimal, kind: str, output: str, expected: str) -> bool:
    """As `floats`, with this tolerance of one of the KINDS."""
    words, expected_words = output.split(), expected.split()
    return len(words) == len(expected_words) and all(
        close(word, right, tolerance, kind)
        for word, right in zip(words, expected_words, strict=True)
    )


def unordered(output: str, expected: str) -> bool:
    """As `lines`, in any order."""
    return sorted(stripped(output)) == sorted(stripped(expected))


DEFAULT_CHECKER = "lines"
CHECKERS: dict[str, Callable[[str, str], bool]] = {
    "exact": exact, "lines": lines, "tokens": tokens, "floats": floats, "unordered": unordered,
}  # fmt: skip


def checker_named(name: str) -> Callable[[str, str], bool] | None:
    """The checker of a name, perhaps with its tolerance; None for any other text."""
    if match := WITH_TOLERANCE.fullmatch(name):
        return partial(floats_within, Decimal(match[1]), match[2] or "either")
    return CHECKERS.get(name)


def stripped(text: str) -> list[str]:
    """The lines without spaces at their ends, and without empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def close(word: str, expected: str, tolerance: Decimal = TOLERANCE, kind: str = "either") -> bool:
    """Whether two words are the same, or the same number within the tolerance, or but for the
    rounding of many expected decimals.
    """
    if word == expected:
        return True
    both = (word, expected)
    if not all(map(NUMBER.fullmatch, both)) or all(map(WHOLE.fullmatch, both)):
        return False
    every_digit = Context(prec=len(word) + len(expected), traps=[])  # floats end at 2**53
    a, b = map(every_digit.create_decimal, both)
    error = every_digit.abs(every_digit.subtract(a, b))
    size = every_digit.abs(b)
    if kind == "absolute" or WHOLE.fullmatch(expected) or not (b and size.is_finite()):
        scale = Decimal(1)
    else:
        scale = size if kind == "relative" else every_digit.max(1, size)
    most = every_digit.multiply(tolerance, scale)
    decimals = len(expected.partition(".")[2]) if "e" not in expected.lower() else 0
    if decimals >= FINE:
        most = max(most, Decimal((0, (5,), -decimals - 1)))
    return b.is_finite() and error <= most


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
