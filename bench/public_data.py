"""The folder of public benchmark data that $ASSAY_DATA names."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder(*sets: str) -> Path:
    """The folder. Where one of the sets is not in it, the benchmark ends with one line."""
    folder = os.environ.get("ASSAY_DATA", "")
    missing = [name for name in sets if not folder or not Path(folder, name).is_dir()]
    if missing:
        where = f"{folder} lacks {', '.join(missing)}" if folder else "ASSAY_DATA is not set"
        sys.exit(
            f"{where}: set ASSAY_DATA to a folder of public benchmark data that holds"
            f" {', '.join(sets)} (bench/README.md)"
        )
    return Path(folder)
