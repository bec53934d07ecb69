"""Changes of a repository, as git tells them."""

from __future__ import annotations

import re

from assay.languages import Language, language

FENCE = re.compile(r"^```(?:diff|patch)[ \t]*\n", re.MULTILINE)
START = re.compile(r"^(?:diff --git |--- (?:a/|/dev/null))", re.MULTILINE)


class Diff(Language):
    """Replies of which a diff is cut."""

    is_code = False
    reply = "```diff\n{program}```"
    request = "{prompt}\n\nAnswer with a diff as `git diff` prints it, in a ```diff block."

    def cut(self, reply: str, whole: bool) -> str | None:
        """The last block that is a diff, or all that follows the first line of one."""
        if fences := list(FENCE.finditer(reply)):
            return reply[fences[-1].end() :].partition("\n```")[0] + "\n"
        start = START.search(reply)
        return reply[start.start() :] if start else None


language("diff", Diff(
    title="diff", source="change.diff", run=("cat", "change.diff"), package="coreutils",
    hello="hello", lazy={"empty": "\n"},
))  # fmt: skip
