"""An evaluation's numbers, and its report: report.json for programs, report.md for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from assay.config.sections import EvaluateSettings
from assay.errors import DataError, MachineError
from assay.evaluate.counts import (
    GroupResult,
    Labels,
    TaskResult,
    by_label,
    by_task,
    counts_of,
    pass_at,
)
from assay.evaluate.grid import grid
from assay.evaluate.protocol import protocol
from assay.evaluate.run_summary import (
    HELD_OUT_NOTE,
    HeldOut,
    held_out_table,
    read_held_out,
    run_summary,
)
from assay.evaluate.samples import SampleRow
from assay.files import write_atomically
from assay.maths.estimates import Interval, pass_interval
from assay.types import Metrics, Verdict

if TYPE_CHECKING:
    from rich.table import Table

NOTE = (
    "Intervals are 95 % confidence intervals over tasks: they say what other tasks like these"
    " would give. A completion lost to the machine is left out and counted as lost, not as failed."
)

TERMINAL = ("stage", "tasks", "pass@1", "95 %", "tokens", "cut off")
"""Columns of the table on a terminal."""
SHORTEST_NAME = 14
"""Columns that a shortened name keeps."""
FEW = 12
"""Most values of a kind of label that a line on the terminal shows; report.md has all."""


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
    forgeable: int = 0
    """Passes that a program could have forged."""
    groups: Mapping[str, Mapping[str, GroupResult]] = field(default_factory=dict)
    """Tasks by each kind of label that tells them apart: `language`, `difficulty`, `month`."""


def label(evaluation: Evaluation) -> tuple[str, str, bool]:
    """What tells the evaluations of a report apart: name, task set, and whether it is greedy."""
    return evaluation.name, evaluation.tasks_spec, evaluation.temperature == 0


def metrics_of(evaluations: Sequence[Evaluation]) -> Metrics:
    """The metrics of one policy's evaluations; the first names no task set."""
    first, *others = evaluations
    more = {f"evaluate/pass@1/{_tasks_of(other)}": other.pass_at[1] for other in others}
    return {"evaluate/pass@1": first.pass_at[1], "evaluate/length": first.mean_length, **more}


def _tasks_of(evaluation: Evaluation) -> str:
    return (
        f"{evaluation.tasks_spec}, greedy" if evaluation.temperature == 0 else evaluation.tasks_spec
    )


def summarise(
    name: str, settings: EvaluateSettings, rows: Sequence[SampleRow | None], *, seconds: float,
    failure: str | None = None, labels: Mapping[str, Labels] = MappingProxyType({}),
) -> Evaluation:  # fmt: skip
    """The evaluation of one policy; a row is None if the machine failed it. `labels` are those of
    each task, by its id.

    Raises MachineError, with the first `failure`, if no row is left.
    """
    judged = [row for row in rows if row is not None]
    if not judged:
        why = f"; the first failure: {failure}" if failure else ""
        raise MachineError(
            f"evaluation {name!r} on {', '.join(settings.tasks)}: none of {len(rows)} completions"
            f" was judged{why}"
        )
    per_task = by_task((row.task_id, row.verdict == Verdict.PASS) for row in judged)
    counts = counts_of(per_task)
    verdicts = Counter(row.verdict for row in judged)
    return Evaluation(
        name=name,
        tasks_spec=", ".join(settings.tasks),
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
        forgeable=sum(row.verdict == Verdict.PASS and row.forgeable for row in judged),
        groups=by_label(per_task, labels),
    )


