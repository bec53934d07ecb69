"""Calls of the entry point with given arguments, made by the test worker, and whether each answer
is the right one.
"""

from __future__ import annotations

import cmath
import contextlib
import sys
from collections.abc import Callable
from typing import Any

from assay.judge import numpy_values
from assay.judge.codec import Json, Unpacker, dumps
from assay.judge.proxy import Connection, Opaque

RELATIVE = 1e-7
"""What a tolerance leaves to large floats, as numpy's assert_allclose does."""
ANSWERS_MIB = 64
"""What the answers of one reference may take in all."""
SHOWN = 110
Checker = Callable[[list[Any], Any, Any], object]
"""From arguments, value and expected value to whether the value is right."""


class Caller:
    """Makes the calls of one job. `answers` are those to calls whose right value is sought, as
    JSON.
    """

    def __init__(self, connection: Connection, entry_point: str) -> None:
        self.connection = connection
        self.entry_point = entry_point
        self.checker: Checker | None = None
        self.answers: list[str] = []
        self.room = ANSWERS_MIB << 20
        self.unpacker = Unpacker({"opaque": Opaque}, nodes=sys.maxsize)  # for the data set's side

    def fault(self, arguments: list[Json], expected: Json, tolerance: float) -> str:
        """Make one call: what is wrong with its answer, empty where nothing is; `expected` is a
        list of one, or None.

        Raises what the program raises, Gone where it fails for good, and what the checker raises.
        """
        answer = self.connection.ask(self.entry_point, arguments)
        if expected is None:
            self.keep(answer)
            return ""
        if self.checker is None and answer == expected[0]:
            return ""
        value, right = self.connection.value(answer), self.unpacker.value(expected[0])
        if self.checker is None:
            holds = equal(value, right, tolerance)
        else:
            holds = bool(self.checker(self.unpacker.value(arguments), value, right))
        return "" if holds else f"gives {shown(value)}, not {shown(right)}"

    def keep(self, answer: Json) -> None:
        """Keep an answer that is right by definition."""
        self.connection.value(answer)
        self.answers.append(dumps(answer))
        self.room -= len(self.answers[-1])
        if self.room < 0:
            raise self.connection.fail(
                "output", f"the answers take more than {ANSWERS_MIB} MiB in all"
            )

    def described(self, number: int, arguments: list[Json]) -> str:
        """One call for people, counted from 1: `call 3, f(1, 2)`."""
        inside = ", ".join(map(shown, self.unpacker.value(arguments)))
        return f"call {number + 1}, {self.entry_point}({cut(inside)})"


def equal(value: Any, expected: Any, tolerance: float) -> bool:
    """Whether they are equal as Python has it, or alike but for floats that are nearly the same, or
    both nan.

    A float anywhere in lists, tuples, dicts and arrays may differ by `tolerance` (0: not at all)
    and 1e-7 of its size; types and lengths must then agree.
    """
    if numpy_values.is_value(value) and not numpy_values.is_value(expected) and not value.shape:
        value = value.item()
    with contextlib.suppress(ValueError):  # arrays have no one answer
        if not numpy_values.is_value(value) and value == expected:
            return True
    if type(value) is not type(expected):
        return False
    if numpy_values.is_value(expected):
        return equal(value.tolist(), expected.tolist(), tolerance)
    if isinstance(expected, float | complex):
        return near(value, expected, tolerance)
    if isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(
            map(lambda one, two: equal(one, two, tolerance), value, expected)
        )
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            equal(value[key], expected[key], tolerance) for key in expected
        )
    return False


def near(value: complex, expected: complex, tolerance: float) -> bool:
    """Whether two unequal floats are within the tolerance, or both nan. An infinity is near
    nothing.
    """
    if cmath.isnan(value) or cmath.isnan(expected):
        return cmath.isnan(value) and cmath.isnan(expected)
    if tolerance == 0:
        return False
    return cmath.isclose(value, expected, rel_tol=0, abs_tol=tolerance + RELATIVE * abs(expected))


def shown(value: object) -> str:
    """A value for people, shortened."""
    try:
        return cut(repr(value))
    except ValueError:
        return f"an int of more than {sys.get_int_max_str_digits()} digits"


def cut(text: str) -> str:
    """The text, shortened at its end."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
