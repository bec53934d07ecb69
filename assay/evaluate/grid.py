"""Tables in Markdown."""

from collections.abc import Sequence


def grid(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, the header first, as a table in Markdown."""
    rule = ["---" if index < 2 else "---:" for index in range(len(lines[0]))]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (lines[0], rule, *lines[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
