"""One turn against three on drills: the same start, tasks and completions; pass rate on longer
compositions.

    nice python -m bench.environments repair
    nice python -m bench.environments python_tool --seeds 2 --write

The first trains and evaluates what the folder does not have yet, and prints the table. The second
also writes the table and the plot into docs/measured/models.md. Both arms learn the same
demonstrations, equally often. The budget is counted in completions: every reply that the policy
generates for training. A cell is the mean over the seeds with its 95 % interval (Student's t).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path

from assay.tuning import tune

os.environ.update(tune())

from assay.config.evaluation import EvaluationRun
from assay.config.sections import EvaluateSettings, PolicySettings
from assay.environments import visible
from assay.evaluate import evaluate
from assay.evaluate.report import Evaluation
from assay.judge import Job, Judge
from assay.tasks import load
from assay.types import Task, Verdict
from bench.algorithms import SFT, cell, half, learn

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "measured" / "models.md"
TRIES = 3
COMMON = """
name = "common"
trackers = ["jsonl"]
[tasks]
train = "drills:more"
[environment]
name = "{environment}"
[policy.tiny]
context = 768
[evaluate]
tasks = "drills:longer"
samples = 4
max_tokens = {tokens}
[rollout]
tasks_per_step = {tasks}
group_size = 8
max_tokens = {tokens}
score_turns = {score_turns}
"""
RL = """
[stages.rl]
steps = {steps}
evaluate.every = {every}
algorithm.name = "grpo"
optimizer = {{ lr = 1e-4, warmup_steps = 2 }}
"""
MORE = "".join(
    f"""
[stages.{stage}]
epochs = {epochs}
algorithm.name = "sft"
dataset.batch_size = 64
optimizer = {{ lr = 2e-3, schedule = "cosine", warmup_steps = 10, weight_decay = 0.1 }}
"""
    for stage, epochs in (("more", 3), ("once_more", 4))
)


@dataclass(frozen=True)
class Subject:
    """An environment with three turns, compared with single turns."""

    first: str
    """The environment of the first SFT, which both arms share."""
    more: str
    """Further SFT of each arm in its own environment; empty if they share all of it."""
    common: dict[str, object]
    arms: dict[str, tuple[str, int, int]]
    """Environment, steps, and steps between evaluations. Three turns make as many completions in
    fewer steps."""


SUBJECTS = {
    "repair": Subject(
        "repair", "", {"tokens": 96, "tasks": 32, "score_turns": "true"},
        {"one turn": ("single_turn", 80, 20), "three turns": ("repair", 40, 10)},
    ),
    "python_tool": Subject(
        "single_turn", MORE, {"tokens": 128, "tasks": 16, "score_turns": "false"},
        {"one turn": ("single_turn", 24, 8), "three turns": ("python_tool", 12, 4)},
    ),
}  # fmt: skip
COLOURS = {"one turn": "#e07b39", "three turns": "#4269d0"}


@dataclass(frozen=True)
class Curve:
    """Pass rate over the completions learned from, and the policy at the end measured both ways,
    for one seed.
    """

    completions: list[int]
    passed: list[float]
    alone: Evaluation
    """In single turns."""
    in_three: Evaluation
    """In three turns."""
    tried: float
    """The first of three independent single turns that passes the visible checks, or the last."""


def learned(folder: Path, name: str, text: str, *words: str) -> Path:
    """The checkpoint that a run ends with."""
    learn(folder, name, text, *words)
    return max(
        (folder / name).glob("*/checkpoints/*"), key=lambda checkpoint: checkpoint.stat().st_mtime
    )


def train(
    folder: Path,
    subject: Subject,
    arm: str,
    seed: int,
    start: Path,
    limit: int,
    more: Sequence[str],
) -> Curve:
    """One arm with one seed."""
    environment, steps, every = subject.arms[arm]
    tokens = int(str(subject.common["tokens"]))
    text = COMMON.format(environment=environment, **subject.common) + RL.format(
        steps=steps, every=every
    )
    run_folder = folder / f"{environment}_{seed}"
    if subject.more:
        start = learned(
            folder,
            f"start_{environment}",
            COMMON.format(environment=environment, **subject.common) + MORE,
            "--policy.model",
            str(start),
            *more,
        )
    words = ["--policy.model", str(start), "--seed", str(seed), *more]
    learn(folder, run_folder.name, text, *words)
    before = evaluated(folder / "start", start, environment, 0, tokens, limit)
    completions, passed = [0], [100 * before.pass_at[1]]
    rows = [
        json.loads(line) for line in (run_folder / "rl" / "metrics.jsonl").read_text().splitlines()
    ]
    so_far = 0.0
    for row in rows:
        if "evaluate/pass@1" in row:
            completions.append(round(so_far))
            passed.append(100 * row["evaluate/pass@1"])
        else:
            so_far += 8 * int(str(subject.common["tasks"])) * row.get("rollout/turns", 1)
    model = max((run_folder / "rl" / "checkpoints").iterdir())
    alone, three = (
        evaluated(run_folder, model, way, seed, tokens, limit)
        for way, _, _ in subject.arms.values()
    )
    return Curve(completions, passed, alone, three, tried(run_folder / "single_turn"))


def evaluated(
    folder: Path, model: Path, environment: str, seed: int, tokens: int, limit: int
) -> Evaluation:
    """A checkpoint on the longer compositions in one environment."""
    settings = EvaluateSettings(tasks="drills:longer", samples=8, max_tokens=tokens, limit=limit)
    policy, place = PolicySettings(model=str(model)), folder / environment
    run = EvaluationRun(
        policy=policy, evaluate=settings, environment={"name": environment}, seed=seed
    )
    return evaluate(run, folder=place).evaluations[0]


def tried(folder: Path) -> float:
    """Pass rate of TRIES single turns of which the first that passes the visible checks counts,
    over all draws.
    """
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    names = {row["task_id"] for row in rows}
    tasks = {task.id: task for task in load("drills:longer") if task.id in names}
    passes = asyncio.run(
        _pass_visible([(tasks[row["task_id"]], row["solution"] or None) for row in rows])
    )
    rates = []
    for task in tasks:
        pairs = [
            (good, row["verdict"] == Verdict.PASS)
            for row, good in zip(rows, passes, strict=True)
            if row["task_id"] == task
        ]
        visible, passed = sum(good for good, _ in pairs), sum(right for _, right in pairs)
        none = comb(len(pairs) - visible, TRIES) / comb(len(pairs), TRIES)
        rates.append((1 - none) * passed / visible if visible else 0.0)
    return 100 * statistics.fmean(rates)


async def _pass_visible(programs: Sequence[tuple[Task, str | None]]) -> list[bool]:
    """Whether each passes its task's visible checks."""
    async with Judge(stop_early=False) as judge:
        jobs = [
            Job(replace(task, checks=tuple(visible(task))), program) for task, program in programs
        ]
        return [execution.verdict is Verdict.PASS for execution in await judge.all(jobs)]


