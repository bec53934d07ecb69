"""One browser for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.viewer.chromium import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened
