"""Plays references in the environment `shell`, and writes rows of what the judge passes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from assay.demonstrate.changes import right_change
from assay.demonstrate.player import converse
from assay.demonstrate.rows import RowFile, row_id, row_of
from assay.demonstrate.script import ScriptPlan, Situation, UnfitScriptError, draw_plan, script
from assay.environments import Environment, repository_tests
from assay.errors import DataError, RolloutLostError
from assay.judge import Job, Judge
from assay.judge.patches import PatchError
from assay.judge.repository_tree import files_of, import_paths, reader, tree_of
from assay.progress import Progress
from assay.sandbox.isolation import probe_isolation
from assay.sync import together
from assay.types import UNJUDGED_CAUSES, RepositoryTests, Task, Verdict

REPEATS = "another row has the same replies"


class DemonstrationFate(StrEnum):
    """What became of a conversation."""

    KEPT = "kept"
    NO_REFERENCE = "no reference"
    UNFIT_REFERENCE = "reference does not fit"
    """It is no diff that the tree takes, or its files are no UTF-8."""
    UNFIT_SCRIPT = "no script fits"
    """A command failed that was to succeed."""
    NOT_PASSED = "not passed"
    UNJUDGED = "unjudged"
    """The task cannot be judged."""
    REPEATED = "repeated"
    """The same replies are in the file."""
    LOST = "lost"
    """The machine failed."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """One conversation, and why it is not kept."""

    id: str
    fate: DemonstrationFate
    why: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class DemonstrationSummary:
    """What was played so far."""

    present: int = 0
    """Rows that the file held before."""
    fates: Counter[DemonstrationFate] = field(default_factory=Counter)
    reasons: dict[DemonstrationFate, str] = field(default_factory=dict)
    """The first conversation of each fate that is not kept, and why."""

    @property
    def added(self) -> int:
        """Rows that were added."""
        return self.fates[DemonstrationFate.KEPT]

    @property
    def lost(self) -> int:
        """Conversations that the machine failed."""
        return self.fates[DemonstrationFate.LOST]

    @property
    def why_lost(self) -> str:
        """The first of them, and why; empty where there is none."""
        return self.reasons.get(DemonstrationFate.LOST, "")

    def note(self, attempted: Attempted) -> None:
        """Count a conversation."""
        self.fates[attempted.fate] += 1
        if attempted.why:
            self.reasons.setdefault(attempted.fate, f"{attempted.id}: {attempted.why}")


def require_repositories(tasks: Sequence[Task], spec: str) -> None:
    """Raises DataError for a task that the environment cannot show."""
    for task in tasks:
        if repository_tests(task) is None:
            raise DataError(
                f"task {task.id!r} of {spec} has no `tree`; the environment `shell` needs a"
                " repository: take a file of `assay make-tasks`"
            )


async def play_references(
    tasks: Sequence[Task], environment: Environment, judge: Judge, file: RowFile,
    summary: DemonstrationSummary, progress: Progress, *, samples: int, seed: int,
) -> None:  # fmt: skip
    """Play `samples` conversations of each task and append those that pass to the file, in order;
    those that it holds are left out. `summary` says what is done, also where this is cancelled.
    Raises SandboxError.
    """
    numbered = [(task, number) for number in range(samples) for task in tasks]
    missing = [pair for pair in numbered if row_id(*pair, seed) not in file.ids]
    summary.present = len(file.ids)
    progress.phase("playing demonstrations", len(missing))
    async with judge:
        for first in range(0, len(missing), judge.slots):
            pairs = missing[first : first + judge.slots]
            calls = (_attempt(task, number, seed, environment, judge) for task, number in pairs)
            for attempted in await together(calls):
                is_kept = attempted.fate is DemonstrationFate.KEPT
                if is_kept and not file.added(attempted.row):
                    attempted = Attempted(attempted.id, DemonstrationFate.REPEATED, REPEATS)
                summary.note(attempted)
                progress.advance()


async def _attempt(
    task: Task, number: int, seed: int, environment: Environment, judge: Judge
) -> Attempted:
    """One conversation; where its script does not fit the task, the plainest one."""
    id, check = row_id(task, number, seed), repository_tests(task)
    if not (check and task.reference):
        return Attempted(id, DemonstrationFate.NO_REFERENCE, "the task has none")
    try:
        situation = await asyncio.to_thread(_situation, task, check, task.reference)
        plan = draw_plan(seed, task.id, number)
        for candidate in dict.fromkeys((plan, plan.plainest)):
            attempted = await _play(task, id, situation, candidate, environment, judge)
            if attempted.fate is not DemonstrationFate.UNFIT_SCRIPT:
                break
        return attempted
    except (PatchError, UnicodeError) as error:
        return Attempted(id, DemonstrationFate.UNFIT_REFERENCE, str(error))
    except DataError as error:
        return Attempted(id, DemonstrationFate.UNJUDGED, str(error))
    except RolloutLostError as lost:
        fate = (
            DemonstrationFate.UNJUDGED if lost.cause in UNJUDGED_CAUSES else DemonstrationFate.LOST
        )
        return Attempted(id, fate, str(lost))


def _situation(task: Task, check: RepositoryTests, reference: str) -> Situation:
    """Raises PatchError, UnicodeError and DataError."""
    change, tree = right_change(reference, reader(check)), tree_of(check)
    if not change.after:
        raise PatchError("it changes nothing")
    for text in (*change.before.values(), *change.after.values()):
        (text or "").encode()
    has_git = "namespaces" in probe_isolation().walls or (tree / ".git").exists()
    folders = import_paths(check, tree)
    return Situation(task.prompt, change, files_of(check), folders, has_git)


async def _play(
    task: Task,
    id: str,
    situation: Situation,
    plan: ScriptPlan,
    environment: Environment,
    judge: Judge,
) -> Attempted:
    try:
        conversed = await converse(task, judge, environment, script(situation, plan))
    except UnfitScriptError as error:
        return Attempted(id, DemonstrationFate.UNFIT_SCRIPT, str(error))
    execution = await judge.run(Job(task, conversed.program))
    if execution.verdict is Verdict.PASS:
        return Attempted(
            id, DemonstrationFate.KEPT, row=row_of(id, conversed.messages, environment)
        )
    fates = {Verdict.UNJUDGED: DemonstrationFate.UNJUDGED, Verdict.INFRA: DemonstrationFate.LOST}
    fate = fates.get(execution.verdict, DemonstrationFate.NOT_PASSED)
    return Attempted(id, fate, f"{execution.verdict}: {execution.detail}")
