"""How long a recipe takes: a few steps of each stage are timed, and the whole run is extrapolated.

    python -m bench.recipe recipes/laptop.toml [--steps 6] [--limit 32] [--evaluate.samples 1]

The first step of a stage is left out where there are others. An evaluation is extrapolated from
`--limit` tasks to all. A stage whose length is in epochs is timed, but not extrapolated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.config.load_settings import load_plan
from assay.config.sections import RunSettings
from assay.tasks import load
from bench.figures import Figure, add_json, write_figures

NAME = "timed"


def train(config: Path, folder: Path, settings: Sequence[str]) -> Path:
    """Run `assay train` to its end; the folder of the run."""
    words = [sys.executable, "-m", "assay", "train", str(config), "--folder", str(folder)]
    subprocess.run([*words, "--name", NAME, *settings], check=True, stdout=sys.stderr)
    return folder / NAME


def step_rows(run: Path, stage: str) -> list[dict[str, Any]]:
    """The metrics of each step of a stage."""
    lines = (run / stage / "metrics.jsonl").read_text().splitlines()
    return [row for line in lines if "loss" in (row := json.loads(line))]


def seconds_of_steps(rows: Sequence[dict[str, Any]]) -> list[float]:
    """From the end of one step to that of the next, so the first is left out; of a single step what
    its parts took.
    """
    if len(rows) > 1:
        return [after["time"] - row["time"] for row, after in itertools.pairwise(rows)]
    parts = ("time/generate", "time/judge", "time/learn")
    return [sum(rows[0].get(part, 0.0) for part in parts)]


def of_stage(settings: RunSettings, rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """Seconds of a step, completions a second, and minutes of all the stage's steps."""
    stage, step = settings.stage, statistics.median(seconds_of_steps(rows))
    figures = [Figure(f"{stage}: a step", step, "s")]
    if any("time/generate" in row for row in rows):
        completions = settings.rollout.tasks_per_step * settings.rollout.group_size
        figures.append(Figure(f"{stage}: samples", completions / step, "samples/s"))
    if settings.steps:
        name = f"{stage}: its {settings.steps} steps, extrapolated from {len(rows)}"
        figures.append(Figure(name, settings.steps * step / 60, "min"))
    return figures


def of_evaluations(run: Path) -> list[Figure]:
    """Minutes of all evaluations together, extrapolated to all their tasks."""
    evaluations = json.loads((run / "report.json").read_text())["evaluations"]
    if not evaluations:
        return []
    seconds = sum(
        row["seconds"] * len(load(row["tasks_spec"])) / row["tasks"] for row in evaluations
    )
    tasks = evaluations[0]["tasks"]
    name = f"{len(evaluations)} evaluations, extrapolated from {tasks} tasks each"
    return [Figure(name, seconds / 60, "min")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--steps", type=int, default=6, help="of each stage")
    parser.add_argument("--limit", type=int, default=32, help="tasks of each evaluation")
    add_json(parser)
    # Any other option is a setting of the run.
    arguments, more = parser.parse_known_args()
    stages = load_plan(arguments.recipe, more).stages
    limits = [f"--stages.{stage.stage}.steps={arguments.steps}" for stage in stages]
    with TemporaryDirectory() as folder:
        words = [*more, *limits, f"--evaluate.limit={arguments.limit}"]
        run = train(arguments.recipe, Path(folder), words)
        figures = [
            figure for stage in stages for figure in of_stage(stage, step_rows(run, stage.stage))
        ]
        figures += of_evaluations(run)
    write_figures(arguments.json, figures)
    for figure in figures:
        print(f"{figure.name}: {figure}")


if __name__ == "__main__":
    main()
