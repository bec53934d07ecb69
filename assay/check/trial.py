"""Runs references, lazy programs and attacks in the judge, and turns verdicts into findings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from assay.check.attacks import RAISE, attacks_on, lazy_programs, program_for
from assay.check.findings import Finding, Flaw
from assay.check.shown_answers import shown_answer
from assay.errors import MachineError
from assay.judge import Job, Judge, judge_all
from assay.judge.checkers import checker_named
from assay.judge.prepared_task import NEEDS_OBJECTS
from assay.progress import Progress
from assay.sandbox.limits import Limits
from assay.sandbox.program import HASH_SEEDS
from assay.sync import run_sync
from assay.syntax_trees import UNPARSABLE, syntax_tree
from assay.tasks.python_source import named_instead
from assay.types import Cause, Execution, Task, Verdict

SLOW_SHARE = 0.25
"""Share of the CPU time limit. A reference that uses more leaves too little for correct but slower
programs."""
RESEED = '__import__("random").seed(1)\n'
AGAIN = "again"
BLOCKING = {Flaw.REFERENCE_FAILS, Flaw.FLAKY, Flaw.SET_ORDER, Flaw.NOT_JUDGED, Flaw.UNJUDGED}
"""After these, the verdicts of other programs say nothing about the task."""
DECIDED = (Verdict.PASS, Verdict.WRONG, Verdict.ERROR)
LAZY = {"empty": Flaw.EMPTY_PASSES, "constant": Flaw.CONSTANT_PASSES, "echo": Flaw.ECHO_PASSES}
ORDERS = {f"hash seed {seed}": seed for seed in range(1, HASH_SEEDS)}
"""By their names, seeds that no task has by itself, under which its reference runs too. Only here
does a judge start processes of other seeds."""
RawResult = dict[str, Execution]
"""Executions of one task's programs, by the programs' names."""


@dataclass(frozen=True, slots=True)
class ProgramRunner:
    """How programs are judged."""

    limits: Limits = field(default_factory=Limits)
    slots: int | None = None
    """Programs judged at once; None for one per processor."""
    allow_weak: bool = False
    """Judge even if the sandbox's isolation is weak on this machine."""
    progress: Progress = field(default_factory=Progress)
    reference_runs: int = 2
    """How often each reference runs, to find tests that do not always pass."""

    def run(
        self, phase: str, tasks: Sequence[Task], programs: Sequence[Mapping[str, str]], early: bool
    ) -> list[RawResult]:
        """Judge each task's programs, which have names; `early` stops at the first failed check.

        Raises SandboxError like the judge.
        """
        pairs = zip(tasks, programs, strict=True)
        jobs = [Job(task, source) for task, sources in pairs for source in sources.values()]

        self.progress.phase(phase, len(jobs))
        judged = judge_all(
            jobs, self.limits, self.slots, early, lambda *_: self.progress.advance(),
            self.allow_weak, skip_refused=True,
        )  # fmt: skip
        executions = iter(judged)
        return [{name: next(executions) for name in sources} for sources in programs]

    async def search(self, tasks: Sequence[Task]) -> list[list[Finding]]:
        """What each task's box shows of its answer. Raises SandboxError where none is sound."""
        async with Judge(self.limits, self.slots, allow_weak=self.allow_weak) as judge:
            return [await _shown(judge, task) for task in tasks]


class Trial(NamedTuple):
    """What running a task's programs has shown."""

    task: Task
    """The task, which says what it needs where its reference has shown that."""
    findings: list[Finding]


