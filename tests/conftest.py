"""What every test may rely on: quiet libraries, few threads, no network, signals as usual,
sandboxes that a module's tests share, and details that decide nothing.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest

from assay.tuning import set_variables
from tests.details import watch_details
from tests.judge.opened import sandboxes_end_with_the_module
from tests.parts import select_part
from tests.public_data import public_data, pytest_runtest_setup, require_marks

__all__ = [
    "public_data",
    "pytest_runtest_setup",
    "sandboxes_end_with_the_module",
]

# `make test &` in a script starts with SIGINT ignored, `nohup make test` with SIGHUP, and every
# child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Where a container forbids to write bytecode, each worker and each command that a test starts would
# compile all sources anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
set_variables()
watch_details()
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests that hide what data they need, and leave out what is of another part."""
    require_marks(items)
    select_part(config, items)
