"""Whether the box of a repository's task shows the right change: in git, or in a release."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from assay.checks import RepositoryTests
from assay.errors import SandboxError
from assay.judge import Judge
from assay.judge.kinds.repository import change, shown_spec_of, spec_of
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.sandbox.boxes import usual_rules
from assay.types import Task


async def shown_answer(judge: Judge, task: Task) -> str:
    """Where a command in a box of the task can read its answer; empty if nowhere. Raises
    MachineError and OSError where a box could not be searched.
    """
    for check in task.checks:
        if isinstance(check, RepositoryTests):
            async with judge.box(await shown_spec_of(check)) as box:
                await change(box, task.reference or "")
                paths = await box.changes()
                if text := await _printed(box, "in_git.sh", stdin="\n".join([*paths, ""])):
                    return f"git has {text}"
                names = [re.sub("^(src|lib)/", "", path) for path in paths if path.endswith(".py")]
                if place := await installed(box, await spec_of(check), names):
                    return f"a release of the repository is installed: {place}"
    return ""


async def installed(box: Box, spec: BoxSpec, names: Iterable[str]) -> str:
    """Where one of these files and folders lies among installed packages; empty if nowhere. Raises
    SandboxError.
    """
    pattern = rf".*(-packages|\.egg|/_vendor)/({'|'.join(map(re.escape, names))})"
    folders = ["/"] if spec.image else [*usual_rules().visible, *map(str, spec.roots)]
    return await _printed(box, "installed.sh", pattern, *folders)


async def _printed(box: Box, script: str, *arguments: str, stdin: str = "") -> str:
    """What a script of this folder prints. Raises SandboxError where it fails."""
    command = ("bash", "-c", Path(__file__).with_name(script).read_text(), script, *arguments)
    result = await box.run(
        command, stdin=stdin.encode("utf-8", "surrogateescape"), wall_seconds=600.0
    )
    if result.detail:
        errors = result.stderr.decode("utf-8", "replace").strip()
        raise SandboxError(f"a box could not be searched: {result.detail}: {errors}")
    return " ".join(result.stdout.decode("utf-8", "replace").split())
