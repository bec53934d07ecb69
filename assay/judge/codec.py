"""Sends values between processes: data of exact built-in types, as JSON; never pickle, never eval.

JSON carries None, bool, int, finite float, str and list as themselves. The rest is an object with
one key, its tag: `(1, 2)` is `{"tuple": [1, 2]}`. Instances of subclasses collapse to their base by
the base's own methods. The sender may be hostile, so the reader builds only these types and refuses
everything else.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import marshal
import math
import sys
from _blake2 import blake2b
from _json import encode_basestring_ascii, make_encoder
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from assay.judge import codec_types
from assay.judge.codec_types import (
    BARE,
    BARE_OR_FLOAT,
    INT_BITS,
    KEYED,
    PLAIN_DIGITS,
    REBUILD,
    TYPES,
    CodecError,
    TooLargeError,
)

DEPTH, NODES, ITEMS = 200, 2_000_000, 100_000
LONG = 50_000
SHORT = 200_000
"""Characters of JSON in which long ints cannot take a decoder much time."""
BLANKS = b" \t\n\r"
"""What may stand around JSON."""
RECURSION = 20_000
"""The reader goes no deeper into JSON, even where a check has raised Python's recursion limit: the
stack holds so many levels."""
Json = Any


class Shared(NamedTuple):
    """Stands for an object that both sides have."""

    number: int


def refuse(value: object) -> Json:
    """The default for a Packer's `foreign`. Raises CodecError."""
    raise CodecError(f"a value of type {type(value).__name__} cannot be sent to the candidate")


class Packer:
    """Turns values into JSON data; `foreign` makes a tagged object of a value of unknown type.

    Of an iterator, up to `items` items are sent, and it is used up.
    """

    def __init__(self, foreign: Callable[[object], Json] = refuse, items: int = ITEMS) -> None:
        self.foreign = foreign
        self.items = items
        self.quiet = False
        """Whether what cannot be sent is no failure of the check's."""
        self.intercept: Callable[[Any], Json] | None = None
        """Asked first of an iterator or an instance of a subclass: a tagged object, or None."""

    def text(self, value: object) -> str:
        """The JSON text of one value. Raises CodecError."""
        return dumps(self.pack(value))

    def pack(self, value: Any, depth: int = DEPTH) -> Json:
        """One value as JSON data. Raises TooLargeError for deep nesting, and so for a cycle."""
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
        if kind in TYPES:
            tag, parts, _, _ = TYPES[kind]
            contents = parts(value)
            packed = self.pack(contents, depth - 1)
            return {
                tag: (
                    self._keys(tag, packed, contents)
                    if tag in KEYED and packed is not contents
                    else packed
                )
            }
        return self._unusual(value, kind, depth)

    def snapshot(self, iterator: Iterator[Any], depth: int = DEPTH) -> Json:
        """What an iterator yields from here on. Raises TooLargeError for more than `items`."""
        items = list(islice(iterator, self.items + 1))
        if len(items) > self.items:
            raise TooLargeError(f"an iterator yields more than {self.items} items")
        return {"iterator": self._items(items, depth - 1)}

    def _keys(self, tag: str, packed: list[Json], contents: list[Any]) -> list[Json]:
        """Keys that would collapse to an unhashable type, as of a hashable subclass of dict, are
        foreign.
        """
        for at in range(0, len(packed), KEYED[tag]):
            if codec_types.unhashable(packed[at]):
                packed[at] = self.foreign(contents[at])
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
        if kind is Shared:
            return {"shared": [value.number]}
        if (tagged := codec_types.pack_special(value)) is not None:
            return tagged
        if self.intercept and (tagged := self.intercept(value)) is not None:
            return tagged
        if kind.__module__ in ("builtins", "itertools") and is_iterator(value):
            return self.snapshot(value, depth)
        base = codec_types.collapsed(value, kind)
        return self.foreign(value) if base is value else self.pack(base, depth - 1)


def is_iterator(value: object) -> bool:
    """Whether its type has `__next__`."""
    return hasattr(type(value), "__next__")


def digest(value: Any) -> Any:
    """A digest of a list of over LONG items; any other value as it is."""
    if type(value) is not list or len(value) <= LONG:
        return value
    whole = blake2b(digest_size=32)
    for item in value:
        whole.update(marshal.dumps(item, 0))  # nobody reads it back
    return f"blake2b {whole.hexdigest()}"


def dumps(packed: Json) -> str:
    """JSON text, without spaces, of packed data."""
    return "".join(_encode(packed, 0))


def loads(text: bytes) -> Json:
    """JSON data of one frame. Raises CodecError for invalid or too deeply nested JSON."""
    limit = sys.getrecursionlimit()
    try:
        if limit > RECURSION:  # a check has raised it, so nesting could overflow the stack
            sys.setrecursionlimit(RECURSION)
        read = _read if len(text) < SHORT else _read_carefully
        decoded = text.strip(BLANKS).decode()
        value, end = read(decoded)
        if end != len(decoded):
            raise ValueError("more than one value")
        return value
    except (ValueError, RecursionError) as error:
        raise CodecError(f"not a frame: {type(error).__name__}") from None
    finally:
        if limit > RECURSION:
            sys.setrecursionlimit(limit)


