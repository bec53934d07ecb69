"""Diffs of a bug and of its repair: a hunk for each place, as git would write them."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import accumulate

from assay.judge.patches import CONTEXT, FileChange, Hunk, reverse, write
from assay.make_tasks.edits import Change, Edit, applied


def line_edits(old: bytes, new: bytes) -> Change:
    """Edits of whole lines that turn one text into another."""
    lines, others = old.splitlines(keepends=True), new.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    codes = SequenceMatcher(None, lines, others).get_opcodes()
    return tuple(
        Edit(starts[first], starts[last], b"".join(others[begin:end]))
        for tag, first, last, begin, end in codes if tag != "equal"
    )  # fmt: skip


def bug_and_repair(path: str, change: Change, original: bytes) -> tuple[str, str]:
    """The diff that puts a change into the file at a path, and the one that takes it out."""
    file = FileChange(path, path, tuple(_hunks(change, original)))
    return write([file]), write(reverse([file]))


def _hunks(change: Change, original: bytes) -> Iterator[Hunk]:
    lines, moved = original.split(b"\n"), 0
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for edits in _near(change, original):
        first = max(original.count(b"\n", 0, edits[0].start) - CONTEXT, 0)
        last = min(original.count(b"\n", 0, edits[-1].end) + 1 + CONTEXT, len(lines))
        old = original[starts[first] : starts[last]]
        tail = original[starts[last] :]
        new = applied(edits, original)[starts[first] :].removesuffix(tail)
        yield Hunk(first + 1, first + 1 + moved, old.decode(), new.decode())
        moved += new.count(b"\n") - old.count(b"\n")


def _near(change: Change, original: bytes) -> Iterator[Change]:
    """The edits of a change, those together that one hunk shows."""
    group: Change = ()
    for edit in sorted(change, key=lambda edit: edit.start):
        between = original.count(b"\n", group[-1].end, edit.start) if group else 0
        if group and between > 2 * CONTEXT + 1:
            yield group
            group = ()
        group = (*group, edit)
    yield group
