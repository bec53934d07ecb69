"""The figures of a benchmark as JSON, the same for each that has `--json FILE`: a list of
`{"name", "value", "unit"}`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.files import write_atomically


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was measured."""

    name: str
    value: float
    unit: str = ""

    def __str__(self) -> str:
        """The number with three digits that count, or whole, and its unit."""
        number = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        return f"{number} {self.unit}".rstrip()


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json FILE`."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


def write_figures(file: Path | None, figures: Iterable[Figure]) -> None:
    """Write all figures so far; a benchmark that is ended early leaves those that it has."""
    if file:
        write_atomically(file, json.dumps([asdict(figure) for figure in figures], indent=1))


def read_figures(file: Path) -> list[Figure]:
    """What `write_figures` wrote; none if there is no such file."""
    return [Figure(**row) for row in json.loads(file.read_text())] if file.exists() else []
