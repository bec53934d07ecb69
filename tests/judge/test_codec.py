"""Values come back as they went, subclasses as their base; hostile frames build nothing else."""

from __future__ import annotations

import array
import datetime
import enum
import itertools
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.judge.codec import DEPTH, Packer, Unpacker, dumps, loads
from assay.judge.codec_types import CodecError, TooLargeError


def crossed(value: Any) -> Any:
    return Unpacker().value(
        loads(Packer(lambda v: {"opaque": type(v).__name__}).text(value).encode())
    )


def received(text: str) -> Any:
    return Unpacker().value(loads(text.encode()))


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
HASHABLE = st.recursive(
    PLAIN, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=4), max_leaves=6
)
VALUES = st.recursive(
    PLAIN
    | st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes()
    | st.timedeltas(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.dictionaries(HASHABLE, inner) | st.sets(HASHABLE)
    ),
    max_leaves=20,
)


def alike(a: Any, b: Any) -> bool:
    """Equal, and of equal types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return alike(list(a.items()), list(b.items()))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_a_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    assert alike(value, crossed(value))


ROW = [
    math.inf, -math.inf, -0.0, 5e-324, 10**5000, -(10**5000), "\ud800", range(3, 9, 2), deque([1],
    maxlen=2),
    Counter("aab"), OrderedDict(a=1), defaultdict(list, {1: [2]}), Decimal("1.10"), Fraction(1, 3),
    array.array("d", [1.5]), bytearray(b"\xff"), datetime.time(1, 2, 3), Ellipsis, NotImplemented,
    int, sum,
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), {1: {2: (3, frozenset({4}))}}, [[1, [2.5,
    "x"]], None],
]  # fmt: skip


@pytest.mark.parametrize("value", ROW, ids=lambda value: type(value).__name__)
def test_unusual_values_cross(value: Any) -> None:
    back = crossed(value)
    assert back == value
    assert type(back) is type(value)


def test_nan_crosses_as_nan() -> None:
    assert math.isnan(crossed([1, math.nan])[1])


def test_views_and_iterators_cross_as_such() -> None:
    assert crossed({"a": 1}.keys()) == {"a"}
    assert list(crossed({"a": 1}.values())) == [1]
    assert list(crossed({"a": 1}.items())) == [("a", 1)]
    assert list(crossed(x * x for x in range(3))) == [0, 1, 4]
    assert next(crossed(iter([7]))) == 7


def test_every_iterator_of_pythons_own_crosses_as_its_items() -> None:
    assert list(crossed(itertools.chain([1], [2]))) == [1, 2]
    assert list(crossed(itertools.permutations([1, 2]))) == [(1, 2), (2, 1)]
    assert list(crossed(map(str, [1, 2]))) == ["1", "2"]
    assert next(crossed(iter("\xe9"))) == "\xe9"


class Hashable(dict[str, int]):
    def __hash__(self) -> int:  # type: ignore[override]
        return 1


def test_a_key_that_collapses_to_no_key_crosses_as_foreign() -> None:
    packer = Packer(lambda value: {"opaque": type(value).__name__})
    key = Hashable(a=1)
    assert packer.pack({key})["set"][1] == {"opaque": "Hashable"}
    assert packer.pack({(key, 1): key})["dict"] == [{"opaque": "tuple"}, {"dict": ["a", 1]}]
    assert packer.pack([key]) == [{"dict": ["a", 1]}]


class Liar(float):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = float.__hash__


class Colour(enum.IntEnum):
    RED = 1


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "base"), [(Liar(2.5), 2.5), (Colour.RED, 1), (Pair(1, 2), (1, 2)), (True, True)]
)
def test_a_subclass_collapses_to_its_base(value: Any, base: Any) -> None:
    back = crossed(value)
    assert type(back) is type(base)
    assert back == base


def test_a_set_iterates_in_the_senders_order() -> None:
    # A set literal and a set of a list differ in the size of their tables.
    merged, grown = {12, 13, 14, 15, 16}, set([12, 13, 14, 15, 16])  # noqa: C405
    assert list(merged) != list(grown)
    assert list(crossed(merged)) == list(merged)
    assert list(crossed(grown)) == list(grown)


@pytest.mark.parametrize("deep", [DEPTH + 1, 5000])
def test_what_is_too_deep_is_refused_by_the_sender(deep: int) -> None:
    value: list[Any] = []
    for _ in range(deep):
        value = [value]
    with pytest.raises(TooLargeError, match="nested"):
        Packer().pack(value)


def test_a_cycle_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TooLargeError):
        Packer().pack(loop)


def test_an_iterator_without_end_is_refused() -> None:
    with pytest.raises(TooLargeError, match="100000 items"):
        Packer().pack(iter(range(10**9)))


def test_more_parts_than_allowed_are_refused_by_the_reader() -> None:
    with pytest.raises(TooLargeError, match="2000000 parts"):
        Unpacker().value([[0] * 1_100_000, [0] * 1_100_000])


def test_a_value_of_no_known_type_is_refused_unless_the_packer_is_told_what_to_do() -> None:
    with pytest.raises(CodecError, match="object"):
        Packer().pack(object())


HOSTILE = [
    '{"eval":"1"}', '{"builtin":"eval"}', '{"builtin":"__import__"}', '{"builtin":["int"]}',
    '{"tuple":5}', "{}",
    '{"a":1,"b":2}', "NaN", "Infinity", '{"float":"7"}', '{"dict":[1]}', '{"dict":[[],1]}',
    '{"set":[]}',
    '{"set":[0,[]]}', '{"int":"zz"}', '{"bytes":"\\u0fff"}', '{"range":[0,1,0]}',
    '{"array":["O",1]}', '{"date":"x"}',
    '{"numpy":["O",[1],"00",false]}', '{"numpy":["<i8",[-1],"00",false]}', '{"Fraction":[1,0]}',
    '{"opaque":"x"}',
    '{"handle":[0,"x"]}', "[" * 100_000, '{"tuple":' * 300 + "[]" + "}" * 300, "1" * 50_001,
    " " * 200_000 + "1" * 5000,
    "nonsense", "", "\x00",
    '{"tuple":{"range":[0,3,1]}}', '{"iterator":{"range":[0,3,1]}}', '{"deque":{"range":[0,3,1]}}',
    '{"Counter":{"range":[0,3,1]}}', '{"items":[{"range":[0,3,1]}]}',
    '{"Fraction":[{"Decimal":"3"}]}',
    '{"Decimal":"1e100001"}', '{"numpy":["<i8",{"range":[0,0,1]},"",false]}',
    '{"bytes":{"bytes":"x"}}',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:24])
def test_a_hostile_frame_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        received(text)


def test_running_out_of_memory_is_no_malformed_value() -> None:
    def exhausted(parts: Any) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        Unpacker({"big": exhausted}).value([{"big": 1}])


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["tuple", "set", "dict", "builtin", "range", "int"]),
                inner,
                max_size=1,
            )
        ),
        max_leaves=15,
    )
)
def test_any_json_is_either_refused_or_built_from_allowed_types(data: Any) -> None:
    try:
        value = received(dumps(data))
    except CodecError:
        return
    assert Packer().pack(value) is not ...
