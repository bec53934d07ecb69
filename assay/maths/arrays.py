"""Between the arrays of a sample and tensors, without a Python object for each number."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

DTYPES = {"i": torch.int32, "B": torch.bool, "f": torch.float32}
"""By the type codes of `array`."""


def to_tensor(numbers: Sequence[float]) -> Tensor:
    """[T] int32, bool or float32: a tensor that shares the memory of an array, so nobody writes
    into it.
    """
    values: Any = numbers
    dtype = DTYPES[values.typecode]
    return torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)


def to_array(values: Tensor) -> array[float]:
    """The array of a tensor [T], as float32."""
    return array("f", values.float().cpu().contiguous().numpy().tobytes())
