"""Changes of a repository cut from a reply: a unified diff, or SEARCH/REPLACE blocks under
`### path`.
"""

from __future__ import annotations

import re
from collections import defaultdict

from assay.extract.fences import fenced_blocks
from assay.extract.thoughts import answer
from assay.judge.patches import FileChange, PatchError, Read, apply, parse, safe_path, unified

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
    text = answer(reply)
    if SEARCH in text:
        after = _edited(text, read)
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
        changes = _changes(reply)
        blocks = [
            f"### {change.new}\n{SEARCH}\n{hunk.old}{MIDDLE}\n{hunk.new}{REPLACE}"
            for change in changes
            for hunk in change.hunks
        ]
        text = "\n".join(blocks)
        return text if patch(text, read) == patch(reply, read) else reply
    except PatchError:
        return reply


def _changes(text: str) -> list[FileChange]:
    """The changes of the diff in a text: of its blocks that are one, or of all that it says."""
    blocks = [block.code for block in fenced_blocks(text) if DIFF.search(block.code)]
    return parse("\n".join(blocks) or text)


def _edited(text: str, read: Read) -> dict[str, str | None]:
    """The files after all blocks of a reply, in their order."""
    if text.count(SEARCH) > MOST_EDITS:
        raise PatchError(f"the answer has more than {MOST_EDITS} SEARCH/REPLACE blocks")
    lines, path, files = iter(text.split("\n")), "", dict[str, str | None]()
    for line in lines:
        if named := PATH.fullmatch(line.strip()):
            path = named[1].strip().strip("`")
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
    start = f"\n{whole}".find(f"\n{search}")
    if start < 0 or f"\n{whole}".find(f"\n{search}", start + 1) >= 0:
        why = "is not in the file" if start < 0 else "is in the file more than once: show more"
        raise PatchError(f"the SEARCH part for {path} {why} ({search.strip()[:60]!r})")
    return (whole[:start] + new + whole[start + len(search) :]).removesuffix(missing)