class Unpacker:
    """Rebuilds values from JSON data; `foreign` rebuilds further tags (opaque objects, handles)."""

    def __init__(
        self, foreign: dict[str, Callable[[Json], Any]] | None = None, nodes: int = NODES
    ) -> None:
        self.foreign = foreign or {}
        self.nodes = self.left = nodes

    def value(self, data: Json) -> Any:
        """One value. Raises CodecError, TooLargeError over the caps, and MemoryError."""
        self.left = self.nodes
        try:
            return self.inner(data)
        except (CodecError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  constructors of built-in types with hostile parts
            raise CodecError(f"malformed value: {type(error).__name__}") from None

    def inner(self, data: Json, depth: int = DEPTH) -> Any:
        """A part of a value."""
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
        written, rebuild = REBUILD[tag]
        if type(parts) is not written:
            raise CodecError(f"malformed {tag}")
        return rebuild(self.inner(parts, depth - 1))

    def _items(self, items: list[Json], depth: int) -> list[Any]:
        self.left -= len(items)
        if self.left < 0:
            raise TooLargeError(f"a value has more than {self.nodes} parts")
        if set(map(type, items)) <= BARE_OR_FLOAT:
            return items
        return [self.inner(item, depth) for item in items]


def _no_constant(text: str) -> None:
    raise CodecError(f"{text} is not JSON")


def short_int(text: str) -> int:
    """A whole number of JSON. Raises CodecError for one that an honest sender writes as
    hexadecimal.
    """
    if len(text) > PLAIN_DIGITS:
        raise CodecError(f"a whole number has more than {PLAIN_DIGITS:,} digits")
    return int(text)


_read = json.JSONDecoder(parse_constant=_no_constant).raw_decode
_read_carefully = json.JSONDecoder(parse_constant=_no_constant, parse_int=short_int).raw_decode
_encode = make_encoder(
    None, json.JSONEncoder().default, encode_basestring_ascii, None, ":", ",", False, False, False
)
"""Without spaces and NaN. It is made once, where `json` makes one for each text: a job has twenty.
"""


SHOWN = 4000
RAISED = Exception, SystemExit
"""What crosses as the exception that it is."""
STEERING = AssertionError, NameError, StopIteration, StopAsyncIteration
"""Exceptions that look like a test's own, or end its loops."""


def raised(error: BaseException) -> list[Json]:
    """What is sent for an exception: names of its built-in classes with the nearest first,
    arguments to rebuild it, its type's name, its text.
    """
    bases = [base for base in type(error).__mro__ if error_name(base)]
    text = error_text(error)
    parts = arguments(error, bases[0] if bases else Exception, text)
    return [list(map(error_name, bases)), parts, f"{type(error).__name__}", text]


def arguments(error: BaseException, base: type[BaseException], text: str) -> list[Json]:
    """Arguments that give a `base` of the same `text`: those of `error` if they are plain data, or
    the text.
    """
    # `args` may run the program's own code, or hold an int too long to be shown
    with contextlib.suppress(Exception):
        parts = list(error.args)
        if isinstance(error, OSError) and error.filename is not None:
            parts = [error.errno, error.strerror, error.filename]
        if all(type(part) in BARE for part in parts) and str(base(*parts)) == text:
            return parts
    return [text]


def error_text(error: BaseException) -> str:
    """The exception's text, which the program chooses, cut to SHOWN characters."""
    try:
        return str(error)[:SHOWN]
    except Exception:  # noqa: BLE001  its __str__ is the program's code
        return "(no text)"


LIBRARIES = sys.stdlib_module_names - {"bdb", "doctest", "pdb", "test", "unittest"}
"""Of these, exceptions are rebuilt as their own class: not of those that run tests, whose
exceptions steer a test."""


def error_name(kind: type) -> str:
    """`ValueError`, `json.decoder:JSONDecodeError`; empty where it cannot be rebuilt."""
    if getattr(builtins, kind.__name__, None) is kind:
        return kind.__name__ if issubclass(kind, RAISED) else ""
    is_known = kind.__module__.partition(".")[0] in LIBRARIES and issubclass(kind, RAISED)
    return f"{kind.__module__}:{kind.__qualname__}" if is_known else ""


def error_type(name: Json) -> type[BaseException] | None:
    """The exception of a name that `error_name` gave, where its module is loaded."""
    module, colon, attribute = name.rpartition(":") if type(name) is str else ("", "", "")
    if colon and module.partition(".")[0] not in LIBRARIES:
        return None
    kind = getattr(sys.modules.get(module) if colon else builtins, attribute, None)
    return kind if isinstance(kind, type) and issubclass(kind, RAISED) else None


def exception(names: Json, arguments: Json, text: str, with_name: str) -> BaseException:
    """The nearest exception that can be rebuilt among `names`, else a RuntimeError whose text says
    its name too: `with_name`.
    """
    if type(arguments) is not list or not all(type(part) in BARE_OR_FLOAT for part in arguments):
        arguments = [text]
    for name in names if type(names) is list else ():
        kind = error_type(name)
        if kind is not None and not issubclass(kind, UnicodeError):
            with contextlib.suppress(TypeError, ValueError):  # the arguments may be anything
                return kind.__new__(kind, text) if ":" in name else kind(*arguments)
    return RuntimeError(with_name)
