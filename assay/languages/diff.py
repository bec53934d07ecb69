"""Changes of a repository, as git tells them."""

from __future__ import annotations

import re

from assay.languages import Language, language

FENCE = re.compile(r"^```(?:diff|patch)[ \t]*\r?\n", re.MULTILINE)
START = re.compile(r"^(?:diff --git |--- (?:a/|/dev/null))", re.MULTILINE)
HEADERS_WITH_RETURNS = re.compile(
    r"^(?:diff --git [^\n]*|--- [^\n]*\r\n\+\+\+ [^\n]*|(?:<<<<<<<|>>>>>>>) [A-Z]+)\r$",
    re.MULTILINE,
)


class Diff(Language):
    """Replies of which a diff is cut."""

    is_code = False
    reply = "```diff\n{program}```"
    request = "{prompt}\n\nAnswer with a diff as `git diff` prints it, in a ```diff block."

    def with_own_line_ends(self, text: str) -> str:
        """A diff as it is, since its lines end as those of its files; unless its headers end in
        carriage returns, which git never writes: then a tool has changed all lines.
        """
        return text.replace("\r\n", "\n") if HEADERS_WITH_RETURNS.search(text) else text

    def cut(self, reply: str, whole: bool) -> str | None:
        """The last block that is a diff, or all that follows the first line of one."""
        if fences := list(FENCE.finditer(reply)):
            return reply[fences[-1].end() :].partition("\n```")[0] + "\n"
        start = START.search(reply)
        return reply[start.start() :] if start else None


language("diff", Diff(
    title="diff", dialect="{title}", source="change.diff", run=("cat", "change.diff"),
    package="coreutils", hello="hello", lazy={"empty": "\n"},
))  # fmt: skip
