"""Compares evaluations on the same tasks: of runs, stages and reports; runs over seeds as one."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from assay.config.toml_files import absolute, flat, saved_settings
from assay.errors import DataError
from assay.evaluate.grid import grid
from assay.evaluate.report import Evaluation, label, read_report, title
from assay.maths.comparison import (
    PairedDifference,
    SeedSpread,
    holm,
    paired_difference,
    seed_spread,
)
from assay.maths.estimates import Interval, pass_interval, score_interval, student_t

OWN = ("name", "seed", "folder", "trackers", "dashboard")
"""Settings in which the runs of one recipe may differ."""
OWN_SETUP = ("model", "model_files", "seed", "versions")
"""What evaluations of one recipe may differ in."""
TASKS = ("tasks", "task_count", "tasks_sha256", "prompts_sha256", "stop", "dates")
"""What follows from the tasks, which are compared by themselves."""
NOTES = {
    "tasks": "Intervals are 95 % confidence intervals over tasks: what other tasks would give.",
    "seeds": "Rows of several seeds show the mean over seeds, and its standard deviation between"
    " seeds. Their intervals, tests and differences hold both sources of variation: other tasks,"
    " and another seed.",
    "one seed": "A row of one seed says nothing about what another seed of the recipe would give.",
    "sampling": "The evaluations were sampled at different temperatures: {}.",
    "setup": "The evaluations were made differently, in {}: their difference is not of the models"
    " alone.",
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """One evaluation, and where it comes from."""

    evaluation: Evaluation
    name: str
    """The run's folder and the stage; or the model's name."""
    run: Path
    """The folder of the run that made the model, or else that of the report."""
    method: str
    """The algorithm of its stage; empty for a model that no stage trained."""
    recipe: str
    """The run's settings but for the seed; or else the folder of the report."""
    group: str
    """Equal for results of one recipe that differ only in the run."""
    setup: dict[str, Any]
    """How `assay eval` made it; empty for an evaluation during training."""
    whole_run: bool
    """Whether it was named by its run, which counts with its last evaluation."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A line of the table: an evaluation, or those of one recipe over seeds."""

    model: str
    method: str
    tasks_spec: str
    seeds: SeedSpread
    """Holds pass@1, the mean over seeds."""
    interval: Interval
    passed: float
    """Tasks passed: the sum over tasks of the share of completions that pass."""
    tasks: int
    mean_length: float
    """Mean number of completion tokens."""
    rates: dict[str, float]
    """pass@1 by task, mean over seeds."""
    samples: int
    """Completions of a task, of one seed."""
    temperature: float
    """0 is greedy decoding."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A row against an earlier row on the same tasks."""

    model: str
    against: str
    paired: PairedDifference
    tasks_apart: int
    """Tasks that only one of the two was evaluated on; they do not count."""
    p_holm: float
    """The p-value, adjusted for the number of comparisons (Holm)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` returns."""

    rows: list[ModelRow]
    comparisons: list[Compared]
    notes: list[str]

    def markdown(self) -> str:
        """The tables, and what they mean."""
        return "\n\n".join([_table(self.rows), *_differences(self.comparisons), *self.notes])


def compare(paths: Sequence[Path]) -> Comparison:
    """Compare evaluations, each row with the first row before it that has tasks in common, at the
    same temperature if there is one.

    A path is a report.json, the folder of one, a run's stage (`RUN/grpo`), or a folder of runs. A
    run counts with its last evaluation; a single path to runs of one recipe has a row for each
    stage. Raises DataError for a path without evaluations, or rows without tasks in common.
    """
    results = [result for path in paths for result in _results(path)]
    if len(paths) > 1 or len({result.recipe for result in results}) > 1:
        last = {
            (result.run, label(result.evaluation)[1:]): result
            for result in results
            if result.whole_run
        }
        results = [result for result in results if not result.whole_run or result in last.values()]
    _require_same_content(results)
    if len({label(result.evaluation)[1:] for result in results}) > 1:
        results = [
            replace(result, name=title(replace(result.evaluation, name=result.name)))
            for result in results
        ]
    rows = [_row(group) for group in _groups(results)]
    comparisons = list(_comparisons(rows))
    if len(rows) > 1 and not comparisons:
        raise DataError(
            f"{rows[0].model} and {rows[1].model} have no task in common ({rows[0].tasks_spec},"
            f" {rows[1].tasks_spec}); evaluate both on the same tasks"
        )
    adjusted = holm([pair.paired.p_value for pair in comparisons])
    compared = [replace(pair, p_holm=p) for pair, p in zip(comparisons, adjusted, strict=True)]
    return Comparison(rows, compared, list(_notes(results, rows, compared)))


