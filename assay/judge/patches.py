"""Unified diffs: read, checked, applied and written, as texts alone and in linear time.

What a patch may do is narrow. It changes, adds, moves and removes ordinary text files in the tree;
a path that leaves it or names git's own folder, a link, a submodule and a binary file are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from assay.judge.line_ends import plain, with_line_ends

Read = Callable[[str], str | None]
"""The text of a file by its path in the tree; None where there is none."""
HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
HEADERS_END = re.compile(r"diff --git |@@ ")
FIELD = re.compile(r"(new file mode|deleted file mode|rename from|rename to) (.+)")
REFUSED = {
    r"(?:.*mode|index \S+) 120000": "a link", r"(?:.*mode|index \S+) 160000": "a submodule",
    "GIT binary patch|Binary files ": "a binary file", "copy ": "a copy of a file",
}  # fmt: skip
"""What a patch may not do, by git's line that says so."""
CONTEXT = 3
"""Lines that a written diff shows around a change."""
LONGEST_PATH = 1000
MOST_PARTS = 20
MOST_EMPTY = 9
"""Lines that are looked at, where empty ones follow each other in a hunk."""
SIGNATURE = "-- "
"""The line after a diff in a message that git has made."""
NO_END = "\\ No newline at end of file"


class PatchError(ValueError):
    """What is wrong with a patch, in one line; the fault is its author's."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines to replace, with the lines around them."""

    old_line: int
    """Where the old text begins in the old file, from 1; before the first line, 0."""
    new_line: int
    old: str
    """Whole lines; one without a line end is the file's last."""
    new: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a patch does to one file."""

    old: str | None
    """Its path before; None for a new file."""
    new: str | None
    """Its path after; None for one that is removed."""
    hunks: tuple[Hunk, ...] = ()


def safe_path(path: str) -> str:
    """A path in the tree. Raises PatchError for any other, and for git's own folder."""
    parts = path.split("/")
    if len(path) > LONGEST_PATH or "\0" in path or "\n" in path or "\\" in path:
        raise PatchError(f"{path[:60]!r} is no path of a file")
    if not {"", ".", ".."}.isdisjoint(parts):
        raise PatchError(f"the path {path[:60]!r} leaves the tree or is no plain relative path")
    if any(part.lower().rstrip(" .") == ".git" for part in parts):
        raise PatchError(f"the path {path[:60]!r} is in git's own folder")
    return path


def parse(diff: str) -> list[FileChange]:
    """The changes of a diff, in git's form or plain; text around them is skipped. Counts of lines
    that are wrong, as models write them, are corrected.

    Raises PatchError for what a patch may not do, or a diff that changes nothing.
    """
    lines, at = diff.split("\n"), 0
    changes: list[FileChange] = []
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            change, at = _header(lines, at + 1, line[len("diff --git ") :])
        elif _is_names(lines, at):
            change, at = FileChange("", ""), at
        else:
            at += 1
            continue
        if _is_names(lines, at):
            old, new = _name(lines[at][4:], "a/"), _name(lines[at + 1][4:], "b/")
            change, at = replace(change, old=old, new=new), at + 2
        hunks = []
        while at < len(lines) and (head := HUNK.match(lines[at])):
            hunk, at = _hunk(lines, at + 1, head)
            hunks.append(hunk)
        if change.old is None and change.new is None:
            raise PatchError("a file is both new and removed")
        changes.append(replace(change, hunks=tuple(hunks)))
    if not changes:
        raise PatchError("it is no unified diff: no '--- a/file' and '+++ b/file'")
    return changes


def _is_names(lines: list[str], at: int) -> bool:
    """Whether the names of a file's two versions stand here."""
    follows = lines[at : at + 3]
    if len(follows) < 3 or not (follows[0].startswith("--- ") and follows[1].startswith("+++ ")):
        return False
    return HUNK.match(follows[2]) is not None


def _name(text: str, prefix: str) -> str | None:
    """The path in a line of names; None for /dev/null. Raises PatchError."""
    path = _unquoted(text.rstrip("\r").partition("\t")[0])
    return None if path == "/dev/null" else safe_path(path.removeprefix(prefix))


def _unquoted(path: str) -> str:
    """A path as git quotes it."""
    if not (path.startswith('"') and path.endswith('"') and len(path) > 1):
        return path
    try:
        raw = path[1:-1].encode("ascii").decode("unicode_escape").encode("latin-1")
    except UnicodeError:
        raise PatchError(f"{path[:60]!r} is no path of a file") from None
    return raw.decode("utf-8", "surrogateescape")


