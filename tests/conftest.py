"""What every test may rely on: quiet libraries, few threads, no network, and SIGINT as usual."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from assay.openmp import waiting

# A shell starts `make test &` with SIGINT ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.update(waiting())
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("ASSAY_DATA", str(Path(__file__).parent.parent.parent / "shared" / "data"))
