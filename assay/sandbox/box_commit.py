"""Gives a box whose tree is in no git repository one, with a single commit of the tree."""

from __future__ import annotations

from assay.sandbox.box import Box
from assay.sandbox.box_files import REPOSITORY
from assay.sandbox.program import Ended

DATE = "2000-01-01T00:00:00Z"
"""Of the commit, so that equal trees have equal ones."""
SECONDS = 60.0
HAS_ONE = "test -e .git || test -L .git || git rev-parse --git-dir"
SETTINGS = {
    "core.bigFileThreshold": "1",  # one file holds all contents, none of which is read whole
    "core.compression": "1",
    "core.hooksPath": "/dev/null",
    "gc.auto": "0",
}
GIT = " ".join(["git", *(f"-c {name}={value}" for name, value in SETTINGS.items())])
COMMIT = f"""
{GIT} add --all --force . &&
{GIT} commit --quiet --no-verify --allow-empty --message 'The repository as it is given'
"""


async def commit_tree(box: Box) -> str:
    """Commit all that the work folder of a new box holds, ignored files too, unless it is in a git
    repository. Why there is none then, if so. Raises SandboxError.

    Git runs in the box, as commands do: it reads nothing that they may not, and the tree stays as
    it is.
    """
    has_one = await box.run(("sh", "-c", HAS_ONE), wall_seconds=SECONDS)
    if has_one.ended is Ended.EXITED and has_one.status == 0:
        return ""
    try:
        await box.write({f".git/{path}": text.encode() for path, text in REPOSITORY.items()})
        dates = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
        done = await box.run(
            ("sh", "-c", COMMIT), wall_seconds=SECONDS, merged=True, environment=dates
        )
        why = f"{done.detail} {done.stdout.decode('utf-8', 'replace').strip()}".strip()
        if done.ended is Ended.EXITED and done.status == 0:
            return ""
    except OSError as error:
        why = str(error)
    await box.run(("rm", "-rf", ".git"), wall_seconds=SECONDS)
    return why or "git failed"
