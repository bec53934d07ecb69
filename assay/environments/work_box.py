"""The box in which an agent's commands work on a task, and what is judged of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from assay.environments import LocalConversation
from assay.judge.kinds.repository import shown_spec_of
from assay.sandbox.box import Box
from assay.sandbox.box_commit import commit_tree
from assay.types import RepositoryTests, Task

NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""A variable of commands. Agents edit faster than bytecode tells its source's age: an edit of the
same length in the same second would not run."""
OUTPUT_BYTES = 4 << 20
"""The most that is kept of what a command prints."""
log = logging.getLogger(__name__)


@asynccontextmanager
async def repository_box(
    conversation: LocalConversation, check: RepositoryTests, roots: Sequence[Path] = ()
) -> AsyncIterator[Box]:
    """A box with a task's repository, which is one commit where it has no history. It shows `roots`
    too. Raises DataError, RolloutLostError.
    """
    spec = await shown_spec_of(check)
    async with conversation.judge.box(spec._replace(roots=(*spec.roots, *roots))) as box:
        if why := await commit_tree(box):
            log.warning("task %s: its box has no git repository: %s", conversation.task.id, why)
        yield box


async def last_diff(task: Task, box: Box) -> str:
    """How the work folder of a box differs that is not used any more. Of a diff that cannot be
    whole, it is what fits, and a line says what is left out.
    """
    diff, left_out = await box.fitting_diff()
    if left_out:
        log.warning("task %s: the submitted diff lacks %s", task.id, left_out)
    return diff
