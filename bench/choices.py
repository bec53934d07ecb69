"""Screen, resampling and each choice of tasks with the same budget of completions: where each of
them begins to pay.

    python -m bench.choices --folder runs/choices
    python -m bench.choices --folder runs/choices --minutes 5 --visits 15 --only uniform retire
    python -m bench.choices --folder runs/choices --minutes 0 --write

The demo's policy learns drills by SFT once; then every run trains it by GRPO on a sample of drills,
half of which are longer than any that SFT showed it. Completions of a screen and resampled ones
count, so a run has as many steps as the budget leaves. A task's visits are the budget over the
tasks of the sample, in groups: few visits are many tasks. A run that has ended is not run again, so
the grid may run in pieces; with `--minutes 0` only the tables are printed, and `--write` puts them
into docs/measured/choosing-tasks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from assay.tuning import tune

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.update(tune())

from assay.callbacks import StageHistory, callback
from assay.config.load_settings import load_plan
from assay.errors import SettingsError
from assay.evaluate.report import Evaluation, read_report
from assay.files import saved_table, write_atomically
from assay.maths.estimates import student_t
from assay.tasks import load, task_set
from assay.trackers.jsonl import read_steps
from assay.train.stages import run_plan
from assay.types import Metrics, Task

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "choosing-tasks.md"
BEGIN, END = "<!-- measured: choices -->\n", "<!-- end of choices -->"
COMMON = """
trackers = ["jsonl"]
judge.slots = 1
rollout = {{ tasks_per_step = {tasks}, group_size = {group}, max_tokens = 96 }}
rewards.tests = {{}}
"""
START = """
tasks.train = "drills:train"
[stages.sft]
epochs = {epochs}
algorithm.name = "sft"
dataset.batch_size = 64
optimizer = {{ lr = 3e-3, schedule = "cosine", warmup_steps = 10, weight_decay = 0.1 }}
[stages.grpo]
steps = {before}
algorithm.name = "grpo"
optimizer = {{ lr = {rate}, warmup_steps = 4 }}
evaluate = {{ tasks = ["mixed:test", "mixed:train-200-0"], samples = 8, max_tokens = 96{few} }}
"""
RL = """
seed = {seed}
steps = {most}
algorithm.name = "grpo"
optimizer = {{ lr = {rate}, warmup_steps = 4 }}
tasks.train = "mixed:train-{pool}-{seed}"
evaluate = {{ tasks = "mixed:test", samples = 8, max_tokens = 96{few} }}
callbacks.spend = {{ completions = {budget}, tasks = {tasks}, group = {group} }}
"""
SCREEN = "tasks.screen = {{ {screen} }}\n"
VARIANTS = {
    "uniform": "",
    "screen": SCREEN,
    "resample": 'algorithm.zero_variance_groups = "resample"\nalgorithm.max_resamples = 2\n',
    "retire": 'tasks.choice.name = "retire"\n',
    "target_rate": 'tasks.choice.name = "target_rate"\n',
    "curriculum": 'tasks.choice = {{ name = "curriculum", by = "level" }}\n',
    "screen+target_rate": SCREEN + 'tasks.choice.name = "target_rate"\n',
}


@task_set
def mixed(split: str = "test") -> Iterator[Task]:
    """Yields drills of all lengths: `train-COUNT-SEED` is a sample, half of it of the split `more`;
    `test` is held out. The tag `level` counts the stages before the last.
    """
    if split == "test":
        tasks = [*load("drills:test"), *load("drills:longer")]
    else:
        if not re.fullmatch(r"train-\d+-\d+", split):
            raise SettingsError(f"{split!r} is no split: write test or train-COUNT-SEED")
        count, seed = map(int, split.split("-")[1:])
        draw = random.Random(seed)
        longer = draw.sample(load("drills:more"), count // 2)
        tasks = longer + draw.sample(load("drills:train"), count - len(longer))
    for task in tasks:
        yield replace(task, tags={"level": str(task.prompt.count(","))})


@callback
def spend(history: StageHistory, *, completions: int, tasks: int, group: int) -> str:
    """Ends the stage where the budget of completions does not hold another step's."""
    spent = screened(history.folder) + group * groups_of(history.steps)
    if spent + tasks * group <= completions:
        return ""
    return f"{spent} of {completions} completions are spent"


