"""The types that the codec sends, each with its tag and how to take it apart and rebuild it."""

from __future__ import annotations

import array
import builtins
import datetime
import math
import sys
import time
from collections import (
    ChainMap,
    Counter,
    OrderedDict,
    UserDict,
    UserList,
    UserString,
    defaultdict,
    deque,
)
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from importlib import import_module
from operator import methodcaller
from types import MappingProxyType
from typing import Any, NamedTuple

from assay.sandbox.limits import INT_DIGITS

NUMPY_KINDS = "biufcSU"
"""Kinds of data type to send: bool, int, unsigned, float, complex, bytes, str; never objects."""


def is_numpy(value: Any) -> bool:
    """Whether it is an array or scalar that can be sent. False where numpy was never imported."""
    if (numpy := sys.modules.get("numpy")) is None:
        return False
    is_array = issubclass(type(value), (numpy.ndarray, numpy.generic))
    return is_array and value.dtype.kind in NUMPY_KINDS


def pack_numpy(value: Any) -> dict[str, Any]:
    """An array or scalar as JSON; a subclass collapses to a plain array."""
    numpy = sys.modules["numpy"]
    plain = numpy.array(value, copy=True, subok=False)
    data = plain.tobytes().hex()
    return {
        "numpy": [plain.dtype.str, list(plain.shape), data, issubclass(type(value), numpy.generic)]
    }


def rebuild_numpy(parts: list[Any]) -> Any:
    """The array or scalar. Raises ValueError for a data type that is not allowed."""
    import numpy

    text, shape, data, scalar = parts
    dtype = numpy.dtype(str(text))
    if dtype.kind not in NUMPY_KINDS or type(shape) is not list:
        raise ValueError(text)
    flat = numpy.frombuffer(bytes.fromhex(data), dtype=dtype)
    values = flat.reshape([int(side) for side in shape]).copy()
    return values[()] if scalar else values


def plain_numpy(value: Any) -> Any:
    """An array or scalar as Python numbers and lists of them; any other value as it is.

    A float16 would decide whether it equals a Python number: 3.140625 then equals 3.14159265.
    """
    if not is_numpy(value):
        return value
    wide = {"f": "f8", "c": "c16"}.get(value.dtype.kind)
    return (value.astype(wide) if wide else value).tolist()


DECIMAL_EXPONENT = 100_000
"""Of a Decimal with a larger one, `int()` and `round()` would make a number that fits no memory."""
INT_BITS, HEX_DIGITS = 13_000, 1_000_000
"""Larger ints travel as hexadecimal, for decimal text takes quadratic time."""
PLAIN_DIGITS = 4_300
"""Python's own limit on the decimal digits of an int, which many of them may have in little time.
What a program or a client sends has no more, unless the right answers do."""
if 0 < sys.get_int_max_str_digits() < INT_DIGITS:
    sys.set_int_max_str_digits(INT_DIGITS)  # tasks and tests have such numbers too

BARE = frozenset((type(None), bool, int, str))
BARE_OR_FLOAT = BARE | {float}
KEYED = {"set": 1, "frozenset": 1, "keys": 1, "dict": 2}
"""Tags whose parts are keys, or of which every second part is a key."""
BUILTINS: dict[str, Any] = {
    builtin.__name__: builtin
    for builtin in (
        int, float, str, bool, list, tuple, dict, set, frozenset, bytes, bytearray, complex, object,
        type, range, len, sum, min, max, abs, sorted, ord, chr, all, any, print, repr, round,
        divmod, pow, hash,
    )
}  # fmt: skip
BUILTINS |= {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}
BUILTIN_NAMES = {id(builtin): name for name, builtin in BUILTINS.items()}


class CodecError(ValueError):
    """A value that cannot be sent, or a frame that no honest sender writes."""


class TooLargeError(CodecError):
    """A value with too much depth, or too many nodes or items."""


class TypeCodec(NamedTuple):
    """How values of one type are sent."""

    tag: str
    parts: Callable[[Any], Any]
    """Takes a value apart."""
    written: type
    """The type of the parts in JSON. A range, where a list is expected, would stand for more parts
    than are counted."""
    rebuild: Callable[[Any], Any]


