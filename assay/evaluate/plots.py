"""Two plots of a run: its learning curves, and the results of its stages."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from assay.evaluate.report import Evaluation
from assay.evaluate.run_summary import metrics_rows
from assay.files import replacing
from assay.progress import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#4269d0", "#e07b39", "#3ca951", "#a463f2", "#c9447d", "#7a6a58")
FAINT = "#d5d5d5"
PANELS = {
    "passes, %": r"(reward/pass_rate|evaluate/pass@1.*)",
    "reward terms": r"reward/(?!mean$|std$|pass_rate$|pass@k$).*(?<!_std)",
    "length, tokens": r"(rollout|evaluate)/length",
    "loss, nats per token": r"loss",
}
"""The panels from top to bottom: each one's label, and the metrics in it."""
NAMES = {"reward/pass_rate": "training rollouts", "rollout/length": "training rollouts",
         "evaluate/pass@1": "evaluation", "evaluate/length": "evaluation"}  # fmt: skip
"""What a metric is called in the legend, where its own name is not enough."""
MEANINGS = {"training rollouts": COLOURS[0], "evaluation": COLOURS[1], "loss": "#333333"}
"""The colour of what all panels have in common; other metrics take one of the other COLOURS each,
the same in all stages."""
Curve = list[tuple[float, float]]
"""The points of one metric of one stage: (step, value)."""


def learning_curve(metrics_files: Mapping[str, Path], file: Path) -> bool:
    """Plot the PANELS of all stages side by side into `file`, with the name of its folder, which is
    the run's. Stages share the axes of a panel, but for the loss: SFT's is not DPO's.

    `metrics_files` maps the stages, in order, to their metrics.jsonl. The suffix of `file` chooses
    the image format. The loss is shown only without a pass rate: the loss of a policy gradient
    says nothing by itself.

    Returns whether there was anything to plot; if not, no file is written. Raises DataError for a
    file that cannot be read.
    """
    stages = {stage: curves(metrics_rows(path)) for stage, path in metrics_files.items()}
    stages = {stage: panels for stage, panels in stages.items() if panels}
    labels = [label for label in PANELS if any(label in panels for panels in stages.values())]
    if not labels:
        return False
    figure, grid = _figure(7.5 * max(1, len(stages) / 2), 1.1 + 1.9 * len(labels),
                           len(labels), len(stages))  # fmt: skip
    figure.suptitle(file.absolute().parent.name)
    colours = _colours(panels[label] for label in labels for panels in stages.values()
                       if label in panels)  # fmt: skip
    for column, (stage, panels) in enumerate(stages.items()):
        grid[0][column].set_title(stage, weight="bold")
        steps = [step for lines in panels.values() for curve in lines.values() for step, _ in curve]
        margin = 0.03 * max(steps) + 0.5
        for row, label in zip(grid, labels, strict=True):
            if label in panels:
                _draw_panel(row[column], label, panels[label], colours)
                row[column].set_xlim(min(steps) - margin, max(steps) + margin)
            else:
                row[column].axis("off")
        lowest = max(at for at, label in enumerate(labels) if label in panels)
        grid[lowest][column].set_xlabel("step")
    for row, label in zip(grid, labels, strict=True):
        columns = zip(row, stages.values(), strict=True)
        present = [axes for axes, panels in columns if label in panels]
        if label != "loss, nats per token":
            low, high = zip(*(axes.get_ylim() for axes in present), strict=True)
            for axes in present:
                axes.set_ylim(min(low), max(high))
    _save(figure, file)
    return True


def curves(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Curve]]:
    """The panels of a stage that has learned, by their labels: the curve of each metric."""
    names = dict.fromkeys(name for row in rows for name in row)
    if names.keys().isdisjoint(("reward/pass_rate", "loss")):
        return {}
    panels: dict[str, dict[str, Curve]] = {}
    for label, pattern in PANELS.items():
        scale = 100 if label.endswith("%") else 1
        for name in (name for name in names if re.fullmatch(pattern, name)):
            points = [(row["step"], scale * row[name]) for row in rows if row.get(name) is not None]
            if points and (name != "loss" or "reward/pass_rate" not in names):
                panels.setdefault(label, {})[name] = points
    return panels


