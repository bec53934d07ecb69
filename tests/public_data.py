"""Which tests need public benchmark data, and how they are skipped without it.

A test that reads from `ASSAY_DATA` says what it needs: `@pytest.mark.data("humaneval", "mbpp")`
names files or folders below it. Only such tests see the variable, so a test that forgets the mark
fails on every machine, not only on one without the data.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parent.parent.parent / "shared" / "data"
"""Where the data lies if nothing else is said."""
FOLDER = Path(os.environ.pop("ASSAY_DATA", BESIDE))


def missing(item: pytest.Item) -> str:
    """Why a test cannot run here: the first file or folder that it needs and this machine lacks."""
    names = [name for mark in item.iter_markers("data") for name in mark.args]
    absent = (name for name in names if not (FOLDER / name).exists())
    if (name := next(absent, None)) is None:
        return ""
    return f"needs {name} below ASSAY_DATA, and {FOLDER} has none"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what lacks its data, and show the folder to no other test; before all fixtures."""
    os.environ.pop("ASSAY_DATA", None)
    if item.get_closest_marker("data") is None:
        return
    if reason := missing(item):
        pytest.skip(reason)
    os.environ["ASSAY_DATA"] = str(FOLDER)


def require_marks(items: list[pytest.Item]) -> None:
    """Refuse a test that takes the folder and does not say what it needs of it."""
    for item in items:
        if "public_data" in getattr(item, "fixturenames", ()) and not item.get_closest_marker(
            "data"
        ):
            raise pytest.UsageError(
                f"{item.nodeid} takes `public_data`: mark it with pytest.mark.data"
            )


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of public data, for a test that is marked with what it needs of it."""
    return FOLDER
