"""What every test may rely on: quiet libraries, few threads, no network."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("ASSAY_DATA", str(Path(__file__).parent.parent.parent / "shared" / "data"))
