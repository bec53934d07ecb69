"""An evaluation's numbers, and its report: report.json for programs, report.md for people."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
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
from assay.evaluate.grid import grid, terminal_table
from assay.evaluate.protocol import protocol
from assay.evaluate.run_summary import (
    HELD_OUT_NOTE,
    HeldOut,
    held_out_table,
    read_held_out,
    run_summary,
)
from assay.evaluate.sample_file import LostSample, SampleRow
from assay.files import write_atomically
from assay.maths.estimates import Interval, pass_interval
from assay.progress import counted
from assay.strict_json import strict_json
from assay.types import Metrics, Verdict

if TYPE_CHECKING:
    from rich.table import Table

NOTE = (
    "Intervals are 95 % confidence intervals over tasks: they say what other tasks like these"
    " would give. Rates are over judged completions: one that was lost to the machine is counted as"
    " lost, not as failed."
)

TERMINAL = ("stage", "tasks", "pass@1", "95 %", "reward", "lost", "tokens", "cut off")
"""Columns of the table on a terminal; `lost` where any completion is, `reward` where agents report
rewards."""
FEW = 12
"""Most values of a kind of label that a line on the terminal shows; report.md has all."""


LONGEST_TITLE = 5_000
"""Characters of a model's name, which may be a path, and of a task set."""


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
    """Completions lost to the machine; no other number counts them but `lost_by_task` and
    `bounds`."""
    unjudged: int = field(default=0, kw_only=True)
    """Completions of tasks that cannot be judged; no number above counts them either."""
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
    lost_by_task: Mapping[str, int] = field(default_factory=dict)
    """Completions that were lost of each task that lost any; without one that was judged, it is not
    in `per_task`."""
    failure: str = ""
    """Why the first of them was lost; empty where none was."""
    bounds: Interval | None = None
    """pass@1 of all tasks if every lost completion had failed, and if each had passed; None where
    none was lost."""
    reward: float | None = None
    """Mean over the tasks of the rewards that agents reported; None where one has checks."""

    @property
    def completions(self) -> int:
        """All, with those that were lost."""
        return sum(self.verdicts.values()) + self.dropped

    @property
    def lost(self) -> str:
        """`7 of 16`, or `0`: it stands beside each rate."""
        return f"{self.dropped} of {self.completions}" if self.dropped else "0"


def label(evaluation: Evaluation) -> tuple[str, str, bool]:
    """What tells the evaluations of a report apart: name, task set, and whether it is greedy."""
    return evaluation.name, evaluation.tasks_spec, evaluation.temperature == 0


def metrics_of(evaluations: Sequence[Evaluation]) -> Metrics:
    """The metrics of one policy's evaluations; the first names no task set."""
    first, *others = evaluations
    more = {f"evaluate/pass@1/{_tasks_of(other)}": other.pass_at[1] for other in others}
    lost = float(sum(evaluation.dropped for evaluation in evaluations))
    if first.reward is not None:
        more |= {"evaluate/reward": first.reward}
    more |= {
        f"evaluate/reward/{_tasks_of(other)}": other.reward
        for other in others
        if other.reward is not None
    }
    return {
        "evaluate/pass@1": first.pass_at[1], "evaluate/length": first.mean_length,
        "evaluate/lost": lost, **more,
    }  # fmt: skip


def lost_too_many(evaluation: Evaluation, max_lost: float) -> bool:
    """Whether more than a share `max_lost` of the completions was lost to the machine."""
    return evaluation.dropped > max_lost * evaluation.completions


def require_few_lost(evaluations: Sequence[Evaluation], max_lost: float) -> None:
    """Raises MachineError that names the evaluation which lost most, where one lost too many."""
    if any(lost_too_many(each, max_lost) for each in evaluations):
        worst = max(evaluations, key=lambda each: each.dropped / each.completions)
        why = f"; the first: {worst.failure}" if worst.failure else ""
        raise MachineError(
            f"{worst.lost} completions of {title(worst)} were lost to the machine, more than"
            f" max_lost = {max_lost:g} of them{why}; the others are saved: run the evaluation again"
            " for those that are lost"
        )


def _tasks_of(evaluation: Evaluation) -> str:
    return (
        f"{evaluation.tasks_spec}, greedy" if evaluation.temperature == 0 else evaluation.tasks_spec
    )


