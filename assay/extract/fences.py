"""The code blocks of a reply in Markdown, whole or broken."""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE = re.compile(r"^(?P<before>[^`]*?)(?P<fence>`{3,})[ \t]*(?P<tag>[\w+#-]*)(?P<rest>[^`]*)$")


@dataclass(frozen=True, slots=True)
class Fenced:
    """A block between fences."""

    code: str
    """Without the fences, ending in a line end."""
    closed: bool
    """Whether the closing fence is there."""
    tag: str
    """What the opening fence names, in lower case; empty where that is nothing."""


def fenced_blocks(reply: str) -> list[Fenced]:
    """The code blocks of a reply, in order. An opening fence with a tag inside a block starts a new
    one.
    """
    blocks: list[Fenced] = []
    lines: list[str] = []
    open_fence, tag, margin, in_text = "", "", 0, False
    for line in reply.split("\n"):
        fence = FENCE.match(line)
        if not open_fence:
            if fence and _opens(fence):
                open_fence, margin, lines = fence["fence"], len(line) - len(line.lstrip()), []
                tag, in_text = fence["tag"].lower(), False
        elif fence and _closes(fence, open_fence, margin, in_text):
            if fence["before"].strip():
                lines.append(_without_margin(fence["before"], margin))
            blocks.append(Fenced(_code(lines), closed=True, tag=tag))
            open_fence = ""
        elif fence and fence["tag"] and not fence["before"]:
            blocks.append(Fenced(_code(lines), closed=False, tag=tag))
            lines, tag, in_text = [], fence["tag"].lower(), False
        else:
            lines.append(_without_margin(line, margin))
            in_text ^= (line.count('"""') + line.count("'''")) % 2 == 1
    if open_fence:
        blocks.append(Fenced(_code(lines), closed=False, tag=tag))
    return blocks


def _opens(fence: re.Match[str]) -> bool:
    return not (fence["before"].strip() and fence["rest"].strip())  # else it is prose about fences


def _closes(fence: re.Match[str], opened: str, margin: int, in_text: bool) -> bool:
    """Whether it ends the block. In Markdown no fence is indented by four spaces; but models do
    that, so only one inside a docstring is taken for code.
    """
    indented = not fence["before"].strip() and len(fence["before"]) > margin + 3
    return (
        len(fence["fence"]) >= len(opened)
        and not fence["tag"]
        and not fence["rest"].strip()
        and not (indented and in_text)
    )


def _without_margin(line: str, margin: int) -> str:
    return line[min(margin, len(line) - len(line.lstrip())) :]


def _code(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines).removeprefix("\ufeff")  # a byte order mark


def before_fences(reply: str) -> str:
    """The text above the first block; the whole text where there is none."""
    lines = reply.split("\n")
    fences = (n for n, line in enumerate(lines) if (fence := FENCE.match(line)) and _opens(fence))
    return "\n".join(lines[: next(fences, len(lines))])
