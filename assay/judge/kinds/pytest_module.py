"""What tests import as `pytest` in the worker: marks, raises and approx. Nothing that is skipped or
expected to fail passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace
from typing import Any

from assay.judge.codec_types import is_numpy

Case = dict[str, Any]
"""One set of arguments of a test, by name."""
CASES = "assay_cases"
"""The attribute of a test or class that holds its cases."""


class Skipped(BaseException):
    """The test does not want to be run, or to pass. Few tests catch it."""


class ParameterSet(tuple[Any, ...]):
    """The values of one case, as `pytest.param` makes them."""

    __slots__ = ()


class approx:  # noqa: N801  pytest's name
    """Equal to numbers, and to sequences and mappings of numbers, that are close."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        expected: Any,
        rel: float | None = None,
        abs: float | None = None,
        nan_ok: bool = False,
    ) -> None:
        self._expected, self._nan_ok = expected, nan_ok
        self._rel = (1e-6 if abs is None else 0.0) if rel is None else rel
        self._abs = 1e-12 if abs is None else abs

    def __eq__(self, actual: object) -> bool:
        return self._near(actual, self._expected)

    def __repr__(self) -> str:
        return f"approx({self._expected!r})"

    def _near(self, actual: Any, expected: Any) -> bool:
        actual, expected = (
            number.tolist() if is_numpy(number) else number for number in (actual, expected)
        )
        if isinstance(expected, Mapping):
            same = isinstance(actual, Mapping) and actual.keys() == expected.keys()
            return same and all(self._near(actual[key], expected[key]) for key in expected)
        if isinstance(expected, Sequence) and not isinstance(expected, str | bytes):
            same = isinstance(actual, Sequence) and len(actual) == len(expected)
            return same and all(map(self._near, actual, expected))
        if actual == expected:
            return True
        if not all(isinstance(number, int | float | complex) for number in (actual, expected)):
            return False
        if actual != actual or expected != expected:
            return self._nan_ok and actual != actual and expected != expected
        close = abs(actual - expected) <= max(self._rel * abs(expected), self._abs)
        return close and not math.isinf(abs(expected))


@contextmanager
def expect_raise(kinds: Any, match: str | None) -> Any:
    """The body of `with raises(...)`. Raises AssertionError where nothing is raised."""
    caught = SimpleNamespace(value=None, type=None)
    try:
        yield caught
    except kinds as error:
        caught.value, caught.type = error, type(error)
        if match is not None and not re.search(match, str(error)):
            raise AssertionError(f"{str(error)!r} does not match {match!r}") from None
    else:
        raise AssertionError(f"did not raise {kinds}")


def raises(kinds: Any, *call: Any, match: str | None = None, **keywords: Any) -> Any:
    """A context that needs one of these exceptions; with a function, its call does."""
    if not call:
        return expect_raise(kinds, match)
    with expect_raise(kinds, match) as caught:
        call[0](*call[1:], **keywords)
    return caught


def skip(reason: str = "", **_: Any) -> Any:
    """End the test, which does not pass."""
    raise Skipped(f"skipped: {reason}")


def fail(reason: str = "", **_: Any) -> Any:
    """End the test, which fails."""
    raise AssertionError(reason)


def parametrize(
    names: str | Sequence[str], values: Iterable[Any], **_: Any
) -> Callable[[Any], Any]:
    """A decorator that makes one case of each of the values."""
    single = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [
        dict(zip(single, value if len(single) > 1 or isinstance(value, ParameterSet) else (value,),
                 strict=True))
        for value in values
    ]  # fmt: skip

    def mark(test: Any) -> Any:
        before = vars(test).get(CASES, [{}])
        setattr(test, CASES, [case | other for other, case in product(cases, before)])
        return test

    return mark


class Marks:
    """`pytest.mark`: those that change nothing return their test."""

    parametrize = staticmethod(parametrize)

    def __getattr__(self, name: str) -> Any:
        def mark(*arguments: Any, **_: Any) -> Any:
            return (
                arguments[0]
                if len(arguments) == 1 and callable(arguments[0])
                else lambda test: test
            )

        return mark

    def skip(self, *arguments: Any, reason: str = "", **_: Any) -> Any:
        """The test never passes, here and where it is expected to fail."""

        def never(*_: Any, **__: Any) -> Any:
            skip(reason)

        return never if arguments and callable(arguments[0]) else lambda test: never

    xfail = skip

    def skipif(self, condition: Any = True, *, reason: str = "") -> Any:
        """As `skip` where the condition holds."""
        return self.skip(reason=reason) if condition else lambda test: test


def make_module() -> SimpleNamespace:
    """What `import pytest` gives a test."""
    return SimpleNamespace(
        approx=approx, raises=raises, skip=skip, xfail=skip, fail=fail, mark=Marks(),
        param=lambda *values, **_: ParameterSet(values), main=lambda *_, **__: 0,
    )  # fmt: skip
