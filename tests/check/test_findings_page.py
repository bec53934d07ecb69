"""docs/data.md explains every finding."""

from __future__ import annotations

from pathlib import Path

from assay.check.findings import WARNINGS, Flaw

PAGE = Path(__file__).parent.parent.parent / "docs" / "data.md"


def test_every_finding_is_on_the_page_and_marked_where_it_only_warns() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for flaw in Flaw:
        (row,) = [row for row in rows if f"`{flaw}`" in row.split(" | ")[0]]
        assert ("*warns*" in row) == (flaw in WARNINGS)
