"""Lines of text as Python's parser, JSON Lines and compilers count them.

`str.splitlines` also ends a line at a form feed, U+0085, U+2028, U+001C and four others, which may
stand inside a line of a program or of a JSON string.
"""

from __future__ import annotations

import re

WITH_END = re.compile(r"[^\r\n]*+(?:\r\n|\r|\n)|[^\r\n]++")


def source_lines(text: str, keepends: bool = False) -> list[str]:
    """The lines of a text, which end at `\\n`, `\\r\\n` or `\\r` alone."""
    lines = WITH_END.findall(text)
    return lines if keepends else [line.rstrip("\r\n") for line in lines]
