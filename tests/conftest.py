"""What every test may rely on: quiet libraries, few threads, no network, signals as usual, and
sandboxes that a module's tests share.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from assay.tuning import tune
from tests.judge.opened import sandboxes_end_with_the_module

__all__ = ["sandboxes_end_with_the_module"]

# `make test &` in a script starts with SIGINT ignored, `nohup make test` with SIGHUP, and every
# child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Where a container forbids to write bytecode, each worker and each command that a test starts would
# compile all sources anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.update(tune())
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("ASSAY_DATA", str(Path(__file__).parent.parent.parent / "shared" / "data"))
