"""What an evaluation found, and the report of a run: report.json for programs, report.md for
people.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from assay.errors import DataError, MachineError
from assay.files import write_atomically
from assay.maths.estimates import Interval, mean_pass_at_k, pass_interval
from assay.types import Rollout, Verdict

if TYPE_CHECKING:
    from rich.table import Table

NOTE = (
    "Intervals hold 95 % and are over tasks, so they also say what other tasks like these would"
    " give. A rollout lost to the machine is left out and counted as lost, never as failed."
)

TERMINAL = ("stage", "tasks", "pass@1", "95 %", "tokens", "cut off")
"""Columns of the table in a terminal."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How one task fared."""

    id: str
    passed: int
    samples: int
    """Judged completions."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One policy measured on one task set."""

    name: str
    """The stage or the model: `base`, `sft`, `grpo`."""
    tasks_spec: str
    """The task set and split: `drills:test`."""
    tasks: int
    """Tasks with a judged completion."""
    samples: int
    """Completions asked for of each task."""
    temperature: float
    """Of sampling; 0 is greedy."""
    pass_at: Mapping[int, float]
    """pass@k for k = 1, 2, 4, ... up to the fewest judged completions of a task; in [0, 1]."""
    interval: Interval
    """Of pass@1, 95 %, over tasks."""
    mean_length: float
    """Completion tokens."""
    truncated: float
    """Share of completions that the token limit ended; in [0, 1]."""
    verdicts: Mapping[str, int]
    """Judged completions by verdict."""
    dropped: int
    """Rollouts lost to the machine: not in any number above."""
    seconds: float
    """Wall time of sampling and judging."""
    per_task: tuple[TaskResult, ...]
    """In the order in which the tasks came."""


def by_task(judged: Iterable[tuple[str, bool]]) -> tuple[TaskResult, ...]:
    """Sums up completions, each given as its task's id and whether it passed."""
    samples, passed = Counter[str](), Counter[str]()
    for task, one_passed in judged:
        samples[task] += 1
        passed[task] += one_passed
    return tuple(TaskResult(task, passed[task], samples[task]) for task in samples)


def summarise(
    name: str, tasks_spec: str, rollouts: Sequence[Rollout], *, temperature: float, seconds: float
) -> Evaluation:
    """Evaluate the rollouts of one policy on one task set, any number of them per task.

    Raises MachineError when there is no judged rollout to speak of.
    """
    judged = [rollout for rollout in rollouts if rollout.failure is None]
    if not judged:
        lost = f"; the first failure: {rollouts[0].failure}" if rollouts else ""
        raise MachineError(
            f"evaluation {name!r} on {tasks_spec} has no judged rollout of {len(rollouts)}{lost}"
        )
    per_task = by_task((rollout.task.id, rollout.passed) for rollout in judged)
    counts = [(task.samples, task.passed) for task in per_task]
    found = Counter(rollout.execution.verdict for rollout in judged if rollout.execution)
    return Evaluation(
        name=name,
        tasks_spec=tasks_spec,
        tasks=len(per_task),
        samples=max(Counter(rollout.task.id for rollout in rollouts).values()),
        temperature=temperature,
        pass_at={
            k: mean_pass_at_k(counts, k)
            for k in _powers_of_two(min(samples for samples, _ in counts))
        },
        interval=pass_interval(counts),
        mean_length=fmean(rollout.length for rollout in judged),
        truncated=fmean(rollout.turns[-1].completion.ended == "length" for rollout in judged),
        verdicts={str(verdict): found[verdict] for verdict in Verdict if found[verdict]},
        dropped=len(rollouts) - len(judged),
        seconds=seconds,
        per_task=per_task,
    )


def write_report(folder: Path, evaluations: Sequence[Evaluation]) -> list[Path]:
    """Write report.json and report.md into `folder`, each whole or not at all, and return their
    paths.

    Of two evaluations with the same name and task set the later one counts: a stage that is run
    again replaces its row.
    """
    latest = list({(one.name, one.tasks_spec): one for one in evaluations}.values())
    files = [folder / "report.json", folder / "report.md"]
    write_atomically(
        files[0], json.dumps({"evaluations": [asdict(one) for one in latest]}, indent=1) + "\n"
    )
    write_atomically(files[1], _markdown(latest))
    return files


def read_report(folder: Path) -> list[Evaluation]:
    """The evaluations in `folder`'s report.json; none where there is no report yet.

    Raises DataError when the file is not such a report.
    """
    file = folder / "report.json"
    if not file.exists():
        return []
    try:
        return TypeAdapter(list[Evaluation]).validate_python(
            json.loads(file.read_text())["evaluations"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} is not a report of assay; move it away and evaluate again"
        ) from error


def table(evaluations: Sequence[Evaluation]) -> Table:
    """The numbers that matter, for a terminal of 80 columns; report.md has them all."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(TERMINAL):
        shown.add_column(title, justify="left" if index < 2 else "right", no_wrap=True)
    header, *rows = _results(evaluations)
    for row in rows:
        found = dict(zip(header, row, strict=True))
        shown.add_row(*(found[title] for title in TERMINAL))
    return shown


def _powers_of_two(largest: int) -> list[int]:
    return [1 << exponent for exponent in range(largest.bit_length())]


def _results(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: the numbers."""
    ks = sorted({k for one in evaluations for k in one.pass_at} - {1})
    rates = ["pass@1", "95 %", *(f"pass@{k}" for k in ks)]
    rows = [
        [
            one.name,
            f"{one.tasks_spec}, {one.tasks} x {one.samples}",
            f"{one.pass_at[1]:.1%}",
            f"{one.interval.low:.1%} to {one.interval.high:.1%}",
            *(f"{one.pass_at[k]:.1%}" if k in one.pass_at else "" for k in ks),
            f"{one.mean_length:.0f}",
            f"{one.truncated:.1%}",
            f"{one.temperature:g}",
            str(one.dropped),
        ]
        for one in evaluations
    ]
    return [["stage", "tasks", *rates, "tokens", "cut off", "temperature", "lost"], *rows]


def _verdicts(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: completions by verdict."""
    seen = [
        str(verdict)
        for verdict in Verdict
        if any(str(verdict) in one.verdicts for one in evaluations)
    ]
    rows = [
        [one.name, one.tasks_spec, *(str(one.verdicts.get(v, 0)) for v in seen)]
        for one in evaluations
    ]
    return [["stage", "tasks", *seen], *rows]


def _markdown(evaluations: Sequence[Evaluation]) -> str:
    parts = [
        "# Report",
        _grid(_results(evaluations)),
        NOTE,
        "## Verdicts",
        _grid(_verdicts(evaluations)),
    ]
    return "\n\n".join(parts) + "\n"


def _grid(lines: Sequence[Sequence[str]]) -> str:
    rule = ["---" if index < 2 else "---:" for index in range(len(lines[0]))]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (lines[0], rule, *lines[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
