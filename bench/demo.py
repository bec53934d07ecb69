"""The demo over several seeds: pass@1 and completion length of each stage, mean and range.

    python -m bench.demo --seeds 5
    python -m bench.demo --seeds 3 --recipe recipes/verilog.toml --plot docs/verilog.png

A plot has the pass rate of training over the steps of the last stage, and pass@1 before and after
it. The seeds run one after another, each as `assay train RECIPE` with its own name. A run that was
cut off goes on. The last line is the time of a run, start to table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.toml"
STAGES = ("base", "sft", "grpo")
SMOOTHED = 5


@dataclass(frozen=True)
class Row:
    """One stage over all seeds."""

    stage: str
    passed: Sequence[float]
    """pass@1 by seed, in percent."""
    tokens: Sequence[float]
    """Mean completion length by seed."""


def run(seed: int, folder: Path, recipe: Path, more: Sequence[str]) -> tuple[dict[str, Any], float]:
    """The evaluations of one run by stage, and its seconds."""
    name = f"seed-{seed}"
    settings = ["--seed", str(seed), "--name", name, "--folder", str(folder.resolve()), *more]
    start = time.perf_counter()
    command = [sys.executable, "-m", "assay", "train", str(recipe), *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    report = json.loads((folder / name / "report.json").read_text())
    evaluations = {evaluation["name"]: evaluation for evaluation in report["evaluations"]}
    return evaluations, time.perf_counter() - start


def table(rows: Sequence[Row]) -> str:
    """A table in Markdown: mean, and the smallest and the largest."""
    lines = ["| stage | pass@1, mean | lowest to highest | tokens |", "| --- | --- | --- | --- |"]
    for row in rows:
        mean, low, high = statistics.mean(row.passed), min(row.passed), max(row.passed)
        tokens = statistics.mean(row.tokens)
        lines.append(f"| {row.stage} | {mean:.1f} % | {low:.1f} to {high:.1f} % | {tokens:.0f} |")
    return "\n".join(lines)


def draw(folders: Sequence[Path], runs: Sequence[dict[str, Any]], file: Path) -> None:
    """The share of training rollouts that pass over the steps of the last stage, a line for each
    seed (mean of SMOOTHED steps); and pass@1 on held-out tasks before and after, with intervals, in
    another colour.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    for folder, evaluations in zip(folders, runs, strict=True):
        lines = (folder / STAGES[-1] / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        rates = [100 * row["reward/pass_rate"] for row in rows if "reward/pass_rate" in row]
        means = [statistics.mean(rates[max(0, n - SMOOTHED) : n]) for n in range(1, len(rates) + 1)]
        axes.plot(
            range(1, len(means) + 1), means, color="#a9b8e8", linewidth=1.2,
            label=f"training rollouts, mean of {SMOOTHED} steps; a line for each seed",
        )  # fmt: skip
        for step, stage in ((0, STAGES[-2]), (len(rates), STAGES[-1])):
            rate, interval = evaluations[stage]["pass_at"]["1"], evaluations[stage]["interval"]
            bars = [[100 * (rate - interval["low"])], [100 * (interval["high"] - rate)]]
            axes.errorbar(
                [step], [100 * rate], bars, fmt="o", markersize=4, color="#e07b39",
                label="held-out tasks, with 95 % intervals",
            )  # fmt: skip
    axes.set_xlabel("steps after SFT")
    axes.set_ylabel("passes, %")
    axes.set_ylim(0, 100)
    handles, labels = axes.get_legend_handles_labels()
    one_of_each = dict(zip(labels, handles, strict=True))
    axes.legend(
        one_of_each.values(), one_of_each, loc="lower center", bbox_to_anchor=(0.5, 1),
        fontsize="small", frameon=False,
    )  # fmt: skip
    figure.suptitle(f"{folders[0].parent.name}, {len(folders)} seeds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--folder", type=Path, help="default: runs/RECIPE-seeds")
    parser.add_argument("--plot", type=Path)
    # Any other option is a setting of each run, such as --evaluate.limit 2.
    arguments, more = parser.parse_known_args()
    recipe, seeds = arguments.recipe, range(arguments.seeds)
    folder = arguments.folder or Path("runs") / f"{recipe.stem}-seeds"
    runs, seconds = zip(*(run(seed, folder, recipe, more) for seed in seeds), strict=True)
    rows = [
        Row(
            stage,
            [100 * evaluations[stage]["pass_at"]["1"] for evaluations in runs],
            [evaluations[stage]["mean_length"] for evaluations in runs],
        )
        for stage in STAGES
    ]
    for row in rows:
        print(row.stage, *(f"{rate:.1f}" for rate in row.passed))
    print(table(rows))
    if arguments.plot:
        draw([folder / f"seed-{seed}" for seed in seeds], runs, arguments.plot)
    print(f"seconds of a run: {min(seconds):.0f} to {max(seconds):.0f}")


if __name__ == "__main__":
    main()