def write_report(
    folder: Path, evaluations: Sequence[Evaluation], setup: Mapping[str, Any] | None = None,
    setups: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[Path]:  # fmt: skip
    """Write report.json and report.md into `folder`, each whole or not at all; return their paths.

    Of two evaluations with the same label the later one counts: a stage that runs again replaces
    its row. `setup` says how the only evaluation was made, or `setups` by title how each was.
    """
    latest = list({label(result): result for result in evaluations}.values())
    files = [folder / "report.json", folder / "report.md"]
    report: dict[str, Any] = {"evaluations": [asdict(result) for result in latest]}
    report |= ({"setup": setup} if setup else {}) | ({"setups": dict(setups)} if setups else {})
    protocols = {title(result): setup or setups.get(title(result), {}) for result in latest}
    held_out = read_held_out(folder)
    report |= {"held_out": [asdict(row) for row in held_out]} if held_out else {}
    write_atomically(files[0], json.dumps(report, indent=1) + "\n")
    write_atomically(files[1], _markdown(latest, held_out, protocols, folder))
    return files


def read_report(folder: Path) -> list[Evaluation]:
    """The evaluations in `folder`'s report.json; empty if there is no report yet.

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


def title(evaluation: Evaluation) -> str:
    """`grpo/step_000015, drills:test`."""
    return f"{evaluation.name}, {_tasks_of(evaluation)}"


def axis_lines(evaluation: Evaluation) -> list[str]:
    """`compiles: pass@1 97.5%, pass@2 100.0%` for each axis."""
    return [
        f"{name}: " + ", ".join(f"pass@{k} {rate:.1%}" for k, rate in rates.items())
        for name, rates in evaluation.axes.items()
    ]


def group_lines(evaluation: Evaluation) -> list[str]:
    """`difficulty: easy 62.5% of 40, hard 10.0% of 20` for each kind of label with few values."""
    return [
        f"{kind}: " + ", ".join(f"{text} {g.pass_at_1:.1%} of {g.tasks}" for text, g in of.items())
        for kind, of in evaluation.groups.items()
        if len(of) <= FEW
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
    view = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(TERMINAL):
        view.add_column(title, justify="left" if index < 2 else "right", no_wrap=True)
    for row in cells[1:]:
        view.add_row(*(_last(cell, limit) for cell, limit in zip(row, widths, strict=True)))
    return view


def _last(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"…{text[1 - limit :]}"


def _results(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: the numbers."""
    ks = sorted({k for row in evaluations for k in row.pass_at} - {1})
    rates = ["pass@1", "95 %", *(f"pass@{k}" for k in ks)]
    rows = [
        [
            row.name,
            f"{_tasks_of(row)}, {row.tasks} x {row.samples}",
            f"{row.pass_at[1]:.1%}",
            f"{row.interval.low:.1%} to {row.interval.high:.1%}",
            *(f"{row.pass_at[k]:.1%}" if k in row.pass_at else "" for k in ks),
            f"{row.mean_length:.0f}",
            f"{row.truncated:.1%}",
            f"{row.temperature:g}",
            str(row.dropped),
        ]
        for row in evaluations
    ]
    return [["stage", "tasks", *rates, "tokens", "cut off", "temperature", "lost"], *rows]


def axes(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: pass@k of each axis."""
    ks = sorted({k for row in evaluations for rates in row.axes.values() for k in rates})
    rows = [
        [row.name, name, *(f"{rates[k]:.1%}" if k in rates else "" for k in ks)]
        for row in evaluations
        for name, rates in row.axes.items()
    ]
    return [["stage", "axis", *(f"pass@{k}" for k in ks)], *rows]


def _verdicts(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: completions by verdict."""
    present = [
        str(verdict) for verdict in Verdict if any(verdict in e.verdicts for e in evaluations)
    ]
    rows = [
        [row.name, row.tasks_spec, *(str(row.verdicts.get(v, 0)) for v in present)]
        for row in evaluations
    ]
    return [["stage", "tasks", *present], *rows]


def _groups(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: pass@1 of the tasks with each label."""
    rows = [
        [row.name, _tasks_of(row), f"{kind}: {text}", str(group.tasks),
         f"{group.pass_at_1:.1%}", f"{group.interval.low:.1%} to {group.interval.high:.1%}"]
        for row in evaluations
        for kind, groups in row.groups.items()
        for text, group in groups.items()
    ]  # fmt: skip
    return [["stage", "tasks", "label", "tasks with it", "pass@1", "95 %"], *rows]


def _markdown(
    evaluations: Sequence[Evaluation],
    held_out: Sequence[HeldOut],
    setups: Mapping[str, Mapping[str, Any]],
    folder: Path,
) -> str:
    parts = ["# Report"]
    if evaluations:
        parts += [grid(_results(evaluations)), NOTE, "## Verdicts", grid(_verdicts(evaluations))]
    if any(result.axes for result in evaluations):
        parts += ["## Axes", grid(axes(evaluations))]
    if any(result.groups for result in evaluations):
        parts += ["## By label", grid(_groups(evaluations))]
    if held_out:
        parts += ["## Checks held out of the reward", grid(held_out_table(held_out)), HELD_OUT_NOTE]
    for name, setup in setups.items():
        lines = [f"- {line}" for line in protocol(setup)]
        parts += [f"## Protocol of {name}", "\n".join(lines)] if lines else []
    return "\n\n".join([*parts, *run_summary(folder)]) + "\n"
