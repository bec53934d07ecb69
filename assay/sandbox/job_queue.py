"""Jobs that wait for a slot."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from assay.sandbox.limits import LONGEST, Limits
from assay.sandbox.program import Pool, Program

ATTEMPTS = 2


@dataclass(slots=True)
class QueuedJob:
    """One job from the trainer, and what has happened to it so far."""

    number: int
    program: Program
    limits: Limits
    attempt: int = 0
    avoid: object = None
    """The slot in which the machine failed it."""
    failure: str = ""
    """How the machine failed the last attempt."""
    cancelled: bool = False
    """Whether nobody waits for its result."""

    @property
    def steps(self) -> float:
        """How many times its time limits all steps together have: no more than a program with the
        largest time factor.
        """
        return min(self.program.steps, LONGEST * self.program.pool.share / self.program.time_factor)


class JobQueue:
    """Jobs by number, in the order in which to start them."""

    def __init__(self) -> None:
        self._waiting = defaultdict[Pool, OrderedDict[int, QueuedJob]](OrderedDict)
        """By the pool."""

    def add(self, job: QueuedJob) -> None:
        """Append a new job."""
        self._waiting[job.program.pool][job.number] = job

    def cancel(self, number: int) -> None:
        """Drop a job if it waits here."""
        for jobs in self._waiting.values():
            jobs.pop(number, None)

    def take(self, pool: Pool, can_run: Callable[[QueuedJob], bool]) -> QueuedJob | None:
        """Remove and return the first job for this pool that `can_run` accepts."""
        job = next(filter(can_run, self._waiting[pool].values()), None)
        return self._waiting[pool].pop(job.number) if job else None

    def requeue(self, job: QueuedJob) -> None:
        """Put a job first, unless it is cancelled."""
        if not job.cancelled:
            self.add(job)
            self._waiting[job.program.pool].move_to_end(job.number, last=False)

    def retry(self, job: QueuedJob, slot: object, failure: str) -> bool:
        """Requeue a job that the machine failed in `slot`. False where it has no attempt left."""
        if job.attempt + 1 >= ATTEMPTS or job.program.session is not None:
            return False
        job.attempt, job.avoid, job.failure = job.attempt + 1, slot, failure
        self.requeue(job)
        return True
