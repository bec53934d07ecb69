"""Changes of a repository cut from a reply: a unified diff, or SEARCH/REPLACE blocks under
`### path`.
"""

from __future__ import annotations

import re
from collections import defaultdict

from assay.extract.fences import fenced_blocks
from assay.extract.thoughts import answer
from assay.judge.line_ends import plain, with_line_ends
from assay.judge.patches import (
    CONTEXT,
    FileChange,
    Hunk,
    PatchError,
    Read,
    apply,
    lines_of,
    parse,
    safe_path,
    unified,
)
from assay.languages import language_named

SEARCH, MIDDLE, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
PATH = re.compile(r"###[ \t]+(\S[^\n]*)")
DIFF = re.compile(r"^(?:diff --git |--- )", re.MULTILINE)
MOST_EDITS = 200
EDITS_OR_DIFF = "SEARCH/REPLACE blocks under '### path', or a unified diff"


def patch(reply: str, read: Read) -> str:
    """The diff that a reply makes of the files that `read` gives.

    Raises PatchError for a reply without one, for one that may not be, and for one that does not
    fit the files: all are the model's fault.
    """
    text = answer(language_named("diff").with_own_line_ends(reply))

    def read_plain(path: str) -> str | None:
        whole = read(path)
        return None if whole is None else plain(whole)

    after: dict[str, str | None]
    if SEARCH in text:
        after = {
            path: with_line_ends(read(path) or "", new)
            for path, new in _edited(plain(text), read_plain).items()
        }
    elif DIFF.search(text):
        after = apply(_changes(text), read)
    else:
        raise PatchError(f"the answer has no change: write {EDITS_OR_DIFF}")
    return unified({path: read(path) for path in after}, after)


def as_blocks(reply: str, read: Read) -> str:
    """A reply with a diff as one with SEARCH/REPLACE blocks that do the same; the reply itself
    where there is none, or blocks cannot do it.
    """
    try:
        changes, diff = _changes(reply), patch(reply, read)
        for trim in (True, False):
            text = "\n".join(
                _block(change.new, hunk, read(change.old) if trim and change.old else None)
                for change in changes
                for hunk in change.hunks
            )
            if patch(text, read) == diff:
                return text
    except PatchError:
        pass
    return reply


def _block(path: str | None, hunk: Hunk, text: str | None) -> str:
    """A hunk as a block; of the lines around its change, those without which its SEARCH part would
    not stand in the text once, or all if there is no text.
    """
    old, new = map(lines_of, (hunk.old, hunk.new))
    for end, rest in ((0, slice(1, None)), (-1, slice(-1))):
        for _ in range(CONTEXT if text else 0):
            alike = len(old) > 1 and new and old[end] == new[end]
            if alike and len(_starts(text or "", "".join(old[rest]))) == 1:
                old, new = old[rest], new[rest]
    return "".join([f"### {path}\n{SEARCH}\n", *old, f"{MIDDLE}\n", *new, REPLACE])


def _changes(text: str) -> list[FileChange]:
    """The changes of the diff in a text: of its blocks that are one, or of all that it says."""
    blocks = [block.code for block in fenced_blocks(text) if DIFF.search(block.code)]
    return parse("\n".join(blocks) or text)


def _edited(text: str, read: Read) -> dict[str, str]:
    """The files after all blocks of a reply, in their order."""
    if text.count(SEARCH) > MOST_EDITS:
        raise PatchError(f"the answer has more than {MOST_EDITS} SEARCH/REPLACE blocks")
    lines, path, files = iter(text.split("\n")), "", dict[str, str]()
    for line in lines:
        if match := PATH.fullmatch(line.strip()):
            path = match[1].strip().strip("`")
        elif line.strip() == SEARCH:
            parts = defaultdict[str, list[str]](list)
            for end in (MIDDLE, REPLACE):
                for part in lines:
                    if part.rstrip() == end:
                        break
                    parts[end].append(f"{part}\n")
                else:
                    raise PatchError(f"a SEARCH/REPLACE block has no line {end!r}")
            if not path:
                raise PatchError("a SEARCH/REPLACE block has no line '### path' above it")
            current = files[path] if path in files else read(safe_path(path))
            files[path] = _replaced(path, current, *map("".join, (parts[MIDDLE], parts[REPLACE])))
    return files


def _replaced(path: str, text: str | None, search: str, new: str) -> str:
    """The text with the lines that are searched for replaced; a new file where there is none."""
    if not search.strip():
        if text:
            raise PatchError(f"the SEARCH part for {path} is empty, and the file is not")
        return new
    if text is None:
        raise PatchError(f"there is no file {path}")
    whole, missing = (text, "") if text.endswith("\n") else (f"{text}\n", "\n")
    starts = _starts(whole, search)
    if len(starts) != 1:
        why = "is in the file more than once: show more" if starts else "is not in the file"
        raise PatchError(f"the SEARCH part for {path} {why} ({search.strip()[:60]!r})")
    (start,) = starts
    return (whole[:start] + new + whole[start + len(search) :]).removesuffix(missing)


def _starts(text: str, lines: str) -> list[int]:
    """Where the lines begin in the text: no place, one, or the first two."""
    first = f"\n{text}".find(f"\n{lines}")
    places = first, f"\n{text}".find(f"\n{lines}", first + 1)
    return [place for place in places if place >= 0] if first >= 0 else []