def _results(path: Path) -> list[RunResult]:
    """The evaluations at a path. Raises DataError if there are none."""
    folder = path.parent if path.name == "report.json" else path
    if read_report(folder):
        return _of_report(folder)
    if stage := [
        result for result in _of_report(path.parent) if result.evaluation.name == path.name
    ]:
        return [replace(result, whole_run=False) for result in stage]
    if runs := sorted(path.glob("*/report.json"), key=lambda file: _natural(file.parent.name)):
        return [result for file in runs for result in _of_report(file.parent)]
    raise DataError(
        f"{path} holds no evaluation; name a run, a stage that was evaluated (RUN/STAGE), or the"
        " --out of `assay eval`"
    )


def _natural(name: str) -> list[str]:
    return [part.zfill(9) for part in re.findall(r"\d+|\D+", name)]


def _of_report(folder: Path) -> list[RunResult]:
    evaluations = read_report(folder)
    if not evaluations:
        return []
    table = json.loads((folder / "report.json").read_text())
    setups = table.get("setups", {})
    return [
        _result(entry, setups.get(title(entry)) or table.get("setup") or {}, folder)
        for entry in evaluations
    ]


def _result(entry: Evaluation, setup: dict[str, Any], folder: Path) -> RunResult:
    model = Path(str(setup.get("model", {}).get("model", "")))
    trained = model.parent.name == "checkpoints"
    model = model.resolve()
    run = model.parents[2] if trained else folder.resolve()
    stages = {
        file.parent.name: saved_settings(file)
        for file in ([] if setup and not trained else sorted(run.glob("*/config.toml")))
    }
    recipe = "".join(_recipe(table, run / stage) for stage, table in stages.items()) or str(run)
    conditions = {key: value for key, value in setup.items() if key not in OWN_SETUP}
    stage = model.parents[1].name if trained else entry.name
    method = str(stages[stage]["algorithm"]["name"]) if stage in stages else ""
    group = json.dumps(
        [recipe, entry.name, entry.tasks_spec, entry.samples, entry.temperature, conditions]
    )
    name = entry.name if setup else str(folder / entry.name)
    return RunResult(entry, name, run, method, recipe, group, setup, not setup)


def _recipe(table: dict[str, Any], stage: Path) -> str:
    """The settings of a stage as text, without what is the run's own."""
    table = absolute(table, stage)
    run = str(Path(table["folder"]) / table["name"])
    shared = {key: value for key, value in table.items() if key not in OWN}
    return json.dumps(shared, sort_keys=True).replace(run, "")


def _require_same_content(results: Sequence[RunResult]) -> None:
    first_of: dict[frozenset[str], RunResult] = {}
    for result in results:
        if content := result.setup.get("tasks_sha256"):
            other = first_of.setdefault(
                frozenset(task.id for task in result.evaluation.per_task), result
            )
            if content != other.setup["tasks_sha256"]:
                raise DataError(
                    f"{other.name} and {result.name} were evaluated on tasks of the same names, but"
                    " with other content (tasks_sha256); evaluate both on one task set"
                )


def _groups(results: Sequence[RunResult]) -> list[list[RunResult]]:
    """The results of one recipe together, each run once, in the order of the first of each."""
    groups: dict[str, dict[Path, RunResult]] = {}
    for result in results:
        groups.setdefault(result.group, {})[result.run] = result
    return [list(group.values()) for group in groups.values()]


def _row(group: Sequence[RunResult]) -> ModelRow:
    first, name = group[0].evaluation, group[0].name
    by_seed = [{task.id: task.passed / task.samples for task in result.evaluation.per_task}
               for result in group]  # fmt: skip
    common = [id for id in by_seed[0] if all(id in rates for rates in by_seed)]
    rates = {id: fmean(rates[id] for rates in by_seed) for id in common}
    seeds = seed_spread([result.evaluation.pass_at[1] for result in group])
    interval = pass_interval([(task.samples, task.passed) for task in first.per_task])
    if seeds.deviation is not None:
        name = re.sub(r"(.*seed)\W?\d+", rf"\1s ({len(group)})", name, count=1)
        interval = _over_seeds(seeds, list(rates.values()), first.samples)
    return ModelRow(
        name, group[0].method, first.tasks_spec, seeds, interval, sum(rates.values()), len(rates),
        fmean(result.evaluation.mean_length for result in group), rates, first.samples,
        first.temperature,
    )  # fmt: skip


