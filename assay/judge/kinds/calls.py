"""Calls: arguments of the entry point, and the value that is right. The worker makes one after the
other and compares each answer.
"""

from __future__ import annotations

import ast
import cmath
import contextlib
import operator
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from assay.checks import Call
from assay.judge.codec import Json, Packer, Unpacker, dumps, loads
from assay.judge.codec_types import CodecError, Opaque, is_numpy, plain_numpy
from assay.judge.kinds.kind import AsksReference, InWorker, Part
from assay.judge.objects import SAME
from assay.judge.proxy import Connection
from assay.judge.requests import DETAIL
from assay.judge.test_code import (
    LazyBuiltins,
    Namespace,
    Piece,
    compiled,
    describe,
    shorten,
    show_value,
)
from assay.judge.worker_messages import Outcome

if TYPE_CHECKING:
    from assay.judge.kinds.workbench import Workbench
    from assay.types import Execution, Task

RELATIVE = 1e-7
"""Relative tolerance beside an absolute one, as in numpy's assert_allclose."""
ANSWERS_MIB = 64
"""Limit on all answers of one reference together."""
LARGE = 1 << 20
"""Characters of JSON beyond which an answer is not kept: every job would carry it."""
RECOMPUTED: Json = {"recomputed": []}
"""Stands for such an answer: the worker then runs the reference itself."""
RECOMPUTED_TEXT = dumps(RECOMPUTED)
STEP_SECONDS = 0.01
"""The sandbox hears that a call begins, unless it heard so a moment ago."""
NAMES = """from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
import datetime
inf, nan = float("inf"), float("nan")
"""
"""Names that the `repr` of a value may use."""
Checker = Callable[[list[Any], Any, Any], object]
"""Takes arguments, value and expected value; returns whether the value is right."""


class Caller:
    """Makes the calls of one job. `answers`: JSON of the answers to calls without an expected
    value. `next_step` tells the sandbox that a call begins.
    """

    def __init__(self, connection: Connection, next_step: Callable[[], None]) -> None:
        self.connection, job = connection, connection.job
        self.entry_point, self.reference = job["entry_point"], job["reference"]
        self.asks = "digest" if job["large"] else "answer"
        self.checker_piece: Piece = (job["checker"], "<checker>")
        self.checker: Checker | None = None
        self._next_step, self._step_ends = next_step, time.monotonic() + STEP_SECONDS
        self.answers: list[str] = []
        self.room = ANSWERS_MIB << 20
        self.unpacker = Unpacker({"opaque": Opaque}, nodes=sys.maxsize)  # for the data set's side

    def load_checker(self) -> str:
        """Take the data set's own `check`, if there is one. Returns its code's error."""
        piece = self.checker_piece
        namespace: Namespace = {"__name__": "checker", SAME: operator.is_}
        try:
            if piece[0]:
                exec(compiled(*piece), namespace)
                self.checker = namespace["check"]
        except BaseException as error:  # noqa: BLE001  the data set's code
            return describe(error, *piece)
        return ""

    def run(self, call: list[Any], number: int) -> Outcome:
        """Make one call: [arguments, [expected] or None, tolerance]. An answer on which the checker
        raises is wrong.
        """
        if time.monotonic() > self._step_ends:
            self._next_step()
            self._step_ends = time.monotonic() + STEP_SECONDS
        requests = self.connection.requests
        try:
            fault = self.fault(*call)
        except BaseException as error:  # noqa: BLE001  the program's error, or the data set's checker's
            by_program, self.connection.raised_by_test = error is requests.raised, error
            detail = requests.raised_text if by_program else describe(error, *self.checker_piece)
            detail = f"{detail} at {self.describe(number, call[0])}"
            return Outcome("error" if by_program else "wrong", detail[:DETAIL])
        if fault:
            return Outcome("wrong", f"{self.describe(number, call[0])} {fault}"[:DETAIL])
        return Outcome("held")

    def fault(self, arguments: list[Json], expected: Json, tolerance: float) -> str:
        """Make one call; says what is wrong with its answer, or nothing. `expected` is a list of
        one value, or None.

        Raises what the program or the checker raises, and CandidateFailed.
        """
        answer = self.connection.call_packed(self.entry_point, [arguments, {}], self.asks)
        if expected is None:
            self.keep(answer)
            return ""
        packed = self.recompute(arguments) if expected[0] == RECOMPUTED else expected[0]
        if self.checker is None and answer == packed:
            return ""
        value = self.connection.arrivals.value(answer, only_data=True)
        right = self.unpacker.value(packed)
        if self.checker is None:
            holds = equal(value, right, tolerance)
        else:
            holds = bool(self.checker(self.unpacker.value(arguments), value, right))
        return "" if holds else f"gives {show_value(value)}, not {show_value(right)}"

    def keep(self, answer: Json) -> None:
        """Keep a reference's answer. Raises CandidateFailed where all answers are too large."""
        self.connection.arrivals.value(answer, only_data=True)
        text = dumps(answer)
        large = len(text) > LARGE and self.entry_point.isidentifier()
        self.answers.append(RECOMPUTED_TEXT if large else text)
        self.room -= len(self.answers[-1])
        if self.room < 0:
            detail = f"the answers take more than {ANSWERS_MIB} MiB in all"
            raise self.connection.requests.fail("output", detail)

    def recompute(self, arguments: list[Json]) -> Json:
        """The reference's answer. Raises CandidateFailed where it fails here, in the worker."""
        namespace: dict[str, Any] = {"__name__": "reference"}
        copied = self.unpacker.value(loads(dumps(arguments).encode()))  # it may change them
        try:
            exec(compile(self.reference, "<reference>", "exec", dont_inherit=True), namespace)
            return Packer().pack(namespace[self.entry_point](*copied))
        except BaseException as error:  # noqa: BLE001  the data set's code; the program is not to blame
            why = f"the reference fails in the worker: {type(error).__name__}: {error}"
            raise self.connection.requests.fail("reference", why) from None

    def describe(self, number: int, arguments: list[Json]) -> str:
        """A call for messages, counted from 1: `call 3, f(1, 2)`."""
        inside = ", ".join(map(show_value, self.unpacker.value(arguments)))
        return f"call {number + 1}, {self.entry_point}({shorten(inside)})"


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the checks of a job share in the worker."""

    connection: Connection
    builtin: LazyBuiltins
    namespace: Namespace
    caller: Caller


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
            map(lambda left, right: equal(left, right, tolerance), value, expected)
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


def run(call: list[Any], number: int, context: WorkerContext) -> list[Part]:
    """One part."""
    return [partial(context.caller.run, call, number)]


def literal(packed: str) -> str:
    """A value in the judge's JSON as a Python literal; empty if it has none."""
    try:
        text = repr(Unpacker().value(loads(packed.encode())))
        ast.literal_eval(text)
    except (CodecError, ValueError, SyntaxError):
        return ""
    return text