def _header(lines: list[str], at: int, names: str) -> tuple[FileChange, int]:
    """The change that git's lines before the hunks describe, and the line after them. Raises
    PatchError for what is refused.
    """
    fields: dict[str, str] = {}
    while at < len(lines) and not (HEADERS_END.match(lines[at]) or _is_names(lines, at)):
        for pattern, what in REFUSED.items():
            if re.match(pattern, lines[at]):
                raise PatchError(f"it changes {what} ({names[:60]})")
        if field := FIELD.match(lines[at]):
            fields[field[1]] = field[2]
        at += 1
    half = names[: len(names) // 2]
    quote = '"' * half.startswith('"')
    same = quote + half.removeprefix(quote).removeprefix("a/")
    old, new = (_unquoted(fields.get(key, same)) for key in ("rename from", "rename to"))
    change = FileChange(
        None if "new file mode" in fields else safe_path(old),
        None if "deleted file mode" in fields else safe_path(new),
    )
    return change, at


def _hunk(lines: list[str], at: int, head: re.Match[str]) -> tuple[Hunk, int]:
    """The hunk whose lines begin here, and the line after it."""
    old_left, new_left = (int(head[group] or 1) for group in (2, 4))
    old, new = list[str](), list[str]()
    ends_old = ends_new = False
    while at < len(lines):
        line = " \r" if lines[at] == "\r" else lines[at]  # the space of an empty line is lost
        sign, done = line[:1] or " ", old_left <= 0 and new_left <= 0
        if sign == "\\":
            before = lines[at - 1][:1]
            ends_old, ends_new = ends_old or before != "+", ends_new or before != "-"
            at += 1
            continue
        blank = not line and (done or not _goes_on(lines, at))
        if sign not in " +-" or blank or _is_names(lines, at) or (done and line == SIGNATURE):
            break
        if sign != "+":
            old.append(f"{line[1:]}\n")
            old_left -= 1
        if sign != "-":
            new.append(f"{line[1:]}\n")
            new_left -= 1
        at += 1
    texts = ["".join(side).removesuffix("\n" if ends else "") for side, ends in
             ((old, ends_old), (new, ends_new))]  # fmt: skip
    return Hunk(int(head[1]), int(head[3]), *texts), at


def _goes_on(lines: list[str], at: int) -> bool:
    """Whether an empty line is one of a hunk's, whose space is lost: another line of it follows."""
    if any(lines[at : at + 2]):
        return True
    after = next(filter(None, lines[at : at + MOST_EMPTY]), "")
    return after[:1] in (" ", "+", "-") and after != SIGNATURE


def apply(changes: Sequence[FileChange], read: Read) -> dict[str, str | None]:
    """The files that the changes make of those that `read` gives: texts by path, None for one that
    is removed. Where only line ends keep a change from fitting, the file's stay. Raises PatchError
    where a change does not fit.
    """
    after: dict[str, str | None] = {}
    parts = Counter[str | None]()

    def current(path: str) -> str | None:
        return after[path] if path in after else read(path)

    for change in changes:
        text = "" if change.old is None else current(change.old)
        if text is None:
            raise PatchError(f"there is no file {change.old}")
        parts[change.new or change.old] += 1
        if parts[change.new or change.old] > MOST_PARTS:
            raise PatchError(f"{change.new} is changed in more than {MOST_PARTS} parts")
        if change.new and change.new != change.old and current(change.new) is not None:
            raise PatchError(f"the file {change.new} exists already")
        text = _applied(text, change)
        if change.old and change.old != change.new:
            after[change.old] = None
        if change.new:
            after[change.new] = text
        elif text:
            raise PatchError(f"{change.old} is removed, but not all of its lines are")
    return after


def _applied(text: str, change: FileChange) -> str:
    """The text that a change makes of a file's, in which it keeps the file's line ends where it has
    others.
    """
    try:
        return _replaced(text, change)
    except PatchError:
        hunks = tuple(
            replace(hunk, old=plain(hunk.old), new=plain(hunk.new)) for hunk in change.hunks
        )
        if plain(text) == text and hunks == change.hunks:
            raise
        return with_line_ends(text, _replaced(plain(text), replace(change, hunks=hunks)))


def _replaced(text: str, change: FileChange) -> str:
    """The text with each hunk at its line; or, if that holds something else, at the first place
    after the hunk before it.
    """
    starts = [0]
    for each in lines_of(text):
        starts.append(starts[-1] + len(each))
    pieces, done = list[str](), 0
    for number, hunk in enumerate(change.hunks, start=1):
        line = hunk.old_line - 1 if hunk.old else hunk.old_line
        start = starts[min(max(line, 0), len(starts) - 1)]
        old, new = hunk.old, hunk.new
        if start < done or not _stands(text, old, start):
            start = _find(text, old, done)
        if start < 0 and old.endswith("\n") and text.endswith(old[:-1]):  # nobody says the file
            old, new = old[:-1], new.removesuffix("\n")  # has no line end; so it stays
            start = _find(text, old, done)
        if start < 0:
            name = change.old or change.new
            raise PatchError(f"hunk {number} of {name} does not match the file's lines")
        pieces += [text[done:start], new]
        done = start + len(old)
    return "".join([*pieces, text[done:]])


def lines_of(text: str) -> list[str]:
    """The lines with their ends, which are line feeds alone."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *filter(None, [last])]


def _stands(text: str, old: str, start: int) -> bool:
    """Whether the whole lines `old` stand there; those without an end, at the text's end."""
    ends = not old or old.endswith("\n") or start + len(old) == len(text)
    return ends and text.startswith(old, start)


def _find(text: str, old: str, start: int) -> int:
    """Where whole lines stand, from the start of a line on; -1 where they do not."""
    if not old.endswith("\n"):
        start = max(start, len(text) - len(old))
    if text.startswith(old, start) and (start == 0 or text[start - 1] == "\n"):
        return start
    at = text.find(f"\n{old}", max(start - 1, 0))
    return at + 1 if at >= 0 else -1


def write(changes: Sequence[FileChange]) -> str:
    """The changes as a diff in git's form."""
    parts = []
    for change in changes:
        names = change.old or change.new, change.new or change.old
        parts.append("diff --git a/{} b/{}\n".format(*names))
        if change.old is None:
            parts.append("new file mode 100644\n")
        elif change.new is None:
            parts.append("deleted file mode 100644\n")
        elif change.new != change.old:
            parts.append(f"rename from {change.old}\nrename to {change.new}\n")
        if change.hunks:
            old = f"a/{change.old}" if change.old else "/dev/null"
            new = f"b/{change.new}" if change.new else "/dev/null"
            parts.append(f"--- {old}\n+++ {new}\n")
            parts += map(_hunk_text, change.hunks)
    return "".join(parts)


def equal_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines two texts share at their beginnings, and then at their ends."""
    most = min(len(old), len(new))
    first = next((n for n in range(most) if old[n] != new[n]), most)
    same = next((n for n in range(most - first) if old[-1 - n] != new[-1 - n]), most - first)
    return first, same


def marked_ends(body: Sequence[str]) -> str:
    """The lines of a hunk; git says where a file's last one has no end."""
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_END}\n" for line in body)