def _over_seeds(seeds: SeedSpread, rates: Sequence[float], samples: int) -> Interval:
    """The interval over tasks, each side widened by Student's interval of the mean over seeds."""
    between = variance(rates) if len(rates) > 1 else 0.0
    floor = 1 / samples / seeds.seeds
    inner = score_interval(fmean(rates), between, len(rates), floor)
    wide = student_t(0.95, seeds.seeds - 1) * (seeds.deviation or 0) / sqrt(seeds.seeds)
    down, up = (sqrt((end - fmean(rates)) ** 2 + wide**2) for end in (inner.low, inner.high))
    return Interval(max(0.0, seeds.mean - down), min(1.0, seeds.mean + up))


def _comparisons(rows: Sequence[ModelRow]) -> Iterator[Compared]:
    for place, row in enumerate(rows):
        for other in sorted(rows[:place], key=lambda other: other.temperature != row.temperature):
            common = [id for id in other.rates if id in row.rates]
            if common:
                before, after = ([side.rates[id] for id in common] for side in (other, row))
                samples = min(other.samples, row.samples)
                paired = paired_difference(before, after, samples, (other.seeds, row.seeds))
                apart = len(row.rates | other.rates) - len(common)
                yield Compared(row.model, other.model, paired, apart, paired.p_value)
                break


def _notes(
    results: Sequence[RunResult], rows: Sequence[ModelRow], comparisons: Sequence[Compared]
) -> Iterator[str]:
    yield NOTES["tasks"]
    if any(row.seeds.seeds > 1 for row in rows):
        yield NOTES["seeds"]
    elif any(row.method for row in rows):
        yield NOTES["one seed"]
    temperatures = sorted({result.evaluation.temperature for result in results})
    if len(temperatures) > 1:
        yield NOTES["sampling"].format(", ".join(f"{value:g}" for value in temperatures))
    setups = [
        flat({key: result.setup[key] for key in result.setup if key not in (*OWN_SETUP, *TASKS)})
        for result in results
        if result.setup
    ]
    differ = {key for setup in setups for key in setup if setup[key] != setups[0].get(key)}
    if differ := differ - {"sampling.temperature"}:
        yield NOTES["setup"].format(", ".join(sorted(differ)))
    for pair in comparisons:
        if pair.tasks_apart:
            yield (
                f"{pair.model} and {pair.against} share {pair.paired.tasks} tasks;"
                f" {pair.tasks_apart} that only one of them has do not count in their difference."
            )
    if len(comparisons) > 1:
        yield f"`p, Holm` is adjusted for {len(comparisons)} comparisons."


def _table(rows: Sequence[ModelRow]) -> str:
    header = ["model", "method", "seeds", "pass@1", "95 %", "passed/tasks", "tokens"]
    return grid([header] + [
        [row.model, row.method or "none", str(row.seeds.seeds), _pass_at_1(row.seeds),
         f"{row.interval.low:.1%} to {row.interval.high:.1%}",
         f"{f'{row.passed:.1f}'.removesuffix('.0')}/{row.tasks}", f"{row.mean_length:.1f}"]
        for row in rows
    ])  # fmt: skip


def _pass_at_1(seeds: SeedSpread) -> str:
    spread = "" if seeds.deviation is None else f" ± {100 * seeds.deviation:.1f}"
    return f"{seeds.mean:.1%}{spread}"


def _differences(comparisons: Sequence[Compared]) -> Iterator[str]:
    if not comparisons:
        return
    header = ["model", "against", "difference", "95 %", "wins", "losses", "ties", "p", "p, Holm",
              "test", "tasks needed"]  # fmt: skip
    lines = [header]
    for pair in comparisons:
        paired, interval = pair.paired, pair.paired.interval
        ties = paired.tasks - paired.wins - paired.losses
        lines.append([
            pair.model, pair.against, f"{paired.difference:+.1%}",
            f"{interval.low:+.1%} to {interval.high:+.1%}", str(paired.wins), str(paired.losses),
            str(ties), _p(paired.p_value), _p(pair.p_holm), paired.test,
            str(paired.tasks_needed or "none would show it"),
        ])  # fmt: skip
    yield grid(lines)
    yield "Tasks needed: for a test at 5 % that finds a difference of this size 4 times in 5."


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"