class Calls(InWorker[Call], AsksReference[Call]):
    """Each is a call that a worker makes; driven_calls.py registers them, with what other languages
    need.
    """

    started_by_tests = True

    def steps(self, call: Call) -> int:
        """One."""
        return 1

    def wire(self, call: Call) -> Json:
        """[arguments, [expected] or None, tolerance]."""
        expected = None if call.expected is None else [loads(call.expected.encode())]
        return [loads(call.arguments.encode()), expected, call.tolerance]

    def show(self, call: Call, task: Task) -> str:
        """The call as an assert; empty where it has a tolerance or a checker."""
        if call.tolerance or task.checker or not task.entry_point.isidentifier():
            return ""
        arguments, expected = literal(call.arguments), literal(call.expected or "")
        line = f"assert {task.entry_point}({arguments[1:-1]}) == {expected}"
        return line if arguments and expected else ""

    def failure(self, call: Call, detail: str, wrong: bool) -> str:
        """The detail, which shows the call."""
        return detail.removeprefix("call 1, ")

    def answer(self, call: Call, task: Task) -> str | None:
        """Where no value is expected, the program runs the reference once for the answer."""
        values = call.arguments if call.expected is None else call.expected
        try:
            value = Unpacker().value(loads(values.encode()))
        except ValueError:
            return None
        if call.expected is not None:
            return f"{NAMES}def {task.function}(*args, **kwargs):\n    return {value!r}"
        if task.reference is None or task.function != task.entry_point:
            return None
        head = f"{task.reference}\n{NAMES}first_answer = {task.entry_point}(*{value!r})"
        return f"{head}\ndef {task.function}(*args, **kwargs):\n    return first_answer"

    def problem(self, call: Call, task: Task) -> str | None:
        """Why the call cannot be made or judged."""
        try:
            arguments, expected, _ = self.wire(call)
            reader = Unpacker({"opaque": str}, nodes=sys.maxsize)
            if type(reader.value(arguments)) is not list:
                raise CodecError("the arguments are no list")
            reader.value(expected)
        except CodecError as error:
            return f"{error}; write it in the judge's JSON"
        if call.expected is None and task.reference is None:
            return "no expected value and no reference; add one of them"
        return None

    def is_open(self, call: Call) -> bool:
        """Whether it expects what the reference answers."""
        return call.expected is None

    async def answers(
        self, workbench: Workbench, checks: Sequence[Call], task: Task
    ) -> tuple[Execution, list[str]]:
        """What a worker hears from the reference."""
        return await workbench.answers(task.reference or "")

    def closed(self, call: Call, answer: str) -> Call:
        """The call with the reference's answer."""
        return replace(call, expected=answer)
