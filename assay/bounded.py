"""Dicts that are bounded in entries and in bytes."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from dataclasses import is_dataclass
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")
MIB = 1 << 20
WHOLE = (str, bytes, bytearray, int, float, type(None), type, type(sys))
"""What holds nothing else, or is shared by the whole program."""


def size_of(value: object) -> int:
    """About how many bytes a value takes in memory, with all the data that it holds."""
    if isinstance(value, str | bytes):
        return sys.getsizeof(value)
    total, left, counted = 0, [value], set[int]()
    while left:
        part = left.pop()
        if id(part) in counted:
            continue
        counted.add(id(part))
        total += sys.getsizeof(part)
        if isinstance(part, WHOLE):
            continue
        if isinstance(part, list | tuple):  # the abstract classes come last: they are slow
            left += part
        elif isinstance(part, dict | Mapping):
            left += [*part.keys(), *part.values()]
        elif isinstance(part, Set):
            left += part
        elif is_dataclass(part):
            left += [getattr(part, name) for name in part.__dataclass_fields__]
        else:
            left += getattr(part, "__dict__", {}).values()
    return total


class BoundedDict(OrderedDict[K, V]):
    """A dict that drops its oldest entries once it holds more than `most`, or more than `most_mb`
    MiB. The newest entry stays, whatever its size.
    """

    def __init__(self, most: int, most_mb: float, weigh: Callable[[Any], int] = size_of) -> None:
        super().__init__()
        self._most, self._most_bytes, self._weigh = most, int(most_mb * MIB), weigh
        self._sizes: dict[K, int] = {}
        self.bytes = 0
        """About how many bytes the entries take."""

    def __setitem__(self, key: K, value: V) -> None:
        size = self._weigh(key) + self._weigh(value)
        self.bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        super().__setitem__(key, value)
        while len(self) > 1 and (len(self) > self._most or self.bytes > self._most_bytes):
            del self[next(iter(self))]

    def touch(self, key: K) -> V | None:
        """The value of a key, which becomes the newest; None without it."""
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key]

    def resize(self, most_mb: float) -> None:
        """Hold so many MiB from the next entry on."""
        self._most_bytes = int(most_mb * MIB)

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self.bytes -= self._sizes.pop(key)

    def pop(self, key: K, *default: Any) -> Any:
        """Take a value out. Python's own does not call `__delitem__`."""
        if default and key not in self:
            return default[0]
        value = self[key]
        del self[key]
        return value

    def popitem(self, last: bool = True) -> tuple[K, V]:
        """Take the newest entry out, or the oldest."""
        if not self:
            raise KeyError("it is empty")
        key = next(reversed(self) if last else iter(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Hold nothing."""
        super().clear()
        self._sizes.clear()
        self.bytes = 0


def bounded_cache(most: int, most_mb: float) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """As functools.lru_cache, for a function of what its arguments contain: bounded in MiB too."""

    def decorate(function: Callable[P, V]) -> Callable[P, V]:
        results: BoundedDict[Any, tuple[V]] = BoundedDict(most, most_mb)
        lock = Lock()

        @wraps(function)
        def answer(*arguments: P.args, **options: P.kwargs) -> V:
            key = arguments, tuple(options.items())
            with lock:
                stored = results.touch(key)
            if stored is None:
                stored = (function(*arguments, **options),)
                with lock:
                    results[key] = stored
            return stored[0]

        return answer

    return decorate
