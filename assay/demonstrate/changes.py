"""A right change as places in files, and the commands that make it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import NamedTuple

from assay.judge.patches import (
    CONTEXT,
    Read,
    apply,
    equal_ends,
    lines_of,
    marked_ends,
    parse,
    unified,
)

MOST_CONTEXT = 12
"""Lines around a place by which a program finds it."""
MOST_CHANGED = 2000
"""Changed lines up to which a change is made place by place."""
MOST_COMPARED = 20_000
"""Lines of a file's two texts, from the first place to the last, in which places are found."""


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

    places: tuple[Place, ...] = field(init=False)
    """Where files that stay differ, in order."""

    def __post_init__(self) -> None:
        places = [
            place for path, new in self.after.items() if new is not None
            if (old := self.before[path]) is not None for place in places_of(path, old, new)
        ]  # fmt: skip
        object.__setattr__(self, "places", tuple(places))

    @property
    def is_of_places(self) -> bool:
        """Whether no file is new or goes, and not too many lines change."""
        stay = None not in (*self.before.values(), *self.after.values())
        changed = sum(len(place.old) + len(place.new) for place in self.places)
        return stay and changed <= MOST_CHANGED

    def places_in(self, path: str) -> list[Place]:
        """Where a file differs."""
        return [place for place in self.places if place.path == path]

    def diff(self) -> str:
        """As git writes it."""
        if not self.is_of_places:
            return unified(self.before, self.after)
        return "".join(
            _file_diff(path, self.before[path] or "", self.places_in(path)) for path in self.after
        )


def right_change(reference: str, read: Read) -> RightChange:
    """What a reference changes of files that can be read. Raises PatchError."""
    after = dict(sorted(apply(parse(reference), read).items()))
    before = {path: read(path) for path in after}
    differs = [path for path in after if before[path] != after[path]]
    return RightChange(*({path: texts[path] for path in differs} for texts in (before, after)))


def places_of(path: str, old: str, new: str) -> list[Place]:
    """Where two texts of a file differ; one place, from the first line that differs to the last,
    where they differ too much to be compared.
    """
    lines, others = lines_of(old), lines_of(new)
    first, same = equal_ends(lines, others)
    lines, others = lines[first : len(lines) - same], others[first : len(others) - same]
    total, counts = len(lines) + len(others), (Counter(lines), Counter(others))
    if total > MOST_COMPARED or total - 2 * (counts[0] & counts[1]).total() > MOST_CHANGED:
        return [Place(path, first + 1, tuple(lines), tuple(others))]
    # lines that stand everywhere make the exact comparison of long texts slow
    matcher = SequenceMatcher(None, lines, others, autojunk=total > MOST_CHANGED)
    return [
        Place(path, first + start + 1, tuple(lines[start:end]), tuple(others[begin:last]))
        for kind, start, end, begin, last in matcher.get_opcodes()
        if kind != "equal"
    ]


def _file_diff(path: str, old: str, places: Sequence[Place]) -> str:
    lines, parts, growth = lines_of(old), [f"--- a/{path}\n+++ b/{path}\n"], 0
    for group in _near(places):
        start = at = max(group[0].line - 1 - CONTEXT, 0)
        body: list[str] = []
        for place in group:
            body += [f" {line}" for line in lines[at : place.line - 1]]
            body += [*(f"-{line}" for line in place.old), *(f"+{line}" for line in place.new)]
            at = place.line - 1 + len(place.old)
        tail = lines[at : at + CONTEXT]
        body += [f" {line}" for line in tail]
        count, more = at + len(tail) - start, sum(len(x.new) - len(x.old) for x in group)
        parts.append(f"@@ -{_range(start, count)} +{_range(start + growth, count + more)} @@\n")
        parts.append(marked_ends(body))
        growth += more
    return "".join(parts)


def _near(places: Sequence[Place]) -> list[list[Place]]:
    """The places of a file, in groups whose lines around them meet."""
    groups: list[list[Place]] = []
    end = 0
    for place in places:
        if groups and place.line - 1 - end <= 2 * CONTEXT:
            groups[-1].append(place)
        else:
            groups.append([place])
        end = place.line - 1 + len(place.old)
    return groups


def _range(start: int, count: int) -> str:
    """The lines of a hunk; no lines stand after the one before them."""
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


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
        for place in reversed(change.places_in(path)):
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
        edits.append(EditCommand(place.path, f"sed -i {script} {operand(place.path)}"))
    return edits


def operand(path: str) -> str:
    """A path as the last word of a command, which takes it for no option."""
    return "-- " * path.startswith("-") + shlex.quote(path)


def here_document(text: str, option: str = "") -> str:
    """A text as the standard input of a command, behind its name."""
    end = "EOF"
    while end in text.split("\n"):
        end += "_"
    tail = "" if text.endswith("\n") else "\n"
    return f"{option} <<'{end}'\n{text}{tail}{end}".lstrip()


WAYS = {"diff": by_diff, "python": by_python, "sed": by_sed}
"""By name, the commands that make a change; a way may not fit it, and then has none."""