def summarise(
    name: str, settings: EvaluateSettings, rows: Sequence[SampleRow | LostSample], *,
    seconds: float, labels: Mapping[str, Labels] = MappingProxyType({}),
) -> Evaluation:  # fmt: skip
    """The evaluation of one policy. `labels` are those of each task, by its id.

    A rate is over judged completions: the mean over the tasks that have one. Raises MachineError,
    with the first failure, if no completion was judged; DataError where no task can be.
    """
    judged = [row for row in rows if isinstance(row, SampleRow)]
    lost = [row for row in rows if isinstance(row, LostSample) and not row.unjudged]
    unjudged = [row for row in rows if isinstance(row, LostSample) and row.unjudged]
    failure = next((row.failure for row in (*lost, *unjudged)), "")
    if not judged:
        why = f"; the first failure: {failure}" if failure else ""
        error = MachineError if lost or not unjudged else DataError
        raise error(
            f"evaluation {name!r} on {', '.join(settings.tasks)}: none of {len(rows)} completions"
            f" was judged{why}"
        )
    per_task = by_task((row.task_id, row.verdict == Verdict.PASS) for row in judged)
    counts = counts_of(per_task)
    verdicts = Counter(row.verdict for row in judged)
    lost_by_task = dict(Counter(row.task_id for row in lost))
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
        dropped=len(lost),
        unjudged=len(unjudged),
        seconds=seconds,
        per_task=per_task,
        axes={
            name: pass_at(counts_of(by_task((row.task_id, row.axes[name]) for row in judged)))
            for name in settings.axes
        },
        forgeable=sum(row.verdict == Verdict.PASS and row.forgeable for row in judged),
        groups=by_label(per_task, labels, lost_by_task),
        lost_by_task=lost_by_task,
        failure=failure,
        bounds=_bounds(per_task, lost_by_task) if lost else None,
        reward=_mean_reward(judged),
    )


def _mean_reward(judged: Sequence[SampleRow]) -> float | None:
    """The mean over tasks of the rewards that agents reported; None where one of them is not known:
    it has checks, or its rows are of an older assay.
    """
    rewards = defaultdict[str, list[float]](list)
    for row in judged:
        if row.reported is None:
            return None
        rewards[row.task_id].append(row.reported)
    return fmean(map(fmean, rewards.values())) if rewards else None


def _bounds(per_task: Sequence[TaskResult], lost: Mapping[str, int]) -> Interval:
    """pass@1 of all tasks, were all lost completions wrong, and were all right."""
    results = {task.id: task for task in per_task}
    results = {id: results.get(id, TaskResult(id, 0, 0)) for id in results.keys() | lost}
    counts = [(task.passed, task.samples, lost.get(id, 0)) for id, task in results.items()]
    return Interval(
        fmean(passed / (judged + missing) for passed, judged, missing in counts),
        fmean((passed + missing) / (judged + missing) for passed, judged, missing in counts),
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
    write_atomically(files[0], strict_json(report, indent=1) + "\n")
    write_atomically(files[1], _markdown(latest, held_out, protocols, folder))
    return files


def read_report(folder: Path) -> list[Evaluation]:
    """The evaluations in `folder`'s report.json; empty if there is no report yet.

    Raises DataError when the file is not such a report.
    """
    if not (table := _read_table(folder)):
        return []
    try:
        evaluations = TypeAdapter(list[Evaluation]).validate_python(table["evaluations"])
        for evaluation in evaluations:
            _require_rates(evaluation)
    except (ValueError, KeyError, TypeError) as error:
        raise _no_report(folder) from error
    return evaluations


def read_setups(folder: Path) -> dict[str, dict[str, Any]]:
    """How each evaluation in `folder`'s report.json was made, by its title; those of which the
    report does not say it have none. Raises DataError as `read_report`.
    """
    table = _read_table(folder)
    setups, shared = table.get("setups", {}), table.get("setup", {})
    try:
        for setup in (*setups.values(), shared):
            if not isinstance(setup.get("model", {}), dict):
                raise TypeError("model is no table")
    except (AttributeError, TypeError) as error:
        raise _no_report(folder) from error
    names = [title(evaluation) for evaluation in read_report(folder)]
    return {name: setup for name in names if (setup := setups.get(name) or shared)}


def _read_table(folder: Path) -> dict[str, Any]:
    file = folder / "report.json"
    if not os.path.lexists(file):
        return {}
    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise DataError(f"{file} is no file; move it away")
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"{file} cannot be read ({why}); move it away") from error
    except (ValueError, RecursionError) as error:
        raise _no_report(folder) from error
    if not isinstance(table, dict) or "evaluations" not in table:
        raise _no_report(folder)
    return table


def _require_rates(evaluation: Evaluation) -> None:
    """Raises ValueError where a number is missing that every evaluation has, or a name is longer
    than any.
    """
    json.dumps(asdict(evaluation), allow_nan=False)
    counts = [(task.passed, task.samples) for task in evaluation.per_task]
    if 1 not in evaluation.pass_at or not counts:
        raise ValueError("there is no pass@1")
    if any(not 0 <= passed <= samples or not samples for passed, samples in counts):
        raise ValueError("a task has no completions, or more that pass than it has")
    if len(title(evaluation)) > LONGEST_TITLE:
        raise ValueError("its name is none")


def _no_report(folder: Path) -> DataError:
    return DataError(
        f"{folder / 'report.json'} is not a report of assay; move it away and evaluate again"
    )


def title(evaluation: Evaluation) -> str:
    """`grpo/step_000015, drills:test`."""
    return f"{evaluation.name}, {_tasks_of(evaluation)}"