def run_trials(tasks: Sequence[Task], runner: ProgramRunner) -> list[Trial]:
    """Try each task. Raises SandboxError like the judge."""
    proofs = runner.run(
        "running references",
        tasks,
        [_proofs(task, runner.reference_runs) for task in tasks],
        early=False,
    )
    seeded = [(task, raw, name) for task, raw in zip(tasks, proofs, strict=True) for name in ORDERS]
    variants = [replace(task, hash_seed=ORDERS[name]) for task, _, name in seeded]
    programs = [_ordered(*variant) for variant in seeded]
    others = runner.run("running references again", variants, programs, early=False)
    for (_, raw, _), other in zip(seeded, others, strict=True):
        raw.update(other)
    findings = [
        [*_from_proofs(task, raw, runner.limits), *_not_judged(raw.values())]
        for task, raw in zip(tasks, proofs, strict=True)
    ]
    flaws = [{finding.flaw for finding in of_task} for of_task in findings]
    open_tasks = [number for number, of_task in enumerate(flaws) if not BLOCKING & of_task]
    for number, stuck in _stuck_checkers(
        [(number, tasks[number]) for number in open_tasks], runner
    ):
        findings[number].append(stuck)
        open_tasks.remove(number)
    targets = [tasks[number] for number in open_tasks]
    programs = [lazy_programs(task) | attacks_on(task) for task in targets]
    attacks = runner.run("running attacks", targets, programs, early=True)
    searches = run_sync(runner.search(targets))
    for number, raw, places in zip(open_tasks, attacks, searches, strict=True):
        # what an attack makes a check do that cannot be judged is no fault of the task
        judged = {name: run for name, run in raw.items() if run.cause is not Cause.CARRY}
        findings[number] += [*_from_attacks(judged), *_not_judged(judged.values()), *places]
    learnt = map(_with_needs, tasks, proofs)
    return [Trial(task, of_task) for task, of_task in zip(learnt, findings, strict=True)]


def _stuck_checkers(
    tasks: Sequence[tuple[int, Task]], runner: ProgramRunner
) -> list[tuple[int, Finding]]:
    """A finding for each task, by its number, whose own checker gives no answer on what a program
    gives that always returns the first answer. Else only the task's reference would show it.

    Of calls, the checker ends the worker by a limit, which such a program never reaches itself.
    """
    targets = [
        (number, task, {"constant": constant})
        for number, task in tasks
        if task.checker and not checker_named(task.checker) and task.reference is None
        if (constant := lazy_programs(task).get("constant"))
    ]
    runs = runner.run(
        "running checkers", [task for _, task, _ in targets],
        [programs for *_, programs in targets], early=True,
    ) if targets else []  # fmt: skip
    stuck = (Cause.CHECKER, Cause.LIMIT, Cause.TASK)
    return [
        (number, Finding(Flaw.UNJUDGED, f"its checker gives no answer: {raw['constant'].detail}"))
        for (number, _, _), raw in zip(targets, runs, strict=True)
        if raw["constant"].cause in stuck
    ]


def _with_needs(task: Task, raw: RawResult) -> Task:
    """The task, which says that it needs objects where its reference passes only with them."""
    reference = raw.get("reference")
    if reference and reference.verdict is Verdict.PASS and reference.with_objects:
        return replace(task, needs=NEEDS_OBJECTS)
    return task


async def _shown(judge: Judge, task: Task) -> list[Finding]:
    try:
        place = await shown_answer(judge, task)
    except (MachineError, OSError) as error:
        return [Finding(Flaw.NOT_JUDGED, str(error))]
    return [Finding(Flaw.ANSWER_SHOWN, place)] if place else []


def _proofs(task: Task, runs: int) -> dict[str, str]:
    """The reference, again with other random seeds, and a program that only raises."""
    programs = {"raise": program_for(task, RAISE) if task.language == "python" else ""}
    if task.reference is not None:
        reseed = task.language == "python" and "__future__" not in task.reference
        programs["reference"] = task.reference
        for number in range(1, runs):  # each of another text, since verdicts are kept by it
            end = "\n" * (number - reseed)
            programs[f"{AGAIN} {number}"] = f"{RESEED * reseed}{task.reference}{end}"
    return programs


def _ordered(task: Task, raw: RawResult, name: str) -> dict[str, str]:
    """The reference by this name, where the order of a set may decide whether it passes."""
    decided = "reference" in raw and raw["reference"].verdict in DECIDED
    return {name: task.reference or ""} if decided and task.language == "python" else {}