def _hunk_text(hunk: Hunk) -> str:
    """A hunk with no more than CONTEXT equal lines around what differs."""
    old, new = lines_of(hunk.old), lines_of(hunk.new)
    first, same = equal_ends(old, new)
    begin, after = max(first - CONTEXT, 0), max(same - CONTEXT, 0)
    before, tail = old[begin:first], old[len(old) - same : len(old) - after]
    removed, added = old[first : len(old) - same], new[first : len(new) - same]
    ranges = [
        f"{line + begin},{len(before) + len(lines) + len(tail)}"
        for line, lines in ((hunk.old_line, removed), (hunk.new_line, added))
    ]
    body = [f" {line}" for line in before] + [f"-{line}" for line in removed]
    body += [f"+{line}" for line in added] + [f" {line}" for line in tail]
    return "@@ -{} +{} @@\n".format(*ranges) + marked_ends(body)


def unified(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> str:
    """The diff between the texts of files by path; None for one that is not there. A file's change
    is one hunk, from the first line that differs to the last.
    """
    changes = []
    for path in sorted(after):
        old, new = before.get(path), after[path]
        if old != new:
            hunk = Hunk(1 if old else 0, 1 if new else 0, old or "", new or "")
            paths = [path if text is not None else None for text in (old, new)]
            changes.append(FileChange(paths[0], paths[1], (hunk,) if old or new else ()))
    return write(changes)


def reverse(changes: Sequence[FileChange]) -> list[FileChange]:
    """The changes that undo these."""
    return [
        FileChange(change.new, change.old, tuple(
            Hunk(hunk.new_line, hunk.old_line, hunk.new, hunk.old) for hunk in change.hunks
        ))
        for change in reversed(changes)
    ]  # fmt: skip
