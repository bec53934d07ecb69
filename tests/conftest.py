"""What every test may rely on: quiet libraries, few threads, no network."""

from __future__ import annotations

import os
from pathlib import Path

from assay.openmp import waiting

os.environ.update(waiting())
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("ASSAY_DATA", str(Path(__file__).parent.parent.parent / "shared" / "data"))
