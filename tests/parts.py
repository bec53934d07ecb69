"""A part of the tests: `TEST_PART=2/6` runs every sixth test function, beginning with the second.

The name of a test decides its part, so parts are the same on every machine, and all of them
together are all tests.
"""

from __future__ import annotations

import os
import zlib

import pytest

PART = os.environ.get("TEST_PART", "1/1")


def part_of(name: str, parts: int) -> int:
    """The part, from 1 on, of a test by its id; the cases of one function are in one part."""
    return zlib.crc32(name.partition("[")[0].encode()) % parts + 1


def select_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests out that are of other parts."""
    part, parts = map(int, PART.split("/"))
    others = [item for item in items if part_of(item.nodeid, parts) != part]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if part_of(item.nodeid, parts) == part]
