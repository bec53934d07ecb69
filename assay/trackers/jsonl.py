"""Lines of JSON by step: metrics.jsonl has one for each step, with the time of its end."""

import json
import time
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from os import SEEK_END
from pathlib import Path
from typing import Any

from assay.files import naming, write_atomically
from assay.lines import source_lines
from assay.paths import read_bytes
from assay.trackers.base import Tracker
from assay.types import Metrics

ENDED = "ended"
"""The event of a stage that a callback has ended before its last step."""


def keep_steps(file: Path, last: int) -> list[str]:
    """Delete the lines after step `last`, and half a line that a killed trainer left; return those
    that stay.
    """
    if not file.exists():
        return []
    before = [line for line in source_lines(read_bytes(file).decode()) if _step(line) <= last]
    write_atomically(file, "".join(f"{line}\n" for line in before))
    return before


def read_steps(file: Path) -> list[Metrics]:
    """The metrics of each step in a metrics.jsonl; none if there is no file."""
    lines = source_lines(read_bytes(file).decode()) if file.exists() else []
    return [{k: n for k, n in json.loads(line).items() if n is not None} for line in lines]


def events_of(folder: Path) -> list[dict[str, Any]]:
    """The events in the events.jsonl of a stage, without half a line that a killed trainer left;
    none if there is no file.
    """
    file = folder / "events.jsonl"
    lines = source_lines(read_bytes(file).decode()) if file.exists() else []
    return [json.loads(line) for line in lines if _step(line) < inf]


def has_ended(events: Iterable[Mapping[str, Any]], step: int) -> bool:
    """Whether one of the events says that a callback ended the stage after `step` steps."""
    return any(event["event"] == ENDED and event["step"] == step for event in events)


def append_event(folder: Path, step: int, event: str, text: str) -> dict[str, Any]:
    """Append an event after `step` steps to the events.jsonl of a stage; returns it."""
    row = {"step": step, "event": event, "text": text, "time": time.time()}
    file = folder / "events.jsonl"
    with naming(file), file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
    return row


class JsonlTracker(Tracker):
    """Writes `{"step": 12, "time": 1.7e9, "reward/mean": 0.5, ...}` at once; infinity and nan
    become null. What is tracked later for the same step, as its evaluation, joins its line.
    """

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Delete lines after `start_step`, and half a line that a killed trainer left."""
        file = folder / "metrics.jsonl"
        lines = keep_steps(file, start_step)
        file.touch()
        self._stream = file.open("r+b")
        self._end = self._stream.seek(0, SEEK_END)
        self._row: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        self._start = self._end - len(f"{lines[-1]}\n".encode()) if lines else 0

    def track(self, step: int, metrics: Metrics) -> None:
        """Write the step's line, in place of one that the step has."""
        if self._row.get("step") != step:
            self._row, self._start = {"step": step, "time": time.time()}, self._end
        self._row |= {name: float(n) if isfinite(n) else None for name, n in metrics.items()}
        self._stream.seek(self._start)
        self._stream.write(json.dumps(self._row).encode() + b"\n")
        self._end = self._stream.truncate()
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return inf