def _flaky(runs: Sequence[Execution]) -> str:
    """The tests that hold in some of these runs only, where tests have names."""
    holds = Counter(test.name for run in runs for test in run.tests if test.holds)
    names = sorted({test.name for run in runs for test in run.tests})
    flaky = [name for name in names if 0 < holds[name] < sum(bool(run.tests) for run in runs)]
    return f" (flaky: {', '.join(flaky)})" if flaky else ""


def _other_name(task: Task) -> str:
    """Says that the reference defines another name than the entry point, as the start of a
    sentence; empty where it may have that, or where its code cannot be read.
    """
    if task.language != "python" or not task.entry_point or not task.reference:
        return ""
    name = re.split(r"\W", task.entry_point, maxsplit=1)[0]
    with suppress(*UNPARSABLE):
        if others := named_instead(name, syntax_tree(task.reference)):
            what = f"the entry point that the tests call is {name!r}"
            return f"{what}, but the reference defines {others}; rename one of them; "
    return ""


def _from_proofs(task: Task, raw: RawResult, limits: Limits) -> Iterable[Finding]:
    seeded = [raw[name] for name in ("reference", *ORDERS) if name in raw]
    runs = [run for name, run in raw.items() if name == "reference" or name.startswith(AGAIN)]
    failures = [run for run in runs if run.verdict is not Verdict.PASS and not _not_judged([run])]
    slowest = max((run.cpu_seconds for run in runs), default=0.0)
    unordered = [run for run in seeded if run.verdict in DECIDED[1:]]
    if unordered and any(run.verdict is Verdict.PASS for run in seeded):
        why = f"passes under {len(seeded) - len(unordered)} of {len(seeded)} hash seeds"
        yield Finding(Flaw.SET_ORDER, f"{why}, else {unordered[0].detail}")
    elif failures:
        first = failures[0]
        why = f"{first.verdict}: {first.detail}; {first.passed} of {first.total} checks pass"
        if not any(run.verdict is Verdict.PASS for run in runs):
            yield Finding(Flaw.REFERENCE_FAILS, f"{_other_name(task)}{why}")
        else:
            passed = len(runs) - len(failures)
            yield Finding(Flaw.FLAKY, f"passes {passed} of {len(runs)} times{_flaky(runs)}: {why}")
    elif slowest > SLOW_SHARE * limits.cpu_seconds:
        yield Finding(Flaw.SLOW_REFERENCE, f"{slowest:.2f} s of {limits.cpu_seconds:g} s")
    if any(run.forgeable for run in runs):
        yield Finding(Flaw.FORGEABLE, "to pay it in training, set judge.allow_forgeable = true")
    only_raises = raw["raise"]
    fixes = [test.holds for test in only_raises.tests if test.is_fix]
    if any(fixes) if fixes else only_raises.passed:
        flaw = Flaw.RAISE_PASSES if only_raises.verdict is Verdict.PASS else Flaw.WEAK_CHECKS
        share = f"{only_raises.passed} of {only_raises.total}"
        yield Finding(flaw, f"{share} checks pass for a program that only raises")


def _from_attacks(raw: RawResult) -> Iterable[Finding]:
    for name, flaw in LAZY.items():
        if name in raw and raw[name].verdict is Verdict.PASS:  # it forges nothing
            yield Finding(flaw, f"all {raw[name].total} checks pass")
    if passing := [name for name, run in raw.items() if run.proven and name not in LAZY]:
        yield Finding(Flaw.ATTACK_PASSES, f"passing: {', '.join(passing)}")


def _not_judged(runs: Iterable[Execution]) -> list[Finding]:
    """A finding for the first that was not judged, unless the reference fails, which is one."""
    for run in runs:
        if not run.is_judged and run.cause is not Cause.REFERENCE:
            by_machine = run.cause is Cause.MACHINE
            return [Finding(Flaw.NOT_JUDGED if by_machine else Flaw.UNJUDGED, run.detail)]
    return []
