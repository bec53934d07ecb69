"""Runs references, lazy programs and attacks through the judge, and says what their verdicts tell
of the tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from assay.check.attacks import RAISE, aimed, attacks_on, lazy_on
from assay.check.findings import Finding, Flaw
from assay.errors import DataError
from assay.judge import Job, Judge
from assay.judge.judge import JOBS_PER_SLOT
from assay.sandbox.limits import Limits
from assay.types import Execution, Task, Verdict

SLOW_SHARE = 0.25
"""Of the CPU time allowed: a reference that uses more leaves a right but slower program too
little."""
RESEEDED = '__import__("random").seed(1)\n'
UNPROVABLE = (Flaw.REFERENCE_FAILS, Flaw.FLAKY, Flaw.UNJUDGED)
"""After these, nothing is learnt from what other programs do."""
LAZY = {"empty": Flaw.EMPTY_PASSES, "constant": Flaw.CONSTANT_PASSES, "echo": Flaw.ECHO_PASSES}
Announce = Callable[[str, int, int], None]
"""Called with what is being run, how many have ended, and of how many."""
Seen = dict[str, Execution]
"""Executions of one task's programs by their names."""


@dataclass(frozen=True, slots=True)
class Bench:
    """How programs are judged."""

    limits: Limits
    slots: int | None
    allow_weak: bool
    announce: Announce

    def run(
        self, what: str, tasks: Sequence[Task], programs: Sequence[dict[str, str]], stop_early: bool
    ) -> list[Seen]:
        """Judge the named programs of each task."""
        named = [
            (number, name, source)
            for number, own in enumerate(programs)
            for name, source in own.items()
        ]
        seen: list[Seen] = [{} for _ in tasks]
        ended = 0

        async def all_of_them() -> None:
            async with Judge(self.limits, self.slots, stop_early, self.allow_weak) as judge:
                gate = asyncio.Semaphore(JOBS_PER_SLOT * judge.slots)
                await asyncio.gather(*(one(judge, gate, *program) for program in named))

        async def one(
            judge: Judge, gate: asyncio.Semaphore, number: int, name: str, source: str
        ) -> None:
            nonlocal ended
            async with gate:
                try:
                    seen[number][name] = await judge.run(Job(tasks[number], source))
                except (
                    DataError
                ) as error:  # of a task that the judge refuses: others must be checked all the same
                    seen[number][name] = Execution(Verdict.INFRA, detail=str(error))
            ended += 1
            self.announce(what, ended, len(named))

        asyncio.run(all_of_them())
        return seen


def try_out(tasks: Sequence[Task], bench: Bench) -> list[list[Finding]]:
    """Findings for each task. Raises SandboxError as the judge does."""
    proofs = bench.run("references", tasks, [_proofs(task) for task in tasks], stop_early=False)
    found = [[*_of_proofs(seen, bench.limits), *_unjudged(seen)] for seen in proofs]
    worth = [
        number
        for number, own in enumerate(found)
        if not any(finding.flaw in UNPROVABLE for finding in own)
    ]
    victims = [tasks[number] for number in worth]
    attacked = bench.run(
        "attacks", victims, [lazy_on(task) | attacks_on(task) for task in victims], stop_early=True
    )
    for number, seen in zip(worth, attacked, strict=True):
        found[number] += [*_of_attacks(seen), *_unjudged(seen)]
    return found


def _proofs(task: Task) -> dict[str, str]:
    """The reference, the same with other random numbers, and a program that only raises."""
    programs = {"raise": aimed(RAISE, task) if task.language == "python" else ""}
    if task.reference is not None:
        reseed = task.language == "python" and "__future__" not in task.reference
        programs["reference"] = task.reference
        programs["again"] = f"{RESEEDED}{task.reference}" if reseed else f"{task.reference}\n"
    return programs


def _of_proofs(seen: Seen, limits: Limits) -> Iterable[Finding]:
    runs = [seen[name] for name in ("reference", "again") if name in seen]
    failed = [run for run in runs if run.verdict not in (Verdict.PASS, Verdict.INFRA)]
    slowest = max((run.cpu_seconds for run in runs), default=0.0)
    if failed:
        said = (
            f"{failed[0].verdict}: {failed[0].detail}; {failed[0].passed} of {failed[0].total}"
            " checks hold"
        )
        if len(failed) == len(runs):
            yield Finding(Flaw.REFERENCE_FAILS, said)
        else:
            yield Finding(Flaw.FLAKY, f"passes once, and once not: {said}")
    elif slowest > SLOW_SHARE * limits.cpu_seconds:
        yield Finding(Flaw.SLOW_REFERENCE, f"{slowest:.2f} s of {limits.cpu_seconds:g} s")
    raised = seen["raise"]
    if raised.verdict is Verdict.PASS:
        yield Finding(
            Flaw.RAISE_PASSES, f"all {raised.total} checks hold for a program that only raises"
        )
    elif raised.passed:
        yield Finding(
            Flaw.IDLE_CHECKS,
            f"{raised.passed} of {raised.total} checks hold for a program that only raises",
        )


def _of_attacks(seen: Seen) -> Iterable[Finding]:
    passing = {
        name: execution for name, execution in seen.items() if execution.verdict is Verdict.PASS
    }
    for name, flaw in LAZY.items():
        if name in passing:
            yield Finding(flaw, f"all {passing.pop(name).total} checks hold")
    if passing:
        yield Finding(Flaw.ATTACK_PASSES, f"passing: {', '.join(passing)}")


def _unjudged(seen: Seen) -> list[Finding]:
    return [
        Finding(Flaw.UNJUDGED, run.detail) for run in seen.values() if run.verdict is Verdict.INFRA
    ][:1]
