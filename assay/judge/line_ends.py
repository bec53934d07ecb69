"""Line ends of files that a change keeps, though whoever wrote the change has lost them: chats give
every text line feeds, and drop the mark of byte order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
BYTE_ORDER_MARK = "\ufeff"


def plain(text: str) -> str:
    """A text whose lines all end in line feeds, without a mark of byte order."""
    return text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n").replace("\r", "\n")


def with_line_ends(original: str, new: str) -> str:
    """A plain text with the line ends and the byte order mark of the one that it was made of: a
    line that stays keeps its end, a changed one too, and a new one gets that of the line before.
    """
    if plain(original) == original:
        return new
    old_lines, new_lines = _lines(original.removeprefix(BYTE_ORDER_MARK)), _lines(new)
    texts = [text for text, _ in old_lines], [text for text, _ in new_lines]
    first = next((old_end for _, old_end in old_lines if old_end), "\n")
    pieces, before = list[str](), first
    for (text, is_ended), at in zip(new_lines, _same_lines(*texts), strict=True):
        before = (old_lines[at][1] if at is not None else before) or before
        pieces += [text, before if is_ended else ""]
    mark = BYTE_ORDER_MARK if original.startswith(BYTE_ORDER_MARK) else ""
    return mark + "".join(pieces)


def _lines(text: str) -> list[tuple[str, str]]:
    """Each line with its end."""
    return [(match[1], match[2]) for match in LINE.finditer(text) if match[0]]


def _same_lines(old: Sequence[str], new: Sequence[str]) -> list[int | None]:
    """For each new line the old one that it was: of those of its text, the nearest to where it is
    expected, or the one that stood there and is gone. In time n log n.
    """
    most = min(len(old), len(new))
    first = next((n for n in range(most) if old[n] != new[n]), most)
    last = next((n for n in range(most - first) if old[-1 - n] != new[-1 - n]), most - first)
    places: dict[str, list[int]] = defaultdict(list)
    for at in range(first, len(old) - last):
        places[old[at]].append(at)
    middle, expected, stays = list[int | None](), first, {*new[first : len(new) - last]}
    for text in new[first : len(new) - last]:
        candidates = places.get(text, [])
        near = bisect_left(candidates, expected)
        nearest = min(
            candidates[max(0, near - 1) : near + 1],
            key=lambda at: abs(at - expected),
            default=None,
        )
        is_gone = expected < len(old) - last and old[expected] not in stays
        nearest = expected if nearest is None and is_gone else nearest
        middle.append(nearest)
        expected = expected if nearest is None else nearest + 1
    return [*range(first), *middle, *range(len(old) - last, len(old))]
