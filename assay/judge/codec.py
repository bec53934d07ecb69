"""Values across the wall: data of exact built-in types in, data of exact built-in types out; never
pickle, never eval.

JSON carries what it can as itself (None, bool, int, finite float, str, list); the rest is an object
with one key, its
tag: `(1, 2)` is `{"tuple": [1, 2]}`. Instances of subclasses collapse to their base by the base's
own methods. The sender may be hostile: it is the reader that can only build these types, and
refuses everything else.
"""

from __future__ import annotations

import array
import datetime
import json
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

from assay.judge import numpy_values

DEPTH, NODES, ITEMS = 200, 1_000_000, 100_000
RECURSION = 20_000
"""Levels of JSON that surely fit on a stack; the reader goes no deeper even where a check allows
Python to."""
DECIMAL_EXPONENT = 100_000
"""Of a larger one, `int()` and `round()` would make a number that no machine holds."""
INT_BITS, INT_DIGITS = 13_000, 1_000_000
"""Larger ints travel as hexadecimal: decimal text takes quadratic time, and Python refuses over
4,300 digits."""

Json = Any
BARE = frozenset((type(None), bool, int, str))
BARE_OR_FLOAT = BARE | {float}
UNHASHABLE = frozenset(
    (
        "set",
        "dict",
        "bytearray",
        "deque",
        "Counter",
        "OrderedDict",
        "defaultdict",
        "array",
        "keys",
        "values",
        "items",
    )
)
KEYED = {"set": 1, "frozenset": 1, "keys": 1, "dict": 2}
"""Tags whose parts are keys, or of which every second one is."""
BUILTINS: dict[str, Any] = {
    made.__name__: made
    for made in (int, float, str, bool, list, tuple, dict, set, frozenset, bytes, bytearray,
        complex, object, type,
                 range, len, sum, min, max, abs, sorted, ord, chr, all, any, print, repr, round,
                 divmod, pow, hash)
}  # fmt: skip
BUILTIN_NAMES = {id(made): name for name, made in BUILTINS.items()}


class CodecError(ValueError):
    """A value that cannot cross, or a frame that no honest sender writes."""


class TooLargeError(CodecError):
    """A value with more depth, nodes or items than may cross."""


def refuse(value: object) -> Json:
    """What a Packer does with a value of no known type, unless told otherwise."""
    raise CodecError(f"a value of type {type(value).__name__} cannot cross to the candidate")


class Packer:
    """Turns values into JSON text; `foreign` turns a value of no known type into a tagged object.

    An iterator is used up: its items cross, up to `items` of them.
    """

    def __init__(self, foreign: Callable[[object], Json] = refuse, items: int = ITEMS) -> None:
        self.foreign = foreign
        self.items = items

    def text(self, value: object) -> str:
        """The JSON text of one value. Raises CodecError."""
        return dumps(self.pack(value))

    def pack(self, value: Any, depth: int = DEPTH) -> Json:
        """One value as JSON data. Raises TooLargeError for what is too deep, a cycle included."""
        kind = type(value)
        if kind is int:
            return value if value.bit_length() < INT_BITS else {"int": hex(value)}
        if kind in BARE:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if depth == 0:
            raise TooLargeError(f"a value is nested deeper than {DEPTH}")
        if kind is list:
            return self._items(value, depth - 1)
        if kind in KINDS:
            tag, parts, _, _ = KINDS[kind]
            taken = parts(value)
            packed = self.pack(taken, depth - 1)
            return {
                tag: (
                    self._keys(tag, packed, taken)
                    if tag in KEYED and packed is not taken
                    else packed
                )
            }
        return self._unusual(value, kind, depth)

    def snapshot(self, iterator: Iterator[Any], depth: int = DEPTH) -> Json:
        """What an iterator yields from here on. Raises TooLargeError for more than may cross."""
        items = list(islice(iterator, self.items + 1))
        if len(items) > self.items:
            raise TooLargeError(f"an iterator yields more than {self.items} items")
        return {"iterator": self._items(items, depth - 1)}

    def _keys(self, tag: str, packed: list[Json], taken: list[Any]) -> list[Json]:
        """Keys that collapse to what cannot be a key, an instance of a hashable kind of dict say,
        are foreign.
        """
        for at in range(0, len(packed), KEYED[tag]):
            if unhashable(packed[at]):
                packed[at] = self.foreign(taken[at])
        return packed

    def _items(self, values: list[Any], depth: int) -> list[Json]:
        kinds = set(map(type, values))
        if (
            kinds <= BARE_OR_FLOAT
            and (
                float not in kinds
                or all(math.isfinite(value) for value in values if type(value) is float)
            )
            and (
                int not in kinds
                or all(value.bit_length() < INT_BITS for value in values if type(value) is int)
            )
        ):
            return values
        return [self.pack(value, depth) for value in values]

    def _unusual(self, value: Any, kind: type, depth: int) -> Json:
        if kind.__module__ in ("builtins", "itertools") and is_iterator(value):
            return self.snapshot(value, depth)
        if id(value) in BUILTIN_NAMES:
            return {"builtin": BUILTIN_NAMES[id(value)]}
        if numpy_values.is_value(value):
            return numpy_values.pack(value)
        for base, collapse in COLLAPSE:
            if issubclass(kind, base):
                return self.pack(collapse(value), depth - 1)
        return self.foreign(value)


