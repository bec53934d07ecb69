"""The public data that the loaders are tested on, where this machine has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def data() -> Path:
    folder = Path(os.environ["ASSAY_DATA"])
    if not folder.is_dir():
        pytest.skip(f"no public data at {folder}; set ASSAY_DATA")
    return folder
