"""Calls of the entry point by the test worker, and the comparison of each answer with the expected
value.
"""

from __future__ import annotations

import cmath
import contextlib
import sys
from collections.abc import Callable
from typing import Any

from assay.judge.codec import Json, Packer, Unpacker, dumps, loads
from assay.judge.codec_types import is_numpy, plain_numpy
from assay.judge.proxy import Connection, Opaque

RELATIVE = 1e-7
"""Relative tolerance beside an absolute one, as in numpy's assert_allclose."""
ANSWERS_MIB = 64
"""Limit on all answers of one reference together."""
LARGE = 1 << 20
"""Characters of JSON beyond which an answer is not kept: every job would carry it."""
RECOMPUTED: Json = {"recomputed": []}
"""Stands for such an answer: the worker then runs the reference itself."""
SHOWN = 110
Checker = Callable[[list[Any], Any, Any], object]
"""Takes arguments, value and expected value; returns whether the value is right."""


class Caller:
    """Makes the calls of one job. `answers`: JSON of the answers to calls without an expected
    value.
    """

    def __init__(self, connection: Connection, entry_point: str, reference: str = "") -> None:
        self.connection = connection
        self.entry_point = entry_point
        self.checker: Checker | None = None
        self.answers: list[str] = []
        self.room = ANSWERS_MIB << 20
        self.unpacker = Unpacker({"opaque": Opaque}, nodes=sys.maxsize)  # for the data set's side
        self.reference = reference

    def fault(self, arguments: list[Json], expected: Json, tolerance: float) -> str:
        """Make one call; says what is wrong with its answer, or nothing. `expected` is a list of
        one value, or None.

        Raises what the program or the checker raises, and CandidateFailed.
        """
        answer = self.connection.call_packed(self.entry_point, arguments)
        if expected is None:
            self.keep(answer)
            return ""
        packed = self.recompute(arguments) if expected[0] == RECOMPUTED else expected[0]
        if self.checker is None and answer == packed:
            return ""
        value, right = self.connection.value(answer), self.unpacker.value(packed)
        if self.checker is None:
            holds = equal(value, right, tolerance)
        else:
            holds = bool(self.checker(self.unpacker.value(arguments), value, right))
        return "" if holds else f"gives {show_value(value)}, not {show_value(right)}"

    def keep(self, answer: Json) -> None:
        """Keep a reference's answer. Raises CandidateFailed where all answers are too large."""
        self.connection.value(answer)
        text = dumps(answer)
        large = len(text) > LARGE and self.entry_point.isidentifier()
        self.answers.append(dumps(RECOMPUTED) if large else text)
        self.room -= len(self.answers[-1])
        if self.room < 0:
            detail = f"the answers take more than {ANSWERS_MIB} MiB in all"
            raise self.connection.requests.fail("output", detail)

    def recompute(self, arguments: list[Json]) -> Json:
        """The reference's answer. Raises CandidateFailed where it fails here, in the worker."""
        namespace: dict[str, Any] = {"__name__": "reference"}
        given = self.unpacker.value(loads(dumps(arguments).encode()))  # it may change them
        try:
            exec(compile(self.reference, "<reference>", "exec", dont_inherit=True), namespace)
            return Packer().pack(namespace[self.entry_point](*given))
        except BaseException as error:  # noqa: BLE001  the data set's code; the program is not to blame
            why = f"the reference fails in the worker: {type(error).__name__}: {error}"
            raise self.connection.requests.fail("unsendable", why) from None

    def describe(self, number: int, arguments: list[Json]) -> str:
        """A call for messages, counted from 1: `call 3, f(1, 2)`."""
        inside = ", ".join(map(show_value, self.unpacker.value(arguments)))
        return f"call {number + 1}, {self.entry_point}({shorten(inside)})"


def equal(value: Any, expected: Any, tolerance: float) -> bool:
    """Whether `value == expected`, or they differ only in floats that are close, or both nan.

    A float anywhere in lists, tuples, dicts and arrays may differ by `tolerance` (0: not at all)
    plus 1e-7 of its size; types and lengths must then agree. Numbers of numpy's are compared as
    Python's.
    """
    if is_array(value) is not is_array(expected):
        return False
    value, expected = plain_numpy(value), plain_numpy(expected)
    alike = type(value) is type(expected)
    if alike and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(
            map(lambda one, two: equal(one, two, tolerance), value, expected)
        )
    if alike and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            equal(value[key], expected[key], tolerance) for key in expected
        )
    with contextlib.suppress(ValueError):  # arrays in a deque have no single truth value
        if value == expected:
            return True
    return alike and isinstance(expected, float | complex) and near(value, expected, tolerance)


def is_array(value: Any) -> bool:
    """Whether it is an array of numpy's, of one dimension or more."""
    return is_numpy(value) and value.shape != ()


def near(value: complex, expected: complex, tolerance: float) -> bool:
    """Whether two unequal floats are within the tolerance, or both nan. Nothing is near an
    infinity.
    """
    if cmath.isnan(value) or cmath.isnan(expected):
        return cmath.isnan(value) and cmath.isnan(expected)
    if tolerance == 0:
        return False
    return cmath.isclose(value, expected, rel_tol=0, abs_tol=tolerance + RELATIVE * abs(expected))


def show_value(value: object) -> str:
    """A value for messages, shortened."""
    try:
        return shorten(repr(value))
    except ValueError:
        return f"an int of more than {sys.get_int_max_str_digits()} digits"


def shorten(text: str) -> str:
    """The text, shortened at its end."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