def axis_lines(evaluation: Evaluation) -> list[str]:
    """`compiles: pass@1 97.5%, pass@2 100.0%` for each axis."""
    lost = f"; {evaluation.lost} lost" * bool(evaluation.dropped)
    return [
        f"{name}: " + ", ".join(f"pass@{k} {rate:.1%}" for k, rate in rates.items()) + lost
        for name, rates in evaluation.axes.items()
    ]


def group_lines(evaluation: Evaluation) -> list[str]:
    """`difficulty: easy 62.5% of 40, hard 10.0% of 20` for each kind of label with few values."""
    return [
        f"{kind}: "
        + ", ".join(
            f"{text} {g.pass_at_1:.1%} of {g.tasks}" + f" ({g.lost} lost)" * bool(g.lost)
            for text, g in of.items()
        )
        for kind, of in evaluation.groups.items()
        if len(of) <= FEW
    ]


def table(evaluations: Sequence[Evaluation], width: int | None = None) -> Table:
    """The main numbers, in `width` columns (default: the terminal's); report.md has them all.

    Long names of models and task sets lose their beginning; numbers are never shortened.
    """
    header, *rows = _results(evaluations)
    lossless = not any(evaluation.dropped for evaluation in evaluations)
    columns = [
        title for title in TERMINAL if title in header and not (title == "lost" and lossless)
    ]
    cells = [[row[header.index(title)] for title in columns] for row in rows]
    return terminal_table([columns, *cells], names=2, width=width)


def _results(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: the numbers."""
    ks = sorted({k for row in evaluations for k in row.pass_at} - {1})
    rates = ["pass@1", "95 %", *(f"pass@{k}" for k in ks)]
    any_unjudged = any(row.unjudged for row in evaluations)
    any_reward = any(row.reward is not None for row in evaluations)
    rows = [
        [
            row.name,
            f"{_tasks_of(row)}, {row.tasks} x {row.samples}",
            f"{row.pass_at[1]:.1%}",
            f"{row.interval.low:.1%} to {row.interval.high:.1%}",
            *(f"{row.pass_at[k]:.1%}" if k in row.pass_at else "" for k in ks),
            *(["" if row.reward is None else f"{row.reward:.3f}"] if any_reward else []),
            row.lost,
            f"{row.mean_length:.0f}",
            f"{row.truncated:.1%}",
            f"{row.temperature:g}",
            *([str(row.unjudged)] if any_unjudged else []),
        ]
        for row in evaluations
    ]
    rates += ["reward"] * any_reward
    header = ["stage", "tasks", *rates, "lost", "tokens", "cut off", "temperature"]
    return [header + ["unjudged"] * any_unjudged, *rows]


def lost_lines(evaluations: Sequence[Evaluation]) -> list[str]:
    """A line on each evaluation that lost completions: why, and between which rates pass@1 lies."""
    return [
        f"{title(row)}: {row.lost} completions, of {counted(len(row.lost_by_task), 'task')}, were"
        f" lost; each task should have {row.samples}. pass@1 is {row.bounds.low:.1%} if all of them"
        f" had failed, and {row.bounds.high:.1%} if all had passed. The first was lost"
        f" because: {row.failure}"
        for row in evaluations
        if row.bounds
    ]


def axes(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: pass@k of each axis."""
    ks = sorted({k for row in evaluations for rates in row.axes.values() for k in rates})
    rows = [
        [row.name, name, *(f"{rates[k]:.1%}" if k in rates else "" for k in ks), row.lost]
        for row in evaluations
        for name, rates in row.axes.items()
    ]
    return [["stage", "axis", *(f"pass@{k}" for k in ks), "lost"], *rows]


def _verdicts(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: completions by verdict."""
    present = [
        str(verdict) for verdict in Verdict if any(verdict in e.verdicts for e in evaluations)
    ]
    rows = [
        [row.name, row.tasks_spec, *(str(row.verdicts.get(v, 0)) for v in present), row.lost]
        for row in evaluations
    ]
    return [["stage", "tasks", *present, "lost"], *rows]


def _groups(evaluations: Sequence[Evaluation]) -> list[list[str]]:
    """Header and rows: pass@1 of the tasks with each label."""
    rows = [
        [row.name, _tasks_of(row), f"{kind}: {text}", str(group.tasks),
         f"{group.pass_at_1:.1%}", f"{group.interval.low:.1%} to {group.interval.high:.1%}",
         str(group.lost)]
        for row in evaluations
        for kind, groups in row.groups.items()
        for text, group in groups.items()
    ]  # fmt: skip
    return [["stage", "tasks", "label", "tasks with it", "pass@1", "95 %", "lost"], *rows]


def _markdown(
    evaluations: Sequence[Evaluation],
    held_out: Sequence[HeldOut],
    setups: Mapping[str, Mapping[str, Any]],
    folder: Path,
) -> str:
    parts = ["# Report"]
    if evaluations:
        parts += [grid(_results(evaluations)), NOTE, *lost_lines(evaluations)]
        parts += ["## Verdicts", grid(_verdicts(evaluations))]
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
