"""Every algorithm with the same budget of completions, from one SFT checkpoint of the tiny policy,
on drills.

    nice python -m bench.algorithms --folder runs/algorithms
    nice python -m bench.algorithms --folder runs/algorithms --write

The first trains and measures what the folder does not hold yet, and prints the table; the second
also writes table and plot into docs/measured/algorithms.md. A cell is the mean over the seeds with
its 95 % interval (Student's t).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.tuning import tune

os.environ.update(tune())

from assay.config.load_settings import load_plan
from assay.evaluate.report import Evaluation, read_report
from assay.train.stages import run_plan

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PLOT = DOCS / "measured" / "algorithms.md", DOCS / "algorithms.png"
COMMON = """
name = "common"
trackers = ["jsonl"]
[tasks]
train = "drills:train"
[evaluate]
tasks = "drills:test"
samples = 8
max_tokens = 96
[rollout]
tasks_per_step = {tasks}
group_size = {group}
max_tokens = 96
[rewards]
tests = {{}}
"""
SFT = """
[stages.sft]
epochs = 6
algorithm.name = "sft"
dataset.batch_size = 64
optimizer = { lr = 3e-3, schedule = "cosine", warmup_steps = 10, weight_decay = 0.1 }
"""
RL = """
[stages.rl]
steps = {steps}
optimizer = {{ lr = {rate}, warmup_steps = 4 }}
algorithm = {{ {algorithm} }}
"""
CONTENDERS = {
    "reinforce": 'name = "reinforce"',
    "rloo": 'name = "rloo"',
    "grpo": 'name = "grpo"',
    "dr_grpo": 'name = "dr_grpo"',
    "dapo": 'name = "dapo", max_resamples = 1',
    "gspo": 'name = "gspo"',
    "cispo": 'name = "cispo"',
    "ppo, no critic": 'name = "ppo", critic = false',
    "ppo, critic": 'name = "ppo"',
    "dpo": 'name = "dpo"',
}
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
"""The 97.5 % point of Student's t for so many seeds."""


@dataclass(frozen=True)
class Result:
    """One algorithm over its seeds."""

    name: str
    passed: list[float]
    lengths: list[float]
    seconds: float


def learn(folder: Path, name: str, text: str, *words: str) -> Evaluation:
    """The last evaluation of a run, which is made unless the folder holds it."""
    file = folder / f"{name}.toml"
    file.write_text(text)
    run_plan(
        load_plan(file, ["--folder", str(folder), "--name", name, *words]),
    )
    return read_report(folder / name)[-1]


def contend(
    folder: Path, name: str, start: Path, common: str, arguments: argparse.Namespace
) -> Result:
    """Train an algorithm once for each seed. DAPO asks for half the tasks: it resamples groups."""
    began = time.perf_counter()
    algorithm = CONTENDERS[name]
    tasks = arguments.tasks // 2 if "max_resamples" in algorithm else arguments.tasks
    text = common.format(tasks=tasks, group=arguments.group) + RL.format(
        steps=arguments.steps, rate=arguments.rate, algorithm=algorithm
    )
    words = ("--policy.model", str(start), *arguments.more)
    run = re.sub(r"\W+", "_", name)
    evaluations = [
        learn(folder, f"{run}_{seed}", text, *words, "--seed", str(seed))
        for seed in range(arguments.seeds)
    ]
    seconds = (time.perf_counter() - began) / arguments.seeds
    result = Result(
        name,
        [evaluation.pass_at[1] for evaluation in evaluations],
        [evaluation.mean_length for evaluation in evaluations],
        seconds,
    )
    print(
        f"{name}: {cell(result.passed, 100)} %, {cell(result.lengths)} tokens, {seconds:.0f} s a"
        " seed",
        flush=True,
    )
    return result


def half(values: list[float]) -> float:
    """Half the width of the mean's interval."""
    return (
        STUDENT[len(values)] * statistics.stdev(values) / len(values) ** 0.5
        if len(values) > 1
        else 0.0
    )


def cell(values: list[float], scale: float = 1.0) -> str:
    return f"{scale * statistics.fmean(values):.1f} ± {scale * half(values):.1f}"


def table(start: Evaluation, results: list[Result], arguments: argparse.Namespace) -> str:
    budget = arguments.steps * arguments.tasks * arguments.group
    rows = [f"| SFT, where all start | {100 * start.pass_at[1]:.1f} | {start.mean_length:.1f} |"]
    rows += [
        f"| {result.name} | {cell(result.passed, 100)} | {cell(result.lengths)} |"
        for result in results
    ]
    about = (
        f"{arguments.steps} steps of {arguments.tasks} tasks with {arguments.group} completions"
        f" ({budget:,} in all), learning rate {arguments.rate:g}, {arguments.seeds} seeds,"
        f" {start.tasks} held-out tasks with {start.samples} completions each.\n\n"
    )
    return about + "| | pass@1, % | tokens |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def draw(start: Evaluation, results: list[Result], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.9 + 0.36 * len(results)), layout="constrained")
    panels: Any = figure.subplots(1, 2, sharey=True)
    for axes, label, before, values in (
        (
            panels[0],
            "pass@1, %",
            100 * start.pass_at[1],
            [[100 * value for value in result.passed] for result in results],
        ),
        (
            panels[1],
            "completion length, tokens",
            start.mean_length,
            [result.lengths for result in results],
        ),
    ):
        axes.axvline(
            before, color="#999999", linewidth=1, linestyle=":", label="after SFT, where all start"
        )
        for place, points in enumerate(values):
            axes.errorbar(
                statistics.fmean(points),
                place,
                xerr=half(points),
                fmt="o",
                color="#4269d0",
                capsize=3,
                label="mean of the seeds, with 95 % intervals",
            )
            axes.plot(
                points,
                [place] * len(points),
                "|",
                color="#e07b39",
                markersize=9,
                label="a seed",
            )
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(results)), [result.name for result in results])
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    one_of_each = dict(zip(labels, handles, strict=True))
    figure.legend(
        one_of_each.values(), one_of_each, loc="outside upper center", ncols=3, frameon=False
    )
    figure.savefig(file, dpi=130)


def write(start: Evaluation, results: list[Result], arguments: argparse.Namespace) -> None:
    draw(start, results, PLOT)
    begin, end = "<!-- measured: algorithms -->\n", "<!-- end -->"
    before, _, rest = PAGE.read_text().partition(begin)
    section = (
        f"\n{table(start, results, arguments)}\n![Pass@1 and length of every"
        f" algorithm](../{PLOT.name})\n\n"
    )
    PAGE.write_text(before + begin + section + end + rest.partition(end)[2])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/algorithms"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument(
        "--write", action="store_true", help="also write docs/measured/algorithms.md and its plot"
    )
    # Any other option is a setting of each run, such as --evaluate.limit 2.
    arguments, more = parser.parse_known_args()
    arguments.more = more
    arguments.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    common = COMMON.format(tasks=arguments.tasks, group=arguments.group)
    start = learn(arguments.folder, "start", common + SFT, *arguments.more)
    checkpoint = max((arguments.folder / "start/sft/checkpoints").iterdir())
    results = [
        contend(arguments.folder, name, checkpoint, COMMON, arguments) for name in CONTENDERS
    ]
    print(f"\n{table(start, results, arguments)}\n{(time.perf_counter() - began) / 60:.0f} minutes")
    if arguments.write:
        write(start, results, arguments)


if __name__ == "__main__":
    main()
