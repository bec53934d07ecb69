"""Compares two objects of the program's as data, where the data was fixed before the program could
know what is expected.

The program decides what `==` of its objects says, and all that they say of themselves. But what it
sends with an answer is sent: where a test constructs another object of the same class afterwards,
of data, the two can be compared here. If that gives what the program says, the program has decided
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.judge.codec_types import INT_BITS, CodecError

PARTS, LONGEST = 500, 10_000
"""Larger data is not compared: most in parts, and in characters of a text."""
Fields = dict[str, Any]
"""By parameter of a class: plain data."""


def plain_copy(value: Any, left: int = PARTS) -> Any:
    """A copy of small plain data. Raises CodecError for anything else."""
    copy, _ = _copied(value, left)
    return copy


def _copied(value: Any, left: int) -> tuple[Any, int]:
    """A copy, and how many more parts there may be."""
    kind = type(value)
    if left <= 0:
        raise CodecError("too large")
    if value is None or kind in (bool, float):
        return value, left - 1
    if kind is int and value.bit_length() < INT_BITS:
        return value, left - 1
    if kind in (str, bytes) and len(value) <= LONGEST:
        return value, left - 1
    if kind is dict:
        items, left = _copied([*value.items()], left)
        return dict(items), left
    if kind not in (list, tuple, set, frozenset):
        raise CodecError("no plain data")
    parts = []
    for part in value:
        copy, left = _copied(part, left)
        parts.append(copy)
    return kind(parts), left - 1


class Parameters:
    """Those of a class's constructor: how many may be positional, and the name of each with its
    default, if it has one. Raises CodecError for another shape.
    """

    def __init__(self, described: Any, plain: Callable[[Any], Any]) -> None:
        positional, *parameters = described or [0]
        self.names = [str(name) for name, _ in parameters]
        self._positional = self.names[:positional]
        self._defaults = {str(name): plain(it) for name, default in parameters for it in default}

    def bound(
        self, arguments: tuple[Any, ...], keywords: Mapping[str, Any],
        passed_for: Callable[[Any], Any],
    ) -> Fields | None:  # fmt: skip
        """All parameters by name, where a test passes plain data for at least one of them and the
        others have plain defaults. `passed_for`: data for an object that the test has constructed
        in the same way. Raises CodecError for anything else.
        """
        if not (arguments or keywords) or len(arguments) > len(self._positional):
            return None
        by_position = dict(zip(self._positional, arguments, strict=False))
        if by_position.keys() & keywords.keys() or keywords.keys() - set(self.names):
            return None
        try:
            passed = {name: plain_copy(passed_for(it))
                      for name, it in (by_position | dict(keywords)).items()}  # fmt: skip
        except CodecError:
            return None
        fields = self._defaults | passed
        return fields if len(fields) == len(self.names) else None

    def committed(self, state: Any, plain: Callable[[Any], Any]) -> Fields | None:
        """By name: what the program says with an answer that its attributes are."""
        if not state or len(state) != len(self.names):
            return None
        try:
            return dict(zip(self.names, map(plain, state), strict=True))
        except CodecError:  # a tuple that holds objects
            return None


class Commitment:
    """What is known of an object as data, and since when."""

    def __init__(self, epoch: int, arrived: int, state: Fields | None) -> None:
        self.epoch = epoch
        """While this lasts, no request has been made that may have changed it."""
        self.arrived = arrived
        """The number of the request that it has answered."""
        self.state = state
        self.passed: Fields | None = None
        """What the test has constructed it of, with the request of that number."""
        self.constructed = 0

    def against(self, other: Commitment) -> Fields | None:
        """What it is, as far as the program cannot have chosen that after the test has constructed
        the other.
        """
        if self.passed is not None:
            return self.passed
        return self.state if self.arrived < other.constructed else None


def decides_here(
    compare: Callable[[Any, Any], Any],
    first: Commitment,
    second: Commitment,
    epoch: int,
    says: object,
) -> bool:
    """Whether a comparison of what the two are as data gives what the program says."""
    if not (first.epoch == second.epoch == epoch and type(says) is bool):
        return False
    left, right = first.against(second), second.against(first)
    if left is None or right is None or left.keys() != right.keys():
        return False
    if first.passed is None and second.passed is None:
        return False
    try:
        return compare([*left.values()], [right[name] for name in left]) is says
    except TypeError:
        return False
