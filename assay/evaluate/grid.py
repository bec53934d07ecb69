"""Tables in Markdown, and tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.progress import cell

if TYPE_CHECKING:
    from rich.table import Table

SHORTEST_NAME = 14
"""Columns that a shortened name keeps."""


def grid(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, the header first, as a table in Markdown."""
    rule = ["---" if index < 2 else "---:" for index in range(len(lines[0]))]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (lines[0], rule, *lines[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def terminal_table(
    lines: Sequence[Sequence[str]], names: int = 1, width: int | None = None, title: str = ""
) -> Table:
    """Lines of cells, the header first, in `width` columns (default: the terminal's).

    The first `names` columns hold names, which lose their beginning where the table is too wide.
    Numbers and headers are never cut; a header may have line breaks.
    """
    from rich.console import Console
    from rich.table import Table

    widths = [max(len(part) for cell in column for part in cell.split("\n"))
              for column in zip(*lines, strict=True)]  # fmt: skip
    excess = sum(widths) + 2 * (len(widths) - 1) - (width or Console().width)
    for column in range(names):
        cut = min(max(0, excess), max(0, widths[column] - SHORTEST_NAME))
        widths[column] -= cut
        excess -= cut
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left",
                  title=cell(title) if title else None)  # fmt: skip
    for index, header in enumerate(lines[0]):
        table.add_column(cell(header), justify="left" if index < names else "right", no_wrap=True)
    for line in lines[1:]:
        table.add_row(*(cell(_last(text, limit)) for text, limit in zip(line, widths, strict=True)))
    return table


def _last(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"…{text[1 - limit :]}"