def screened(stage: Path) -> int:
    """The completions of the stage's screen; 0 where there is none."""
    results = saved_table(stage / "screen" / "screen.json").get("results", ())
    return sum(int(result["samples"]) for result in results)


def groups_of(steps: Sequence[Metrics]) -> int:
    """All groups that were sampled, those that others replaced among them."""
    return sum(int(step.get("rollout/groups", 0)) for step in steps)


@dataclass(frozen=True)
class Outcome:
    """What one run gave."""

    variant: str
    visits: float
    seed: int
    passed: float
    """The mean pass rate of held-out tasks, in [0, 1]."""
    flat: float
    """The share of sampled groups whose rewards are all equal."""
    steps: int
    completions: int
    """Of the screen and of all groups."""
    screened: int
    seconds: float
    """Wall time, with the evaluation."""


def settings(arguments: argparse.Namespace, text: str, **values: float) -> str:
    """The settings of a run as TOML."""
    few = f", limit = {arguments.limit}" if arguments.limit else ""
    return (COMMON + text).format(**vars(arguments), few=few, **values)


def write_settings(file: Path, text: str) -> Path:
    """Writes a run's settings. Raises SystemExit where the folder has a run with others."""
    if file.exists() and file.read_text() != text:
        raise SystemExit(f"{file} has other settings; choose another --folder")
    file.write_text(text)
    return file


def finish(file: Path, *words: str) -> Evaluation:
    """The evaluation on held-out tasks of a run, which is made unless its folder holds it. A run
    that was cut off goes on.
    """
    plan = load_plan(file, ["--folder", str(file.parent), "--name", file.stem, *words])
    if not run_plan(plan).finished:
        raise SystemExit(f"{file.stem} was stopped; the same command goes on")
    evaluations = read_report(file.with_suffix(""))
    return next(each for each in evaluations if each.tasks_spec == "mixed:test")


def train(variant: str, visits: float, seed: int, arguments: argparse.Namespace) -> Outcome:
    """One run of the grid, or its result where the folder has that."""
    file = result_file(arguments.folder, variant, visits, seed)
    pool = pool_size(visits, arguments)
    most = arguments.budget // (arguments.tasks * arguments.group)
    text = settings(arguments, RL + VARIANTS[variant], pool=pool, seed=seed, most=most)
    toml = write_settings(file.with_suffix(".toml"), text)
    if stored := saved_table(file):
        return Outcome(**stored)
    began = time.perf_counter()
    start = str(checkpoint(arguments.folder / "start"))
    evaluation = finish(toml, "--policy.model", start)
    seconds = time.perf_counter() - began
    stage = arguments.folder / file.stem / "grpo"
    steps = [row for row in read_steps(stage / "metrics.jsonl") if "rollout/groups" in row]
    flat = sum(row["rollout/zero_variance_groups"] * row["rollout/groups"] for row in steps)
    before, groups = screened(stage), groups_of(steps)
    outcome = Outcome(
        variant, visits, seed, evaluation.pass_at[1], flat / groups, len(steps),
        before + arguments.group * groups, before, seconds,
    )  # fmt: skip
    write_atomically(file, json.dumps(asdict(outcome)))
    print(
        f"{file.stem}: {100 * outcome.passed:.1f} %, {100 * outcome.flat:.0f} % flat,"
        f" {len(steps)} steps, {outcome.completions} completions, {before} of a screen,"
        f" {seconds:.0f} s",
        flush=True,
    )
    return outcome


def result_file(folder: Path, variant: str, visits: float, seed: int) -> Path:
    return folder / f"{variant.replace('+', '_')}-{visits:g}-{seed}.json"


def pool_size(visits: float, arguments: argparse.Namespace) -> int:
    """How many tasks have so many visits each, if the budget goes to all alike."""
    tasks: int = round(arguments.budget / (arguments.group * visits))
    return tasks


def checkpoint(run: Path) -> Path:
    """The newest one of the stage that all runs start from."""
    return max((run / "grpo" / "checkpoints").iterdir())


def mean_and_half(values: Sequence[float]) -> str:
    """The mean with its 95 % interval by Student's t."""
    mean, count = statistics.fmean(values), len(values)
    if count == 1:
        return f"{mean:.1f}"
    half = student_t(0.95, count - 1) * statistics.stdev(values) / count**0.5
    return f"{mean:.1f} ± {half:.1f}"


