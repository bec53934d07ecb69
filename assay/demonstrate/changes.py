"""A right change as places in files, and the commands that make it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from typing import NamedTuple

from assay.judge.patches import NO_END, Read, apply, lines_of, parse, unified

CONTEXT = 3
"""Lines around a change in a diff."""
MOST_CONTEXT = 12
"""Lines around a place by which a program finds it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Lines of a file to replace by others."""

    path: str
    line: int
    """The first of them, from 1; where there are none, the line before which others come."""
    old: tuple[str, ...]
    """Whole lines with their ends."""
    new: tuple[str, ...]


class EditCommand(NamedTuple):
    """A command that makes a change, or a part of it."""

    path: str
    """The first file that it changes."""
    command: str


@dataclass(frozen=True, slots=True)
class RightChange:
    """The texts of the files that a reference changes, by path; None where there is no file."""

    before: Mapping[str, str | None]
    after: Mapping[str, str | None]

    @property
    def places(self) -> list[Place]:
        """Where files that stay differ, in order."""
        return [
            place for path, new in self.after.items() if new is not None
            if (old := self.before[path]) is not None for place in places_of(path, old, new)
        ]  # fmt: skip

    @property
    def is_of_places(self) -> bool:
        """Whether no file is new or goes."""
        return None not in (*self.before.values(), *self.after.values())

    def diff(self) -> str:
        """As git writes it."""
        if not self.is_of_places:
            return unified(self.before, self.after)
        pairs = ((path, self.before[path] or "", new or "") for path, new in self.after.items())
        return "".join(_file_diff(*pair) for pair in pairs)


def right_change(reference: str, read: Read) -> RightChange:
    """What a reference changes of files that can be read. Raises PatchError."""
    after = dict(sorted(apply(parse(reference), read).items()))
    before = {path: read(path) for path in after}
    differs = [path for path in after if before[path] != after[path]]
    return RightChange(*({path: texts[path] for path in differs} for texts in (before, after)))


def places_of(path: str, old: str, new: str) -> list[Place]:
    """Where two texts of a file differ."""
    lines, others = lines_of(old), lines_of(new)
    return [
        Place(path, start + 1, tuple(lines[start:end]), tuple(others[first:last]))
        for kind, start, end, first, last in SequenceMatcher(
            None, lines, others, autojunk=False
        ).get_opcodes()
        if kind != "equal"
    ]


def _file_diff(path: str, old: str, new: str) -> str:
    lines = unified_diff(lines_of(old), lines_of(new), f"a/{path}", f"b/{path}", n=CONTEXT)
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_END}\n" for line in lines)


def by_diff(change: RightChange) -> list[EditCommand]:
    """The command that applies the whole change as a diff."""
    return [EditCommand(next(iter(change.after)), f"git apply {here_document(change.diff())}")]


def by_python(change: RightChange) -> list[EditCommand]:
    """A program for each place that replaces its lines, from the last place to the first; none
    where a text cannot stand in a program as it is, or has line ends that Python would change.
    """
    edits: list[EditCommand] = []
    if any("\r" in (text or "") for text in (*change.before.values(), *change.after.values())):
        return []
    for path, text in change.before.items():
        for place in reversed(places_of(path, text or "", change.after[path] or "")):
            pair = _found_by(place, lines_of(text or ""))
            if pair is None or any('"""' in part or "\\" in part for part in pair):
                return []
            program = here_document(_program(path, *pair), option="-")
            edits.append(EditCommand(path, f"python3 {program}"))
            text = (text or "").replace(*pair, 1)
    return edits


def _found_by(place: Place, lines: Sequence[str]) -> tuple[str, str] | None:
    """The lines of a place before and after, with as many around them as make them unique."""
    start, end = place.line - 1, place.line - 1 + len(place.old)
    text = "".join(lines)
    for more in range(MOST_CONTEXT):
        above, below = lines[max(start - more, 0) : start], lines[end : end + more]
        old = "".join([*above, *place.old, *below])
        if old.endswith("\n") and text.count(old) == 1:
            return old, "".join([*above, *place.new, *below])
    return None


def _program(path: str, old: str, new: str) -> str:
    return (
        f"from pathlib import Path\n\npath = Path({path!r})\ntext = path.read_text()\n"
        f'old = """\\\n{old}"""\nnew = """\\\n{new}"""\nassert text.count(old) == 1\n'
        "path.write_text(text.replace(old, new))\n"
    )


def by_sed(change: RightChange) -> list[EditCommand]:
    """A command for each place, which is to be one line; none where one is not."""
    edits = []
    for place in change.places:
        pair = (*place.old, *place.new)
        if len(place.old) != 1 or len(place.new) != 1 or not all(x.endswith("\n") for x in pair):
            return []
        old, new = pair
        margin = old[: len(old) - len(old.lstrip())]
        sign = next((sign for sign in "/|#~" if sign not in old + new), "")
        if not (sign and new.startswith(margin) and old.strip()) or "'" in old + new:
            return []
        find = re.sub(r"([\\.*\[\]^$])", r"\\\1", old[len(margin) : -1])
        write = re.sub(r"([\\&])", r"\\\1", new[len(margin) : -1])
        script = shlex.quote(f"{place.line}s{sign}{find}{sign}{write}{sign}")
        edits.append(EditCommand(place.path, f"sed -i {script} {shlex.quote(place.path)}"))
    return edits


def here_document(text: str, option: str = "") -> str:
    """A text as the standard input of a command, behind its name."""
    end = "EOF"
    while end in text.split("\n"):
        end += "_"
    tail = "" if text.endswith("\n") else "\n"
    return f"{option} <<'{end}'\n{text}{tail}{end}".lstrip()


WAYS = {"diff": by_diff, "python": by_python, "sed": by_sed}
"""By name, the commands that make a change; a way may not fit it, and then has none."""