def rebuilt_set(parts: list[Any]) -> set[Any]:
    """A set that iterates in the sender's order, which the table's size and the order of insertion
    decide.

    A set grown one by one has a larger table than one merged from another set; small ints then
    iterate in another order.
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
    if len(text) > HEX_DIGITS:
        raise TooLargeError(f"an int has more than {HEX_DIGITS} hexadecimal digits")
    return int(text, 16)


def _dict(parts: Any) -> dict[Any, Any]:
    if type(parts) is not dict:
        raise CodecError("malformed dict")
    return parts


def _decimal(text: str) -> Decimal:
    value = Decimal(text)
    if value.is_finite() and abs(value.adjusted()) > DECIMAL_EXPONENT:
        raise TooLargeError(f"a Decimal has an exponent over {DECIMAL_EXPONENT}")
    return value


def _fraction(parts: list[Any]) -> Fraction:
    if not all(type(part) is int for part in parts):
        raise CodecError("a Fraction is made of ints")
    return Fraction(*parts)


def _items(parts: list[Any]) -> Any:
    return {key: value for key, value in parts}.items()  # noqa: C416  dict() would read a part to its end


_latin_1 = methodcaller("decode", "latin-1")


def _view(parts: list[Any]) -> memoryview:
    kind, text = parts
    view = memoryview(bytes.fromhex(text))
    return view if kind == "B" else view.cast(kind)


def imported(name: str, text: str) -> Any:
    """A value of a type in IMPORTED. Raises ValueError."""
    return getattr(import_module(IMPORTED[name]), name)(text)


def _size_and_items(value: Any) -> list[Any]:
    return [value.__sizeof__(), *value]


def _each(make: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    return lambda parts: make(*parts)


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
    (UserDict, lambda value: dict(value.data)),
    (UserList, lambda value: list(value.data)),
)
"""Turn an instance of a subclass into its base, by the base's own methods."""


MUTABLE = (list, dict, set, bytearray, deque, UserDict, UserList)
SHARED = frozenset((*MUTABLE[:5], Counter, OrderedDict, defaultdict, array.array))


def is_mutable(value: Any) -> bool:
    """Whether it is data that can change in place, and no instance of a subclass."""
    numpy = sys.modules.get("numpy")
    return type(value) in SHARED or (numpy is not None and type(value) is numpy.ndarray)


def with_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of plain data in which each part is `change(part)`; keys stay."""
    if isinstance(value, list | tuple):
        return type(value)(map(change, value))
    if isinstance(value, dict):
        changed = value.copy()
        for key, part in value.items():
            changed[key] = change(part)
        return changed
    return deque(map(change, value), value.maxlen) if isinstance(value, deque) else value


def write_back(old: Any, new: Any) -> None:
    """Give a mutable object the value `new`, in place; one of another type stays. Raises
    ValueError for another shape of an array.
    """
    if type(old) is not type(new):
        return
    if isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif isinstance(old, deque):
        old.clear()
        old.extend(new)
    elif type(old) in SHARED:
        old[:] = new
    elif is_mutable(old):
        old[...] = new


def unhashable(packed: Any) -> bool:
    """Whether packed data is of an unhashable value."""
    if type(packed) is not dict:
        return type(packed) is list
    ((tag, parts),) = packed.items()
    return tag in UNHASHABLE or (tag == "tuple" and any(map(unhashable, parts)))


def pack_special(value: Any) -> dict[str, Any] | None:
    """A built-in function or type by its name, or a value of numpy's; None for anything else."""
    if id(value) in BUILTIN_NAMES:
        return {"builtin": BUILTIN_NAMES[id(value)]}
    if type(value) is memoryview and value.readonly and value.ndim == 1 and value.c_contiguous:
        return {"memoryview": [value.format, value.tobytes().hex()]}
    if IMPORTED.get(type(value).__name__) == type(value).__module__:
        return {type(value).__name__: str(value)}
    return pack_numpy(value) if is_numpy(value) else None


def collapsed(value: Any, kind: type) -> Any:
    """An instance of a subclass as its base; any other value as it is."""
    return next((collapse(value) for base, collapse in COLLAPSE if issubclass(kind, base)), value)


VIEWS: dict[type, Callable[[Any], Any]] = {
    memoryview: bytes, MappingProxyType: dict, ChainMap: dict, UserString: str,
}  # fmt: skip
"""Python's own types that are equal to the data that they show, and how to get that."""


def data_of_view(value: Any) -> Any:
    """What a view of data shows; any other value as it is."""
    kind = type(value)
    return next((show(value) for view, show in VIEWS.items() if issubclass(kind, view)), value)