def is_iterator(value: object) -> bool:
    """Whether it is one by its type."""
    return hasattr(type(value), "__next__")


def unhashable(packed: Json) -> bool:
    """Whether packed data is of a value that can be no key."""
    if type(packed) is not dict:
        return type(packed) is list
    ((tag, parts),) = packed.items()
    return tag in UNHASHABLE or (tag == "tuple" and any(map(unhashable, parts)))


COLLAPSE: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (complex, lambda value: complex(complex.__add__(value, 0))),
    (bytes, lambda value: bytes.__add__(value, b"")[:]),
    (bytearray, lambda value: bytearray.__getitem__(value, slice(None))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (dict, lambda value: dict(dict.items(value))),
    (deque, lambda value: deque(deque.__iter__(value))),
)


def dumps(packed: Json) -> str:
    """JSON text, without spaces, of packed data."""
    return _encoder.encode(packed)


def loads(text: bytes) -> Json:
    """JSON data of one frame. Raises CodecError for what is no JSON, or nested too deeply to be
    honest.
    """
    limit = sys.getrecursionlimit()
    try:
        if (
            limit > RECURSION
        ):  # a check has lifted it, and the stack would end before the nesting does
            sys.setrecursionlimit(RECURSION)
        return _decoder.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not a frame: {type(error).__name__}") from None
    finally:
        if limit > RECURSION:
            sys.setrecursionlimit(limit)


