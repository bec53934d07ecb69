"""Python's operations on objects, by the names of their special methods: one table for both sides
of the wall.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
BINARY = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor"
_IN_PLACE = "iadd isub imul itruediv ifloordiv imod ipow imatmul ilshift irshift iand ior ixor"
_OTHERS = "neg pos abs invert index getitem setitem delitem contains"

OF_OBJECTS = ("__call__", "__await__", "__enter__", "__exit__", "__aenter__", "__aexit__",
              "__aiter__", "__anext__")  # fmt: skip
"""Operations that no data has."""


def special(name: str, of: Any, *operands: Any) -> Any:
    """Call a special method, which Python looks up on the type."""
    return getattr(type(of), name)(of, *operands)


dunder = "__{}__".format
_OF_OPERATOR = [*map(dunder, f"{BINARY} {_IN_PLACE} {_OTHERS}".split())]


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in (*COMPARISONS, *_OF_OPERATOR)},
    **{
        dunder(kind.__name__): kind
        for kind in (len, iter, next, bool, hash, str, repr, format, int, float, complex, bytes,
                     round, reversed, divmod, dir, math.trunc, math.floor, math.ceil)
    },
    **{name: partial(special, name) for name in OF_OBJECTS[2:]},
    "__copy__": copy.copy,
    "__deepcopy__": lambda of, _: copy.deepcopy(of),
}  # fmt: skip
"""By special method: what carries it out where the object is."""
REFLECTED = {f"__r{dunder(name)[2:]}": dunder(name) for name in f"{BINARY} divmod".split()}
"""Methods that Python calls with the operands swapped, and the operation that is meant."""
