"""Lines of JSON by step: metrics.jsonl has one each time a step is tracked."""

from __future__ import annotations

import json
from math import inf, isfinite
from pathlib import Path

from assay.files import write_atomically
from assay.trackers.base import Tracker
from assay.types import Metrics


def keep_steps(file: Path, last: int) -> list[str]:
    """Delete the lines after step `last`, and half a line that a killed trainer left; return those
    that stay.
    """
    if not file.exists():
        return []
    before = [line for line in file.read_text().splitlines() if _step(line) <= last]
    write_atomically(file, "".join(f"{line}\n" for line in before))
    return before


class JsonlTracker(Tracker):
    """Appends `{"step": 12, "reward/mean": 0.5, ...}` at once; infinity and nan become null."""

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Delete lines after `start_step`, and half a line that a killed trainer left."""
        file = folder / "metrics.jsonl"
        keep_steps(file, start_step)
        self._stream = file.open("a", encoding="utf-8")

    def track(self, step: int, metrics: Metrics) -> None:
        """Append one line."""
        numbers = {
            name: float(value) if isfinite(value) else None for name, value in metrics.items()
        }
        self._stream.write(json.dumps({"step": step} | numbers) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return inf
