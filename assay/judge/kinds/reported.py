"""Tasks of which an agent reports the reward: nothing is judged here."""

from __future__ import annotations

from collections.abc import Sequence

from assay.judge.kinds.kind import Kind
from assay.judge.kinds.workbench import Workbench
from assay.types import Cause, Execution, Reported, Task, Verdict


class ReportedRewards(Kind[Reported], judges=Reported):
    """No program of theirs is run."""

    async def judge(
        self, workbench: Workbench, checks: Sequence[Reported], task: Task, program: str
    ) -> Execution:
        """Nobody here knows: only the agent of a rollout does."""
        why = "only an agent that plays the task reports its reward (environment 'program')"
        return Execution(Verdict.UNJUDGED, 0, 1, why, cause=Cause.TASK)
