"""An evaluation's numbers, and its report: report.json for programs, report.md for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from assay.config.sections import EvaluateSettings
from assay.errors import DataError, MachineError
from assay.evaluate.samples import SampleRow
from assay.files import write_atomically
from assay.maths.estimates import Interval, mean_pass_at_k, pass_interval
from assay.types import Verdict

if TYPE_CHECKING:
    from rich.table import Table

NOTE = (
    "Intervals are 95 % confidence intervals over tasks: they say what other tasks like these"
    " would give. A completion lost to the machine is left out and counted as lost, not as failed."
)

HELD_OUT_NOTE = (
    "Rollouts of training, over the last 8 steps of a stage. The gap is the share of programs that"
    " pass all checks that are paid, and fail one that is not."
)
COUNT, STEPS = "held_out/rollouts/", 8
"""How the metric of a family's rollouts begins, and the steps that are summed up."""
TERMINAL = ("stage", "tasks", "pass@1", "95 %", "tokens", "cut off")
"""Columns of the table on a terminal."""
SHORTEST_NAME = 14
"""Columns that a shortened name keeps."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task."""

    id: str
    passed: int
    samples: int
    """Judged completions."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How many rollouts of a family pass the paid checks, and how many those held out too."""

    stage: str
    family: str
    """The task set and the language: `drills/python`."""
    rollouts: int
    """Of the stage's last STEPS steps; the shares are of these."""
    paid: float
    """Share that passes the checks that the reward sees."""
    passed: float
    """Share that also passes the checks held out of it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one policy on one task set."""

    name: str
    """The stage or the model: `base`, `sft`, `grpo`."""
    tasks_spec: str
    """The task set and split: `drills:test`."""
    tasks: int
    """Tasks with a judged completion."""
    samples: int
    """Completions wanted of each task."""
    temperature: float
    """Sampling temperature; 0 is greedy decoding."""
    pass_at: Mapping[int, float]
    """pass@k for k = 1, 2, 4, ... up to the fewest judged completions of a task; in [0, 1]."""
    interval: Interval
    """95 % confidence interval of pass@1, over tasks."""
    mean_length: float
    """Mean number of completion tokens."""
    truncated: float
    """Share of completions that the token limit ended, in [0, 1]."""
    verdicts: Mapping[str, int]
    """Judged completions by verdict."""
    dropped: int
    """Completions lost to the machine; no number above counts them."""
    seconds: float
    """Wall time of sampling and judging, in the process that finished the evaluation."""
    per_task: tuple[TaskResult, ...]
    """In the order of the tasks."""
    axes: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """pass@k of each further axis, such as `compiles`."""
    on_trust: int = 0
    """Passes in which the checks took the program's word for something."""


def by_task(judged: Iterable[tuple[str, bool]]) -> tuple[TaskResult, ...]:
    """Sum up completions, each given as its task's id and whether it passed."""
    samples, passed = Counter[str](), Counter[str]()
    for task, one_passed in judged:
        samples[task] += 1
        passed[task] += one_passed
    return tuple(TaskResult(task, passed[task], samples[task]) for task in samples)


def counts_of(tasks: Iterable[TaskResult]) -> list[tuple[int, int]]:
    """Samples and passes of each task."""
    return [(task.samples, task.passed) for task in tasks]


def pass_at(counts: Sequence[tuple[int, int]]) -> dict[int, float]:
    """pass@k for k = 1, 2, 4, ... up to the fewest samples of a task."""
    fewest = min(samples for samples, _ in counts)
    return {k: mean_pass_at_k(counts, k) for k in _powers_of_two(fewest)}


def summarise(
    name: str, settings: EvaluateSettings, rows: Sequence[SampleRow | None], *, seconds: float,
    failure: str | None = None,
) -> Evaluation:  # fmt: skip
    """The evaluation of one policy; a row is None if the machine failed it.

    Raises MachineError, with the first `failure`, if no row is left.
    """
    judged = [row for row in rows if row is not None]
    if not judged:
        why = f"; the first failure: {failure}" if failure else ""
        raise MachineError(
            f"evaluation {name!r} on {settings.tasks}: none of {len(rows)} completions was judged"
            f"{why}"
        )
    per_task = by_task((row.task_id, row.verdict == Verdict.PASS) for row in judged)
    counts = counts_of(per_task)
    verdicts = Counter(row.verdict for row in judged)
    return Evaluation(
        name=name,
        tasks_spec=settings.tasks,
        tasks=len(per_task),
        samples=settings.samples,
        temperature=settings.temperature,
        pass_at=pass_at(counts),
        interval=pass_interval(counts),
        mean_length=fmean(row.tokens for row in judged),
        truncated=fmean(row.truncated for row in judged),
        verdicts={str(verdict): verdicts[verdict] for verdict in Verdict if verdicts[verdict]},
        dropped=len(rows) - len(judged),
        seconds=seconds,
        per_task=per_task,
        axes={
            name: pass_at(counts_of(by_task((row.task_id, row.axes[name]) for row in judged)))
            for name in settings.axes
        },
        on_trust=sum(row.verdict == Verdict.PASS and bool(row.trusted) for row in judged),
    )


