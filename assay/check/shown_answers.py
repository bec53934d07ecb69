"""Whether the box of a repository's task shows the right change: in git, or in a release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from assay.checks import RepositoryTests
from assay.errors import SandboxError
from assay.judge import Judge
from assay.judge.kinds.repository import change, spec_of
from assay.sandbox.box import Box, BoxSpec, usual_rules
from assay.sandbox.program import Ended
from assay.types import Task

IN_GIT = """find . -type d -name objects -prune | while IFS= read -r objects; do
store=${objects%objects}; git --git-dir="$store" rev-parse 2> /dev/null || continue
git --git-dir="$store" fsck --unreachable --cache --connectivity-only HEAD
[ $? -lt 126 ] || exit 1; done | grep -E --max-count=1 '^unreachable (commit|tree|blob)'
case "${PIPESTATUS[*]}" in *' 0') exit ;; [01]' 0 1') ;; *) exit 1 ;; esac
while IFS= read -r path; do
[ -s "$path" ] && git cat-file -e "$(git hash-object -- "$path")" && echo "repaired $path"; done
exit 0"""
"""Prints an object other than a tag that neither HEAD nor the index leads to, in packs and
alternates too; else those files of standard input of which git has the content. Fails where one of
its programs does: find ends with 1 for a folder that may not be read, fsck below 126 for what is
wrong in a repository.
"""
BOX_OWN = r"/(proc|sys|dev|\.tree)"
"""What `/` of a box has beside the files of its image."""


async def shown_answer(judge: Judge, task: Task) -> str:
    """Where a command in a box of the task can read its answer; empty if nowhere. Raises
    MachineError and OSError where a box could not be searched.
    """
    for check in task.checks:
        if isinstance(check, RepositoryTests):
            async with judge.box(check) as box:
                await change(box, task.reference or "")
                paths = await box.changes()
                if found := await _printed(box, ("bash", "-c", IN_GIT), "\n".join([*paths, ""])):
                    return f"git has {found[0]}"
                names = [re.sub("^(src|lib)/", "", path) for path in paths if path.endswith(".py")]
                if place := await installed(box, await spec_of(check), names):
                    return f"a release of the repository is installed: {place}"
    return ""


async def installed(box: Box, spec: BoxSpec, names: Iterable[str]) -> str:
    """Where one of these files and folders lies among installed packages; empty if nowhere. Raises
    SandboxError.
    """
    pattern = rf".*(-packages|\.egg|/_vendor)/({'|'.join(map(re.escape, names))})"
    folders = ["/"] if spec.image else [*usual_rules().shown, *map(str, spec.roots)]
    _, *places = await _printed(box, (  # the first line shows that it ran, whatever its status
        "find", ".", *folders, "-regextype", "posix-extended", "-path", ".", "-print",
        "-o", "-regex", BOX_OWN, "-prune", "-o", "-regex", pattern, "-print", "-quit",
    ))  # fmt: skip
    return "".join(places)


async def _printed(box: Box, command: Sequence[str], stdin: str = "") -> list[str]:
    """The lines that a command prints. Raises SandboxError where it fails and prints none."""
    data = stdin.encode("utf-8", "surrogateescape")
    result = await box.run(command, stdin=data, wall_seconds=600.0)
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    if result.ended is not Ended.EXITED or (result.status and not lines):
        said = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SandboxError(f"a box could not be searched: {said or result.detail}")
    return lines
