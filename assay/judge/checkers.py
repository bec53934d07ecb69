"""Whether what a program printed is right: pure functions of two texts, chosen by name in a task's
`checker`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest
from math import isfinite

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
TOLERANCE = 1e-6
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
    """As `tokens`, but fractions may be 1e-6 off, absolutely or relatively; one for a whole number
    absolutely.
    """
    given, wanted = output.split(), expected.split()
    return len(given) == len(wanted) and all(map(close, given, wanted))


def unordered(output: str, expected: str) -> bool:
    """As `lines`, in any order."""
    return sorted(stripped(output)) == sorted(stripped(expected))


CHECKERS: dict[str, Callable[[str, str], bool]] = {
    "exact": exact, "lines": lines, "tokens": tokens, "floats": floats, "unordered": unordered,
}  # fmt: skip


def stripped(text: str) -> list[str]:
    """The lines without spaces at their ends, and without empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def close(given: str, wanted: str) -> bool:
    """Whether two words are the same, or the same number within the tolerance."""
    if given == wanted:
        return True
    both = (given, wanted)
    if not all(map(NUMBER.fullmatch, both)) or all(map(WHOLE.fullmatch, both)):
        return False
    a, b = float(given), float(wanted)
    scale = 1.0 if WHOLE.fullmatch(wanted) else max(1.0, abs(b))
    return isfinite(b) and abs(a - b) <= TOLERANCE * scale


def difference(output: str, expected: str) -> str:
    """The first line that differs, for people."""
    for number, (given, wanted) in enumerate(
        zip_longest(stripped(output), stripped(expected)), start=1
    ):
        if given != wanted:
            return f"line {number} is {shortened(given)}, not {shortened(wanted)}"
    return "spaces or line ends differ"


def shortened(line: str | None) -> str:
    """A line as a message shows it."""
    if line is None:
        return "missing"
    return repr(line) if len(line) <= SHOWN else f"{line[:SHOWN]!r}..."