def table(outcomes: Sequence[Outcome]) -> str:
    """A row for each variant. Differences to uniform are of the same seeds."""
    by_variant = {name: {each.seed: each for each in outcomes if each.variant == name}
                  for name in VARIANTS}  # fmt: skip
    uniform = by_variant["uniform"]
    heads = ("", "seeds", "steps", "screened", "flat groups, %", "held-out pass rate, %",
             "difference to uniform, points", "seconds")  # fmt: skip
    rows = [" | ".join(heads), " | ".join(["---"] * len(heads))]
    for name, by_seed in by_variant.items():
        runs = list(by_seed.values())
        pairs = [(each, uniform[seed]) for seed, each in by_seed.items() if seed in uniform]
        differences = [100 * (each.passed - other.passed) for each, other in pairs]
        if runs:
            cells = (
                name, str(len(runs)), f"{statistics.fmean(run.steps for run in runs):.0f}",
                f"{statistics.fmean(run.screened for run in runs):.0f}",
                f"{100 * statistics.fmean(run.flat for run in runs):.0f}",
                mean_and_half([100 * run.passed for run in runs]),
                mean_and_half(differences) if differences and name != "uniform" else "",
                f"{statistics.median(run.seconds for run in runs):.0f}",
            )  # fmt: skip
            rows.append(" | ".join(cells))
    return "".join(f"| {row} |\n" for row in rows)


def histogram(evaluation: Evaluation) -> str:
    """How many tasks pass how often."""
    tasks = Counter(task.passed for task in evaluation.per_task)
    counts = range(evaluation.samples + 1)
    rows = [
        [f"passes of {evaluation.samples}", *map(str, counts)],
        ["---"] * (len(counts) + 1),
        ["tasks", *(str(tasks[count]) for count in counts)],
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def page(
    start: Sequence[Evaluation], outcomes: Sequence[Outcome], arguments: argparse.Namespace
) -> str:
    test, sample = start
    passed = f"{100 * test.pass_at[1]:.1f} %"
    parts = [
        f"{arguments.budget:,} completions a run, {arguments.tasks} tasks with {arguments.group}"
        f" completions a step, learning rate {arguments.rate:g}, {test.tasks} held-out tasks with"
        f" {test.samples} completions each. At the start the held-out pass rate is"
        f" {passed}, and of {sample.tasks} training tasks:\n\n{histogram(sample)}"
    ]
    for visits in arguments.visits:
        of_visits = [each for each in outcomes if each.visits == visits]
        if of_visits:
            count = pool_size(visits, arguments)
            parts.append(f"{visits:g} visits a task, {count} tasks:\n\n{table(of_visits)}")
    return "\n".join(parts)


def run_grid(arguments: argparse.Namespace) -> list[Outcome]:
    """The outcomes of all runs that have ended; none starts after so many minutes."""
    outcomes, began = list[Outcome](), time.monotonic()
    names = arguments.only or list(VARIANTS)
    for seed, visits, variant in product(range(arguments.seeds), arguments.visits, names):
        is_late = time.monotonic() - began >= 60 * arguments.minutes
        if not is_late or result_file(arguments.folder, variant, visits, seed).exists():
            outcomes.append(train(variant, visits, seed, arguments))
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/choices"))
    parser.add_argument("--only", nargs="+", choices=VARIANTS)
    parser.add_argument("--visits", nargs="+", type=float, default=[1.5, 5.0, 15.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run later")
    parser.add_argument("--budget", type=int, default=6144, help="completions of a run")
    parser.add_argument("--tasks", type=int, default=16, help="of a step")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--screen", default="samples = 8, first = 4")
    parser.add_argument("--epochs", type=float, default=6, help="of SFT")
    parser.add_argument("--before", type=int, default=40, help="steps of GRPO after SFT")
    parser.add_argument(
        "--write", action="store_true", help="also write docs/measured/choosing-tasks.md"
    )
    parser.add_argument("--limit", type=int, help="evaluate on so many first tasks of each set")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    finish(write_settings(arguments.folder / "start.toml", settings(arguments, START)))
    start = read_report(arguments.folder / "start")
    print(histogram(start[1]), flush=True)
    text = page(start, run_grid(arguments), arguments)
    print(f"\n{text}")
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