def table(curves: dict[str, list[Curve]], arguments: argparse.Namespace) -> str:
    rows = []
    for arm, of_arm in curves.items():
        spent = statistics.fmean(curve.completions[-1] for curve in of_arm)
        measured = [
            cell([curve.alone.pass_at[1] for curve in of_arm], 100),
            cell([curve.tried for curve in of_arm]),
            cell([curve.in_three.pass_at[1] for curve in of_arm], 100),
            f"{statistics.fmean(curve.in_three.mean_length for curve in of_arm):.0f}",
        ]
        rows.append(f"| {arm} | {spent:,.0f} | {' | '.join(measured)} |")
    head = "| learned in | completions | one turn | first of three | three turns | tokens there |"
    return (
        f"{arguments.seeds} seeds.\n\n{head}\n| --- | --- | --- | --- | --- | --- |\n"
        + "\n".join(rows)
        + "\n"
    )


def draw(curves: dict[str, list[Curve]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for arm, of_arm in curves.items():
        spent = [
            statistics.fmean(values)
            for values in zip(*(curve.completions for curve in of_arm), strict=True)
        ]
        points = [list(values) for values in zip(*(curve.passed for curve in of_arm), strict=True)]
        middle = [statistics.fmean(values) for values in points]
        axes.plot(
            spent,
            middle,
            color=COLOURS[arm],
            marker="o",
            markersize=4,
            label=f"learns and answers in {arm}",
        )
        for curve in of_arm:
            axes.plot(curve.completions, curve.passed, color=COLOURS[arm], linewidth=0.7, alpha=0.5)
        if len(of_arm) > 2:
            low = [mean - half(values) for mean, values in zip(middle, points, strict=True)]
            high = [mean + half(values) for mean, values in zip(middle, points, strict=True)]
            axes.fill_between(spent, low, high, color=COLOURS[arm], alpha=0.12, linewidth=0)
    axes.set_xlabel("completions learned from")
    axes.set_ylabel("pass@1 on longer compositions, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    figure.savefig(file, dpi=130)


def write(curves: dict[str, list[Curve]], arguments: argparse.Namespace) -> None:
    image = DOCS / f"environments_{arguments.environment}.png"
    draw(curves, image)
    begin, end = f"<!-- measured: {arguments.environment} -->\n", "<!-- end -->"
    before, _, rest = PAGE.read_text().partition(begin)
    section = f"\n{table(curves, arguments)}\n![Pass rate over completions](../{image.name})\n\n"
    PAGE.write_text(before + begin + section + end + rest.partition(end)[2])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("environment", choices=SUBJECTS)
    parser.add_argument("--folder", type=Path, default=Path("runs/environments"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--write", action="store_true", help="also write docs/measured/models.md and its plot"
    )
    parser.add_argument("--steps", type=int, help="of each arm, in place of its own")
    parser.add_argument("--limit", type=int, default=0, help="of evaluated tasks; 0 is all")
    # Any other option is a setting of each run, such as --evaluate.limit 2.
    arguments, more = parser.parse_known_args()
    subject = SUBJECTS[arguments.environment]
    if steps := arguments.steps:
        arms = {arm: (name, steps, steps) for arm, (name, _, _) in subject.arms.items()}
        subject = replace(subject, arms=arms)
    folder = arguments.folder / arguments.environment
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    start = learned(
        folder, "start", COMMON.format(environment=subject.first, **subject.common) + SFT, *more
    )
    curves: dict[str, list[Curve]] = {arm: [] for arm in subject.arms}
    for seed in range(arguments.seeds):
        for arm, of_arm in curves.items():
            of_arm.append(train(folder, subject, arm, seed, start, arguments.limit, more))
            print(
                f"{arm}, seed {seed}: {of_arm[-1].passed}, {time.perf_counter() - began:.0f} s",
                flush=True,
            )
    print(f"\n{table(curves, arguments)}\n{(time.perf_counter() - began) / 60:.0f} minutes")
    if arguments.write:
        write(curves, arguments)


if __name__ == "__main__":
    main()
