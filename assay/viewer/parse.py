"""Reads the files of a run: each function raises an error for a file that holds something else."""

import tomllib
from math import isfinite
from pathlib import Path
from typing import Any

from assay.config.toml_files import flat
from assay.errors import DataError
from assay.evaluate.protocol import protocol
from assay.evaluate.report import Evaluation, read_report, read_setups
from assay.files import json_lines

EXACT = 2**53
"""Whole numbers below it are exact in every reader of JSON."""
LONGEST_NAME, LONGEST_TEXT = 200, 20_000
"""Characters of a metric's name, and of an event's text that are kept."""
MAGIC = b"PAR1"
"""How every Parquet file begins and ends."""


def read_settings(file: Path) -> str:
    """The text of a config.toml."""
    text = file.read_text(encoding="utf-8")
    if not tomllib.loads(text):
        raise DataError("it holds no settings")
    return text


def read_settings_table(file: Path) -> dict[str, Any]:
    """The settings of a config.toml by their dotted names."""
    return flat(tomllib.loads(file.read_text(encoding="utf-8")))


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; what is no finite number is None."""
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(json_lines(file), 1):
        if not isinstance(row, dict) or not _is_step(row.get("step")):
            raise DataError(f"line {number} of the whole ones is no row with a `step`")
        if longest := next((name for name in row if len(name) > LONGEST_NAME), ""):
            raise DataError(f"line {number}: a metric's name has {len(longest):,} characters")
        rows.append({name: _number(value, name, number) for name, value in row.items()})
    return rows


def read_events(file: Path) -> list[dict[str, Any]]:
    """The rows of an events.jsonl."""
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(json_lines(file), 1):
        if not isinstance(row, dict) or not _is_step(row.get("step")):
            raise DataError(f"line {number} of the whole ones is no row with a `step`")
        event, text = row.get("event", ""), row.get("text")
        if not isinstance(event, str) or not isinstance(text, str):
            raise DataError(f"line {number}: `event` or `text` is no text")
        time = _number(row.get("time"), "time", number)
        event, text = event[:LONGEST_NAME], text[:LONGEST_TEXT]
        rows.append({"step": row["step"], "event": event, "text": text, "time": time})
    return rows


def read_evaluations(file: Path) -> list[Evaluation]:
    """The evaluations of a report."""
    return read_report(file.parent)


def read_protocols(file: Path) -> dict[str, list[str]]:
    """The protocol of each evaluation of a report, by its title."""
    return {title: protocol(setup) for title, setup in read_setups(file.parent).items()}


def require_parquet(file: Path) -> bool:
    """True for a file that begins and ends like one of Parquet, without reading the rest."""
    if file.stat().st_size < 3 * len(MAGIC):  # both, and the length of the footer
        raise DataError("it is no whole Parquet file")
    with file.open("rb") as stream:
        begin = stream.read(len(MAGIC))
        stream.seek(-len(MAGIC), 2)
        if (begin, stream.read()) != (MAGIC, MAGIC):
            raise DataError("it is no whole Parquet file")
    return True


def read_vocabulary(file: Path) -> list[bytes]:
    """The bytes of each token id."""
    from pyarrow import parquet

    texts: list[bytes] = parquet.read_table(file, columns=["bytes"])["bytes"].to_pylist()
    if not all(isinstance(text, bytes) for text in texts):
        raise DataError("`bytes` are the bytes of each token")
    return texts


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < EXACT


def _number(value: Any, name: str, line: int) -> float | None:
    if value is None or (type(value) is float and isfinite(value)):
        return value
    if type(value) not in (int, float):
        raise DataError(f"line {line}: {name[:80]!r} is no number")
    if type(value) is int:
        return value if abs(value) < EXACT else float(value)
    return None
