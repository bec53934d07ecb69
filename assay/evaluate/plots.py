"""Two plots of a run: its learning curve, and the results of its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from assay.evaluate.report import Evaluation, metrics_rows
from assay.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#4269d0", "#e07b39", "#3ca951", "#a463f2", "#c9447d", "#7a6a58")
FAINT = "#d5d5d5"


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric of metrics.jsonl, plotted against the step."""

    metric: str
    label: str
    scale: float = 1.0


PASS_RATE = Panel("reward/pass_rate", "rollouts that pass, %", 100.0)
LENGTH = Panel("rollout/length", "completion length, tokens")
LOSS = Panel("loss", "loss, nats per token")


Curve = list[tuple[float, float]]
"""The points of one stage in one panel: (step, value)."""


def learning_curve(metrics_files: Mapping[str, Path], file: Path) -> bool:
    """Plot pass rate, completion length and loss of all stages, one after another, into `file`.

    `metrics_files` maps the stages, in order, to their metrics.jsonl. The suffix of `file` chooses
    the image format. The loss is shown only without a pass rate: the loss of a policy gradient
    says nothing by itself.

    Returns whether there was anything to plot; if not, no file is written. Raises DataError for a
    file that cannot be read.
    """
    rows = {stage: metrics_rows(path) for stage, path in metrics_files.items()}
    curves = {stage: _curves(rows[stage]) for stage in rows}
    panels = [
        panel
        for panel in (PASS_RATE, LENGTH, LOSS)
        if any(panel in drawn for drawn in curves.values())
    ]
    if not panels:
        return False
    figure, grid = _figure(width=7.5, height=0.8 + 1.9 * len(panels), rows=len(panels))
    begin = 0.0
    for (stage, drawn), colour in zip(curves.items(), cycle(COLOURS)):
        end = begin + max((row["step"] for row in rows[stage]), default=0.0)
        for panel, axes in zip(panels, grid, strict=True):
            if panel in drawn:
                _draw_curve(axes, drawn[panel], begin, colour)
            if begin:
                axes.axvline(begin, color=FAINT, linewidth=1)
        above = grid[0].get_xaxis_transform()
        grid[0].text(
            (begin + end) / 2,
            1.04,
            stage,
            color=colour,
            ha="center",
            weight="bold",
            transform=above,
        )
        begin = end
    for panel, axes in zip(panels, grid, strict=True):
        axes.set_ylabel(panel.label)
        axes.set_ylim(bottom=0 if panel is not LOSS or axes.get_ylim()[0] > 0 else None)
    grid[-1].set_xlabel("step")
    grid[-1].set_xlim(0, begin)
    _save(figure, file)
    return True


def stages(evaluations: Sequence[Evaluation], file: Path) -> None:
    """Plot pass@1 with its 95 % interval and the mean completion length of each evaluation.

    Needs at least one evaluation.
    """
    figure, (passes, lengths) = _figure(
        width=max(4.2, 1.5 + 1.3 * len(evaluations)), height=5.6, rows=2
    )
    places = range(len(evaluations))
    sets = list(dict.fromkeys(one.tasks_spec for one in evaluations))
    colours = [COLOURS[sets.index(one.tasks_spec) % len(COLOURS)] for one in evaluations]
    rates = [100 * one.pass_at[1] for one in evaluations]
    below = [
        max(0.0, rate - 100 * one.interval.low)
        for rate, one in zip(rates, evaluations, strict=True)
    ]
    above = [
        max(0.0, 100 * one.interval.high - rate)
        for rate, one in zip(rates, evaluations, strict=True)
    ]
    passes.bar(places, rates, width=0.6, color=colours)
    passes.errorbar(
        places, rates, yerr=[below, above], fmt="none", ecolor="#333333", elinewidth=1.3, capsize=4
    )
    for place, rate, rise in zip(places, rates, above, strict=True):
        passes.annotate(
            f"{rate:.1f}", (place, rate + rise), (0, 3), textcoords="offset points", ha="center"
        )
    bars = lengths.bar(places, [one.mean_length for one in evaluations], width=0.6, color=colours)
    lengths.bar_label(bars, fmt="%.0f", padding=2)
    passes.set_ylabel("pass@1 and 95 % interval, %")
    passes.set_ylim(
        0, min(108.0, 1.2 * max(rate + rise for rate, rise in zip(rates, above, strict=True)) + 1)
    )
    lengths.set_ylabel("mean length, tokens")
    lengths.margins(y=0.15)
    lengths.set_xticks(
        places, [f"{one.name}\n{one.tasks_spec}\n{one.tasks} tasks" for one in evaluations]
    )
    lengths.set_xlim(-0.6, len(evaluations) - 0.4)
    for axes in (passes, lengths):
        axes.tick_params(axis="x", length=0)
    _save(figure, file)


def _curves(rows: Sequence[Mapping[str, float]]) -> dict[Panel, Curve]:
    curves: dict[Panel, Curve] = {}
    for panel in (PASS_RATE, LENGTH, LOSS):
        points = [
            (row["step"], panel.scale * row[panel.metric])
            for row in rows
            if row.get(panel.metric) is not None
        ]
        if points and not (panel is LOSS and PASS_RATE in curves):
            curves[panel] = points
    return curves


def _draw_curve(axes: Axes, curve: Curve, begin: float, colour: str) -> None:
    """Draw the points faintly, and over them a moving mean of a tenth of the stage."""
    steps, values = [begin + step for step, _ in curve], [value for _, value in curve]
    reach = len(steps) // 20
    means = [fmean(values[max(0, at - reach) : at + reach + 1]) for at in range(len(steps))]
    axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.35)
    axes.plot(steps, means, color=colour, linewidth=1.8, marker="o" if len(steps) == 1 else None)


def _figure(*, width: float, height: float, rows: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    grid = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
    figure.align_ylabels(grid)
    for axes in grid:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, grid


def _save(figure: Figure, file: Path) -> None:
    with replacing(file) as partial:
        figure.savefig(partial, format=file.suffix.removeprefix(".") or "png", dpi=160)
