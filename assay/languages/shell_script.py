"""Scripts of bash that change a folder, or a change of it as a diff."""

from __future__ import annotations

import re

from assay.languages import Language, language, language_named

FENCE = re.compile(r"^```(?:bash|sh|shell)[ \t]*\n", re.MULTILINE)
HEADER = re.compile(r"\s*(?:diff --git |--- (?:a/|/dev/null))")


class ScriptOrDiff(Language):
    """Replies of which a script is cut, or a diff."""

    is_code = False
    reply = "```bash\n{program}```"
    request = (
        "{prompt}\n\nAnswer with one script that does this in the work folder, in a ```bash block."
    )

    def cut(self, reply: str, whole: bool) -> str | None:
        """The last block that is a script; else the diff of a reply, or all of one that is
        `whole`.
        """
        if fences := list(FENCE.finditer(reply)):
            return reply[fences[-1].end() :].partition("\n```")[0] + "\n"
        return language_named("diff").cut(reply, whole) or (reply if whole else None)


def is_diff(program: str) -> bool:
    """Whether a program is a diff, and no script."""
    return HEADER.match(program) is not None


language("shell_script", ScriptOrDiff(
    title="bash", dialect="{title}", source="script.sh", run=("cat", "script.sh"),
    package="coreutils", hello="hello", lazy={"empty": "\n"},
))  # fmt: skip