def write_report(
    folder: Path, evaluations: Sequence[Evaluation], setup: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write report.json and report.md into `folder`, each whole or not at all; return their paths.

    Of two evaluations with the same name and task set the later one counts: a stage that runs
    again replaces its row. `setup` says how an evaluation by itself was made.
    """
    latest = list({(one.name, one.tasks_spec): one for one in evaluations}.values())
    files = [folder / "report.json", folder / "report.md"]
    made: dict[str, Any] = {"evaluations": [asdict(one) for one in latest]}
    made |= {"setup": setup} if setup else {}
    held_out = read_held_out(folder)
    made |= {"held_out": [asdict(one) for one in held_out]} if held_out else {}
    write_atomically(files[0], json.dumps(made, indent=1) + "\n")
    write_atomically(files[1], _markdown(latest, held_out))
    return files


def read_held_out(folder: Path) -> list[HeldOut]:
    """What the last steps of the run in `folder` say of checks held out of the reward, for each
    stage that tracks them in its metrics.jsonl.
    """
    found: list[HeldOut] = []
    for file in sorted(folder.glob("*/metrics.jsonl"), key=lambda one: one.stat().st_mtime):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        names = dict.fromkeys(name for row in rows for name in row if name.startswith(COUNT))
        for family in [name.removeprefix(COUNT) for name in names]:
            last = [row for row in rows if COUNT + family in row][-STEPS:]
            total = sum(row[COUNT + family] for row in last)
            paid, passed = (
                sum(row[COUNT + family] * row[f"held_out/{rate}/{family}"] for row in last) / total
                for rate in ("paid_pass_rate", "pass_rate")
            )
            found.append(HeldOut(file.parent.name, family, round(total), paid, passed))
    return found


def read_report(folder: Path) -> list[Evaluation]:
    """The evaluations in `folder`'s report.json; empty if there is no report yet.

    Raises DataError when the file is not such a report.
    """
    file = folder / "report.json"
    if not file.exists():
        return []
    try:
        made = json.loads(file.read_text())["evaluations"]
        return TypeAdapter(list[Evaluation]).validate_python(made)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file} is not a report of assay; move it away and evaluate again"
        ) from error


def axis_lines(one: Evaluation) -> list[str]:
    """`compiles: pass@1 97.5%, pass@2 100.0%` for each axis."""
    return [
        f"{name}: " + ", ".join(f"pass@{k} {rate:.1%}" for k, rate in rates.items())
        for name, rates in one.axes.items()
    ]


def table(evaluations: Sequence[Evaluation], width: int | None = None) -> Table:
    """The main numbers, in `width` columns (default: the terminal's); report.md has them all.

    Long names of models and task sets lose their beginning; numbers are never shortened.
    """
    from rich.console import Console
    from rich.table import Table

    header, *rows = _results(evaluations)
    cells = [TERMINAL, *([row[header.index(title)] for title in TERMINAL] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - (width or Console().width)
    for name_column in (0, 1):
        cut = min(max(0, excess), max(0, widths[name_column] - SHORTEST_NAME))
        widths[name_column] -= cut
        excess -= cut
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(TERMINAL):
        shown.add_column(title, justify="left" if index < 2 else "right", no_wrap=True)
    for row in cells[1:]:
        shown.add_row(*(_last(cell, limit) for cell, limit in zip(row, widths, strict=True)))
    return shown


def _last(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"…{text[1 - limit :]}"


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


def axes(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: pass@k of each axis."""
    ks = sorted({k for one in evaluations for rates in one.axes.values() for k in rates})
    rows = [
        [one.name, name, *(f"{rates[k]:.1%}" if k in rates else "" for k in ks)]
        for one in evaluations
        for name, rates in one.axes.items()
    ]
    return [["stage", "axis", *(f"pass@{k}" for k in ks)], *rows]


def _verdicts(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: completions by verdict."""
    present = [
        str(verdict) for verdict in Verdict if any(verdict in e.verdicts for e in evaluations)
    ]
    rows = [
        [one.name, one.tasks_spec, *(str(one.verdicts.get(v, 0)) for v in present)]
        for one in evaluations
    ]
    return [["stage", "tasks", *present], *rows]


def _held_out(held_out: Sequence[HeldOut]) -> list[list[str]]:
    """Header and rows: how many rollouts pass with and without the held-out checks."""
    header = ["stage", "family", "rollouts", "pass paid checks", "and held-out checks", "gap"]
    return [header] + [
        [one.stage, one.family, str(one.rollouts)]
        + [f"{share:.1%}" for share in (one.paid, one.passed, one.paid - one.passed)]
        for one in held_out
    ]


def _markdown(evaluations: Sequence[Evaluation], held_out: Sequence[HeldOut]) -> str:
    parts = ["# Report"]
    if evaluations:
        parts += [_grid(_results(evaluations)), NOTE, "## Verdicts", _grid(_verdicts(evaluations))]
    if any(one.axes for one in evaluations):
        parts += ["## Axes", _grid(axes(evaluations))]
    if held_out:
        parts += ["## Checks held out of the reward", _grid(_held_out(held_out)), HELD_OUT_NOTE]
    return "\n\n".join(parts) + "\n"


def _grid(lines: Sequence[Sequence[str]]) -> str:
    rule = ["---" if index < 2 else "---:" for index in range(len(lines[0]))]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (lines[0], rule, *lines[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
