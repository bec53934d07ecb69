"""Diffs of bugs: they apply both ways, and show no line far from a place."""

from __future__ import annotations

import pytest

from assay.judge.patches import apply, parse
from assay.make_tasks.diffs import bug_and_repair, line_edits
from assay.make_tasks.edits import Edit, applied


def lines(end: str) -> list[str]:
    return [f"line {number}{end}" for number in range(40)]


def at(line: int, new: bytes, end: str) -> Edit:
    """A line of 40 becomes other bytes."""
    start = len("".join(lines(end)[:line]))
    return Edit(start, start + len(lines(end)[line]), new)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("places", "hunks", "most_lines"),
    [
        ({20: b"x\n"}, 1, 8),
        ({0: b"x\n", 39: b"y\n"}, 2, 10),
        ({5: b"", 30: b"a\nb\n"}, 2, 16),
        ({5: b"x\n", 12: b"y\n"}, 1, 22),
        ({5: b"x\n", 14: b"y\n"}, 2, 16),
        ({39: b""}, 1, 4),
        ({39: b"no end"}, 1, 6),
    ],
)
def test_a_place_is_a_hunk_and_places_near_each_other_share_one(
    end: str, places: dict[int, bytes], hunks: int, most_lines: int
) -> None:
    original = "".join(lines(end))
    change = tuple(at(line, new, end) for line, new in places.items())
    changed = applied(change, original.encode()).decode()
    bug, repair = bug_and_repair("a.py", change, original.encode())
    assert apply(parse(bug), {"a.py": original}.get) == {"a.py": changed}
    assert apply(parse(repair), {"a.py": changed}.get) == {"a.py": original}
    for diff in (bug, repair):
        assert diff.count("\n@@ ") == hunks
        assert len(diff.split("\n@@ ", 1)[1].split("\n")) <= most_lines + hunks + 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        (b"a b c d", b"a x c d e", 2),
        (b"a b", b"a b", 0),
        (b"", b"a", 1),
        (b"a b c", b"c", 1),
        (b"a b c d e f", b"b c x e f y", 3),
    ],
)
def test_edits_of_lines_turn_one_text_into_the_other_and_no_line_twice(
    old: bytes, new: bytes, count: int, end: bytes
) -> None:
    old, new = (text.replace(b" ", end) for text in (old, new))
    edits = line_edits(old, new)
    assert applied(edits, old) == new
    assert len(edits) == count
