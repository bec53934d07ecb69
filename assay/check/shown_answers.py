"""Whether the box of a repository's task shows the right change: in git, or in a release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.checks import RepositoryTests
from assay.judge import Judge
from assay.judge.kinds.repository import change, spec_of
from assay.sandbox.box import Box, usual_rules
from assay.types import Task

IN_GIT = """find . -type d -name objects -prune | while IFS= read -r objects; do
git --git-dir="${objects%objects}" fsck --unreachable --cache --connectivity-only HEAD; done |
grep --max-count=1 ^unreachable || while IFS= read -r path; do
[ -s "$path" ] && git cat-file -e "$(git hash-object -- "$path")" && echo "repaired $path"; done"""
"""Prints an object that neither HEAD nor the index leads to, in packs and alternates too; else
those files of standard input of which git has the content.
"""


async def shown_answer(judge: Judge, task: Task) -> str:
    """Where a command in a box of the task can read its answer; empty if nowhere. Raises
    SandboxError.
    """
    for check in task.checks:
        if isinstance(check, RepositoryTests):
            async with judge.box(check) as box:
                await change(box, task.reference or "")
                paths = await box.changes()
                if text := await _printed(box, ("bash", "-c", IN_GIT), "\n".join([*paths, ""])):
                    return f"git has {text}"
                names = [re.sub("^(src|lib)/", "", path) for path in paths if path.endswith(".py")]
                if place := await installed(box, (await spec_of(check)).roots, names):
                    return f"a release of the repository is installed: {place}"
    return ""


async def installed(box: Box, roots: Iterable[Path], names: Iterable[str]) -> str:
    """Where one of these files and folders lies among installed packages; empty if nowhere. Raises
    SandboxError.
    """
    pattern = rf".*(-packages|\.egg|/_vendor)/({'|'.join(map(re.escape, names))})"
    folders = (*usual_rules().shown, *map(str, roots), box.folder)
    return await _printed(
        box,
        ("find", *folders, "-regextype", "posix-extended", "-regex", pattern, "-print", "-quit"),
    )


async def _printed(box: Box, command: Sequence[str], stdin: str = "") -> str:
    data = stdin.encode("utf-8", "surrogateescape")
    result = await box.run(command, stdin=data, wall_seconds=600.0)
    return " ".join(result.stdout.decode("utf-8", "replace").split())