def stages(evaluations: Sequence[Evaluation], file: Path) -> None:
    """Plot pass@1 with its 95 % interval and the mean completion length of each evaluation.

    Needs at least one evaluation.
    """
    count = len(evaluations)
    figure, ((passes,), (lengths,)) = _figure(max(4.2, 1.5 + 1.3 * count), 5.9, 2, 1)
    figure.suptitle(file.absolute().parent.name)
    sets = list(dict.fromkeys(result.tasks_spec for result in evaluations))
    colours = [COLOURS[sets.index(result.tasks_spec) % len(COLOURS)] for result in evaluations]
    rates = [100 * result.pass_at[1] for result in evaluations]
    below = [max(0.0, 100 * (result.pass_at[1] - result.interval.low)) for result in evaluations]
    above = [max(0.0, 100 * (result.interval.high - result.pass_at[1])) for result in evaluations]
    error: dict[str, Any] = {"yerr": [below, above], "ecolor": "#333333", "capsize": 4}
    bars = passes.bar(range(count), rates, width=0.6, color=colours, **error)
    passes.bar_label(bars, fmt="%.1f", padding=3)
    passes.set_ylabel("pass@1 and 95 % interval, %")
    tokens = [result.mean_length for result in evaluations]
    bars = lengths.bar(range(count), tokens, width=0.6, color=colours)
    lengths.bar_label(bars, fmt="%.0f", padding=2)
    lengths.set_ylabel("mean length, tokens")
    names = [
        f"{result.name}\n{result.tasks_spec}\n{counted(result.tasks, 'task')}"
        + f"\n{result.lost} lost" * bool(result.dropped)
        for result in evaluations
    ]
    passes.set_xticks([])
    lengths.set_xticks(range(count), names)
    for axes in (passes, lengths):
        axes.margins(y=0.15)
        axes.set(xlim=(-0.6, count - 0.4), ylim=(0, None))
    _save(figure, file)


def _colours(panels: Iterable[Mapping[str, Curve]]) -> dict[str, str]:
    """The colour of each metric: that of its meaning, or else one of those that are left."""
    names = dict.fromkeys(name for lines in panels for name in lines)
    others = cycle(colour for colour in COLOURS if colour not in MEANINGS.values())
    return {name: MEANINGS.get(_title(name)) or next(others) for name in names}


def _title(name: str) -> str:
    return NAMES.get(name, name.partition("/")[2] or name)


def _draw_panel(
    axes: Axes, label: str, lines: Mapping[str, Curve], colours: Mapping[str, str]
) -> None:
    """Draw evaluations as points; other curves faintly, and over them a moving mean of a tenth of
    the stage. One or two values are points without a line, which would claim more.
    """
    for name, curve in lines.items():
        steps, values = zip(*curve, strict=True)
        few = len(steps) <= 2
        reach, marker = len(steps) // 20, "o" if "evaluate" in name or few else None
        if reach and not marker:
            axes.plot(steps, values, color=colours[name], linewidth=0.8, alpha=0.35)
            values = tuple(
                fmean(values[max(0, at - reach) : at + reach + 1]) for at in range(len(steps))
            )
        axes.plot(steps, values, color=colours[name], linewidth=1.8, marker=marker,
                  linestyle="none" if few else "-", label=_title(name))  # fmt: skip
    axes.set_ylabel(label)
    axes.legend(fontsize="small", edgecolor=FAINT)  # a frame, lest its points be taken for values
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))


def _figure(
    width: float, height: float, rows: int, columns: int
) -> tuple[Figure, list[list[Axes]]]:
    # It warns of a home folder that cannot be written, and keeps its cache elsewhere by itself.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, grid.tolist()


def _save(figure: Figure, file: Path) -> None:
    with replacing(file) as partial:
        figure.savefig(partial, format=file.suffix.removeprefix(".") or "png", dpi=160)