class Unpacker:
    """Rebuilds values from JSON data; `foreign` builds what carries a tag of its own (opaque
    objects, handles).
    """

    def __init__(
        self, foreign: dict[str, Callable[[Json], Any]] | None = None, nodes: int = NODES
    ) -> None:
        self.foreign = foreign or {}
        self.nodes = self.left = nodes

    def value(self, data: Json) -> Any:
        """One value. Raises CodecError, TooLargeError over the caps, and MemoryError."""
        self.left = self.nodes
        try:
            return self._value(data, DEPTH)
        except (CodecError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  constructors of built-in types given hostile parts: whatever they raise
            raise CodecError(f"malformed value: {type(error).__name__}") from None

    def _value(self, data: Json, depth: int) -> Any:
        kind = type(data)
        if kind in BARE_OR_FLOAT:
            return data
        if depth == 0:
            raise TooLargeError(f"a value is nested deeper than {DEPTH}")
        if kind is list:
            return self._items(data, depth - 1)
        if len(data) != 1:
            raise CodecError("a tagged value has one key")
        ((tag, parts),) = data.items()
        if tag in self.foreign:
            return self.foreign[tag](parts)
        if tag not in REBUILD:
            raise CodecError(f"unknown tag {tag[:20]!r}")
        written, made = REBUILD[tag]
        if type(parts) is not written:
            raise CodecError(f"malformed {tag}")
        return made(self._value(parts, depth - 1))

    def _items(self, items: list[Json], depth: int) -> list[Any]:
        self.left -= len(items)
        if self.left < 0:
            raise TooLargeError(f"a value has more than {self.nodes} parts")
        if set(map(type, items)) <= BARE_OR_FLOAT:
            return items
        return [self._value(item, depth) for item in items]


def rebuilt_set(parts: list[Any]) -> set[Any]:
    """A set that iterates in the sender's order, which the table's size and the order of insertion
    decide.

    A set grown one by one has a larger table than one merged from another set; small ints then
    iterate differently.
    """
    size, *items = parts
    grown = set(items)
    if grown.__sizeof__() == size and list(grown) == items:
        return grown
    merged = set(dict.fromkeys(items))
    return merged if list(merged) == items else grown


def _pairs(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _int(text: str) -> int:
    if len(text) > INT_DIGITS:
        raise TooLargeError(f"an int has more than {INT_DIGITS} hexadecimal digits")
    return int(text, 16)


def _dict(parts: Any) -> dict[Any, Any]:
    if type(parts) is not dict:
        raise CodecError("malformed dict")
    return parts


def _decimal(text: str) -> Decimal:
    made = Decimal(text)
    if made.is_finite() and abs(made.adjusted()) > DECIMAL_EXPONENT:
        raise TooLargeError(f"a Decimal has an exponent over {DECIMAL_EXPONENT}")
    return made


def _fraction(parts: list[Any]) -> Fraction:
    if not all(type(part) is int for part in parts):
        raise CodecError("a Fraction is made of ints")
    return Fraction(*parts)


def _no_constant(text: str) -> None:
    raise CodecError(f"{text} is not JSON")


class Kind(NamedTuple):
    """How values of one type cross: by its tag, made of parts, and from those again."""

    tag: str
    parts: Callable[[Any], Any]
    written: type
    """What the parts are in JSON: a range, where a list should be, would stand for more of them
    than anybody counts."""
    made: Callable[[Any], Any]


def _each(make: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    return lambda parts: make(*parts)


CONSTANT = Kind(
    "constant", str, str, {"NotImplemented": NotImplemented, "Ellipsis": Ellipsis}.__getitem__
)
KINDS: dict[type, Kind] = {
    tuple: Kind("tuple", list, list, tuple),
    dict: Kind("dict", lambda it: [part for pair in it.items() for part in pair], list, _pairs),
    set: Kind("set", lambda it: [it.__sizeof__(), *it], list, rebuilt_set),
    frozenset: Kind(
        "frozenset",
        lambda it: [it.__sizeof__(), *it],
        list,
        lambda parts: frozenset(rebuilt_set(parts)),
    ),
    bytes: Kind("bytes", lambda it: it.decode("latin-1"), str, lambda text: text.encode("latin-1")),
    bytearray: Kind(
        "bytearray",
        lambda it: it.decode("latin-1"),
        str,
        lambda text: bytearray(text.encode("latin-1")),
    ),
    complex: Kind("complex", lambda it: [it.real, it.imag], list, _each(complex)),
    range: Kind("range", lambda it: [it.start, it.stop, it.step], list, _each(range)),
    deque: Kind(
        "deque", lambda it: [it.maxlen, *it], list, lambda parts: deque(parts[1:], maxlen=parts[0])
    ),
    Counter: Kind("Counter", dict, dict, lambda parts: Counter(_dict(parts))),
    OrderedDict: Kind("OrderedDict", dict, dict, lambda parts: OrderedDict(_dict(parts))),
    defaultdict: Kind(
        "defaultdict",
        lambda it: [it.default_factory, dict(it)],
        list,
        lambda parts: defaultdict(parts[0], parts[1]),
    ),
    type({}.keys()): Kind("keys", list, list, lambda items: dict.fromkeys(items).keys()),
    type({}.values()): Kind("values", list, list, lambda items: dict(enumerate(items)).values()),
    # dict() would read parts to their end
    type({}.items()): Kind(
        "items",
        list,
        list,
        lambda items: {key: value for key, value in items}.items(),  # noqa: C416
    ),
    Decimal: Kind("Decimal", str, str, _decimal),
    Fraction: Kind("Fraction", lambda it: [it.numerator, it.denominator], list, _fraction),
    array.array: Kind(
        "array", lambda it: [it.typecode, *it], list, lambda parts: array.array(parts[0], parts[1:])
    ),
    datetime.timedelta: Kind(
        "timedelta",
        lambda it: [it.days, it.seconds, it.microseconds],
        list,
        _each(datetime.timedelta),
    ),
    datetime.date: Kind("date", datetime.date.isoformat, str, datetime.date.fromisoformat),
    datetime.time: Kind("time", datetime.time.isoformat, str, datetime.time.fromisoformat),
    datetime.datetime: Kind(
        "datetime", datetime.datetime.isoformat, str, datetime.datetime.fromisoformat
    ),
    type(NotImplemented): CONSTANT,
    type(Ellipsis): CONSTANT,
}
REBUILD: dict[str, tuple[type, Callable[[Any], Any]]] = {
    **{kind.tag: (kind.written, kind.made) for kind in KINDS.values()},
    "float": (str, {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.__getitem__),
    "int": (str, _int),
    "iterator": (list, iter),
    "builtin": (str, BUILTINS.__getitem__),
    "numpy": (list, numpy_values.rebuild),
}
"""What the parts of each tag are written as, and what is made of them."""
_decoder = json.JSONDecoder(parse_constant=_no_constant)
_encoder = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"))
