"""JSON for other programs: Python writes NaN and Infinity, which no standard parser reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def strict_json(value: Any, indent: int | None = None) -> str:
    """The value as JSON, with null in the place of each number that is not finite."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), indent=indent, allow_nan=False)


def require_portable(value: Any) -> None:
    """Raises ValueError, TypeError or RecursionError for a value that JSON of other programs cannot
    hold: NaN, half a surrogate pair, Python's sets.
    """
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def finite(value: Any) -> Any:
    """The value with None in the place of each number that is not finite."""
    match value:
        case float():
            return value if isfinite(value) else None
        case Mapping():
            return {key: finite(item) for key, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
    return value