DICT_VIEWS: dict[str, Callable[[Any], Any]] = {
    "keys": lambda keys: dict.fromkeys(keys).keys(),
    "values": lambda values: dict(enumerate(values)).values(),
    "items": _items,
}
CONSTANT = TypeCodec(
    "constant", str, str, {"NotImplemented": NotImplemented, "Ellipsis": Ellipsis}.__getitem__
)
TYPES: dict[type, TypeCodec] = {
    tuple: TypeCodec("tuple", list, list, tuple),
    dict: TypeCodec(
        "dict", lambda it: [part for pair in it.items() for part in pair], list, _pairs
    ),
    set: TypeCodec("set", _size_and_items, list, rebuilt_set),
    frozenset: TypeCodec(
        "frozenset", _size_and_items, list, lambda parts: frozenset(rebuilt_set(parts))
    ),
    bytes: TypeCodec("bytes", _latin_1, str, lambda text: text.encode("latin-1")),
    bytearray: TypeCodec("bytearray", _latin_1, str, lambda text: bytearray(text, "latin-1")),
    complex: TypeCodec("complex", lambda it: [it.real, it.imag], list, _each(complex)),
    range: TypeCodec("range", lambda it: [it.start, it.stop, it.step], list, _each(range)),
    deque: TypeCodec(
        "deque", lambda it: [it.maxlen, *it], list, lambda parts: deque(parts[1:], maxlen=parts[0])
    ),
    Counter: TypeCodec("Counter", dict, dict, lambda parts: Counter(_dict(parts))),
    OrderedDict: TypeCodec("OrderedDict", dict, dict, lambda parts: OrderedDict(_dict(parts))),
    defaultdict: TypeCodec(
        "defaultdict",
        lambda it: [it.default_factory, dict(it)],
        list,
        lambda parts: defaultdict(parts[0] if callable(parts[0]) else None, parts[1]),
    ),
    **{
        type(getattr(kind(), name)()): TypeCodec(name, list, list, rebuild)
        for kind in (dict, OrderedDict)
        for name, rebuild in DICT_VIEWS.items()
    },
    Decimal: TypeCodec("Decimal", str, str, _decimal),
    Fraction: TypeCodec("Fraction", lambda it: [it.numerator, it.denominator], list, _fraction),
    array.array: TypeCodec(
        "array", lambda it: [it.typecode, *it], list, lambda parts: array.array(parts[0], parts[1:])
    ),
    datetime.timedelta: TypeCodec(
        "timedelta",
        lambda it: [it.days, it.seconds, it.microseconds],
        list,
        _each(datetime.timedelta),
    ),
    **{
        kind: TypeCodec(kind.__name__, kind.isoformat, str, kind.fromisoformat)
        for kind in (datetime.date, datetime.time, datetime.datetime)
    },
    datetime.timezone: TypeCodec(
        "timezone", lambda it: [*it.__getinitargs__()], list, _each(datetime.timezone)
    ),
    slice: TypeCodec("slice", lambda it: [it.start, it.stop, it.step], list, _each(slice)),
    time.struct_time: TypeCodec("struct_time", list, list, time.struct_time),
    type(NotImplemented): CONSTANT,
    type(Ellipsis): CONSTANT,
}
PATHS = ("PosixPath", "PurePosixPath", "PureWindowsPath")
IMPORTED = {"UUID": "uuid", **dict.fromkeys(PATHS, "pathlib")}
"""Types by name, with their modules, which few programs load."""
UNHASHABLE = {"values", *(codec.tag for kind, codec in TYPES.items() if kind.__hash__ is None)}
REBUILD: dict[str, tuple[type, Callable[[Any], Any]]] = {
    **{kind.tag: (kind.written, kind.rebuild) for kind in TYPES.values()},
    **{name: (str, partial(imported, name)) for name in IMPORTED},
    "float": (str, {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.__getitem__),
    "int": (str, _int),
    "iterator": (list, iter),
    "memoryview": (list, _view),
    "builtin": (str, BUILTINS.__getitem__),
    "numpy": (list, rebuild_numpy),
}
"""By tag: the type of the parts in JSON, and what rebuilds a value from them."""


class Opaque:
    """An object that a call returned and that is no data: equal only to itself; its truth value is
    what the program sent.
    """

    def __new__(cls, parts: Any) -> Opaque:
        """Of a class whose name says what it is: Python's messages show that."""
        name = str(parts[0] if type(parts) is list and parts else parts)[:100]
        return object.__new__(opaque_class(name if name.isidentifier() else "object"))

    def __init__(self, parts: Any) -> None:
        name, truth = parts[:2] if type(parts) is list and len(parts) > 1 else (parts, None)
        self._name = str(name)[:100]
        self._truth = truth if type(truth) is bool else None

    def __repr__(self) -> str:
        return f"<a {self._name} of the candidate's>"

    def __bool__(self) -> bool:
        if self._truth is None:
            raise TypeError(f"{self!r} is no data")
        return self._truth


def class_name(value: Opaque) -> str:
    """The name of the class of the object that it stands for, as the program says."""
    return value._name


@lru_cache(maxsize=64)
def opaque_class(name: str) -> type[Opaque]:
    """The class of the objects that stand for those of a class with this name."""
    return type(f"{name} (no data: it stays with the program)", (Opaque,), {})
