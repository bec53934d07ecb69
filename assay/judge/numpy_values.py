"""numpy's scalars and arrays as data type, shape and bytes; numpy is imported only where such a
value arrives.
"""

from __future__ import annotations

import sys
from typing import Any

KINDS = "biufcSU"
"""Kinds of data type that may cross: bool, int, unsigned, float, complex, bytes, str; never
objects."""


def is_value(value: Any) -> bool:
    """Whether it is an array or scalar that may cross. False where numpy was never imported."""
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None
        and issubclass(type(value), (numpy.ndarray, numpy.generic))
        and value.dtype.kind in KINDS
    )


def pack(value: Any) -> dict[str, Any]:
    """An array or scalar; a subclass collapses to a plain array."""
    numpy = sys.modules["numpy"]
    plain = numpy.array(value, copy=True, subok=False)
    data = plain.tobytes().hex()
    return {
        "numpy": [plain.dtype.str, list(plain.shape), data, issubclass(type(value), numpy.generic)]
    }


def rebuild(parts: list[Any]) -> Any:
    """The array or scalar. Raises ValueError for a data type that may not cross."""
    import numpy

    text, shape, data, scalar = parts
    dtype = numpy.dtype(str(text))
    if dtype.kind not in KINDS or type(shape) is not list:
        raise ValueError(text)
    made = (
        numpy.frombuffer(bytes.fromhex(data), dtype=dtype)
        .reshape([int(side) for side in shape])
        .copy()
    )
    return made[()] if scalar else made
