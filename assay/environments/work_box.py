"""The box in which an agent's commands work on a task, and what is judged of it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from assay.environments import LocalConversation
from assay.judge.kinds.find import kind_of
from assay.judge.kinds.kind import InTree
from assay.sandbox.box import Box
from assay.types import AnyCheck, Task

NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""A variable of commands. Agents edit faster than bytecode tells its source's age: an edit of the
same length in the same second would not run."""
OUTPUT_BYTES = 4 << 20
"""The most that is kept of what a command prints."""
log = logging.getLogger(__name__)


JudgedTree = tuple[InTree[Any], AnyCheck]
"""A check whose programs are changes of a tree, and its kind."""


def judged_tree(task: Task) -> JudgedTree | None:
    """The check of a task whose programs are changes of a tree, with its kind; None for others."""
    kinds = ((kind_of(check), check) for check in task.checks)
    return next(((kind, check) for kind, check in kinds if isinstance(kind, InTree)), None)


@asynccontextmanager
async def tree_box(
    conversation: LocalConversation, judged: JudgedTree, roots: Sequence[Path] = ()
) -> AsyncIterator[Box]:
    """A box with the tree of a task; a repository without history is one commit there. It shows
    `roots` too. Raises DataError, RolloutLostError.
    """
    kind, check = judged
    spec = await kind.work_spec(check)
    async with conversation.judge.box(spec._replace(roots=(*spec.roots, *roots))) as box:
        if why := await kind.make_ready(box):
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
