"""Compares evaluations on the same tasks: of runs, stages and reports; runs over seeds as one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any

from assay.config.toml_files import absolute, flat, saved_settings
from assay.errors import DataError, MachineError
from assay.evaluate.grid import grid, terminal_table
from assay.evaluate.report import Evaluation, label, read_report, read_setups, title
from assay.maths.comparison import (
    PairedDifference,
    SeedSpread,
    holm,
    paired_difference,
    seed_spread,
)
from assay.maths.estimates import Interval, pass_interval, score_interval, student_t
from assay.paths import real_path
from assay.progress import counted

if TYPE_CHECKING:
    from rich.table import Table

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
    seed: int | None
    """That of the run; None where no stage has trained the model."""
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
    completions: int
    """Of all tasks and seeds, with those that were lost."""
    lost: int
    """Completions lost to the machine, which no number above counts."""
    lost_tasks: tuple[str, ...]
    """Tasks that lost completions, in any seed: their rates are of fewer, or they have none."""
    judged_samples: float
    """Judged completions of a task, of one seed: the harmonic mean over tasks, which tells how
    exact their rates are."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A row against an earlier row on the same tasks."""

    model: str
    against: str
    paired: PairedDifference
    tasks_apart: int
    """Tasks that only one of the two was evaluated on; they do not count."""
    tasks_lost: int
    """Of `tasks_apart`, those of which one of the two lost every completion."""
    tasks_unequal: int
    """Tasks that count although one of the two lost some of their completions."""
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
        differences = _differences(self.comparisons)
        return "\n\n".join([grid(_cells(self.rows)), *differences, *self.notes])

    def tables(self, width: int | None = None) -> list[Table]:
        """The tables for a terminal of `width` columns (default: this one's): the rows, and the
        differences from each model that others are compared with.
        """
        header, *rows = _cells(self.rows)
        left_out = {"method"} | ({"lost"} if not any(row.lost for row in self.rows) else set())
        columns = [index for index, name in enumerate(header) if name not in left_out]
        cells = [[line[index] for index in columns] for line in (header, *rows)]
        pairs = groupby(self.comparisons, key=lambda pair: (pair.against, pair.paired.test))
        adjusted = len(self.comparisons) > 1
        return [
            terminal_table(cells, width=width),
            *(_difference_table(*key, list(group), adjusted, width) for key, group in pairs),
        ]

    def require_few_lost(self, max_lost: float) -> None:
        """Raises MachineError where a row lost more than this share of its completions."""
        worst = max(self.rows, key=lambda row: row.lost / row.completions)
        if worst.lost > max_lost * worst.completions:
            raise MachineError(
                f"{worst.model} lost {worst.lost} of {worst.completions} completions to the"
                f" machine, more than max_lost = {max_lost:g} of them; evaluate it again for those"
            )


def compare(paths: Sequence[Path]) -> Comparison:
    """Compare evaluations, each row with the first row before it that has tasks in common, at the
    same temperature if there is one.

    A path is a report.json, the folder of one, a run's stage (`RUN/grpo`), or a folder of runs. A
    run counts with its last evaluation; a single path to runs of one recipe has a row for each
    stage. Raises DataError for a path without evaluations, or rows without tasks in common.
    """
    damage: list[str] = []
    results = [result for path in paths for result in _results(path, damage)]
    if len(paths) > 1 or len({result.recipe for result in results}) > 1:
        last = {
            (result.run, label(result.evaluation)[1:]): result
            for result in results
            if result.whole_run
        }
        results = [result for result in results if not result.whole_run or result in last.values()]
    _require_same_content(results)
    results, copies = _without_copies(results)
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
    left_out = [f"A run is left out: {line}." for line in [*damage, *copies]]
    return Comparison(rows, compared, [*_notes(results, rows, compared), *left_out])


def _results(path: Path, damage: list[str]) -> list[RunResult]:
    """The evaluations at a path; a line goes to `damage` for each run of a folder that cannot be
    read. Raises DataError if there are none.
    """
    folder = path.parent if path.name == "report.json" else path
    if read_report(folder):
        return _of_report(folder)
    if stage := [
        result for result in _of_report(path.parent) if result.evaluation.name == path.name
    ]:
        return [replace(result, whole_run=False) for result in stage]
    reports = [run for run in path.glob("*/") if os.path.lexists(run / "report.json")]
    if runs := sorted(reports, key=lambda run: _natural(run.name)):
        return _of_runs(runs, damage)
    raise DataError(
        f"{path} holds no evaluation; name a run, a stage that was evaluated (RUN/STAGE), or the"
        " --out of `assay eval`"
    )


def _of_runs(runs: Sequence[Path], damage: list[str]) -> list[RunResult]:
    """The evaluations of those runs that can be read. Raises DataError if there are none."""
    results: list[RunResult] = []
    for run in runs:
        try:
            results += _of_report(run)
        except DataError as error:
            damage.append(str(error))
    if damage and not results:
        raise DataError(damage[0])
    return results


def _natural(name: str) -> list[str]:
    return [part.zfill(9) for part in re.findall(r"\d+|\D+", name)]


def _of_report(folder: Path) -> list[RunResult]:
    evaluations = read_report(folder)
    if not evaluations:
        return []
    setups = read_setups(folder)
    return [_result(entry, setups.get(title(entry), {}), folder) for entry in evaluations]


def _result(entry: Evaluation, setup: dict[str, Any], folder: Path) -> RunResult:
    model = Path(str(setup.get("model", {}).get("model", "")))
    trained = model.parent.name == "checkpoints"
    model = real_path(model)
    run = model.parents[2] if trained else real_path(folder)
    stages = {
        path.name: _settings(path / "config.toml")
        for path in ([] if setup and not trained else sorted(run.glob("*/")))
        if os.path.lexists(path / "config.toml")
    }
    recipe = "".join(_recipe(table, run / stage) for stage, table in stages.items()) or str(run)
    conditions = {key: value for key, value in setup.items() if key not in OWN_SETUP}
    stage = model.parents[1].name if trained else entry.name
    method = str(stages[stage]["algorithm"]["name"]) if stage in stages else ""
    group = json.dumps(
        [recipe, entry.name, entry.tasks_spec, entry.samples, entry.temperature, conditions]
    )
    name = entry.name if setup else str(folder / entry.name)
    seed = next((table.get("seed") for table in stages.values()), None)
    return RunResult(entry, name, run, method, recipe, group, seed, setup, not setup)


def _settings(file: Path) -> dict[str, Any]:
    table = saved_settings(file)
    algorithm = table.get("algorithm")
    texts = [table.get("folder"), table.get("name"), isinstance(algorithm, dict)
             and algorithm.get("name")]  # fmt: skip
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{file} cannot be read: it lacks `folder`, `name` or `algorithm.name`")
    return table


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
            other = first_of.setdefault(frozenset(_task_ids(result.evaluation)), result)
            if content != other.setup["tasks_sha256"]:
                raise DataError(
                    f"{other.name} and {result.name} were evaluated on tasks of the same names, but"
                    " with other content (tasks_sha256); evaluate both on one task set"
                )


def _task_ids(evaluation: Evaluation) -> set[str]:
    """All tasks, with those of which every completion was lost."""
    return {task.id for task in evaluation.per_task} | evaluation.lost_by_task.keys()


def _without_copies(results: Sequence[RunResult]) -> tuple[list[RunResult], list[str]]:
    """The results without those of copied runs, which are no second seed, and a line for each."""
    originals: list[RunResult] = []
    copies: list[str] = []
    for result in results:
        same = (
            earlier.run for earlier in originals
            if earlier.seed is not None and earlier.seed == result.seed
            and earlier.group == result.group and earlier.run != result.run
            and earlier.evaluation == result.evaluation
        )  # fmt: skip
        if original := next(same, None):
            copies.append(f"{result.run} has the seed and the results of {original}")
        else:
            originals.append(result)
    return originals, list(dict.fromkeys(copies))


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
    judged = 1 / fmean(1 / task.samples for run in group for task in run.evaluation.per_task)
    if seeds.deviation is not None:
        name = re.sub(r"(.*seed)\W?\d+", rf"\1s ({len(group)})", name, count=1)
        interval = _over_seeds(seeds, list(rates.values()), judged)
    return ModelRow(
        name, group[0].method, first.tasks_spec, seeds, interval, sum(rates.values()), len(rates),
        fmean(result.evaluation.mean_length for result in group), rates, first.samples,
        first.temperature, sum(result.evaluation.completions for result in group),
        sum(result.evaluation.dropped for result in group),
        tuple(dict.fromkeys(id for result in group for id in result.evaluation.lost_by_task)),
        judged,
    )  # fmt: skip


def _over_seeds(seeds: SeedSpread, rates: Sequence[float], samples: float) -> Interval:
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
                samples = min(other.judged_samples, row.judged_samples)
                paired = paired_difference(before, after, samples, (other.seeds, row.seeds))
                apart, lost = (
                    row.rates.keys() ^ other.rates.keys(),
                    {*row.lost_tasks, *other.lost_tasks},
                )
                yield Compared(
                    row.model, other.model, paired, len(apart), len(apart & lost),
                    len(lost.intersection(common)), paired.p_value,
                )  # fmt: skip
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
    for row in rows:
        if row.lost:
            yield (
                f"{row.model} lost {row.lost} of {counted(row.completions, 'completion')}, of"
                f" {counted(len(row.lost_tasks), 'task')}, to the machine: no rate counts them."
                " Evaluate it again for those."
            )
    for pair in comparisons:
        if pair.tasks_apart:
            yield (
                f"{pair.model} and {pair.against} share {counted(pair.paired.tasks, 'task')};"
                f" {pair.tasks_apart} that only one of them has do not count in their difference"
                + (f": {pair.tasks_lost} of these lost every completion" * bool(pair.tasks_lost))
                + "."
            )
        if pair.tasks_unequal:
            yield (
                f"{pair.model} and {pair.against} have unequal numbers of judged completions of"
                f" {pair.tasks_unequal} of the {counted(pair.paired.tasks, 'task')}, because some"
                " were lost; each task weighs the same, with the rate of those that were judged."
            )
    if len(comparisons) > 1:
        yield f"`p, Holm` is adjusted for {len(comparisons)} comparisons."


def _cells(rows: Sequence[ModelRow]) -> list[list[str]]:
    """Header and rows: the numbers of each model."""
    header = ["model", "method", "seeds", "pass@1", "95 %", "lost", "passed/tasks", "tokens"]
    return [header] + [
        [row.model, row.method or "none", str(row.seeds.seeds), _pass_at_1(row.seeds),
         f"{row.interval.low:.1%} to {row.interval.high:.1%}",
         f"{row.lost} of {row.completions}" if row.lost else "0",
         f"{f'{row.passed:.1f}'.removesuffix('.0')}/{row.tasks}", f"{row.mean_length:.0f}"]
        for row in rows
    ]  # fmt: skip


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
    yield (
        "Tasks needed: so many tasks would show a difference of this size (p of at most 5 %) in 4"
        " of 5 comparisons."
    )


def _difference_table(
    against: str, test: str, pairs: Sequence[Compared], adjusted: bool, width: int | None
) -> Table:
    """The differences of some models from one. `p` is the adjusted one where there are several."""
    p = "p, Holm" if adjusted else "p"
    lines = [["model", "difference", "95 %", "won/lost/tied", p, "tasks\nneeded"]]
    for pair in pairs:
        paired, interval = pair.paired, pair.paired.interval
        ties = paired.tasks - paired.wins - paired.losses
        lines.append([
            pair.model, f"{paired.difference:+.1%}",
            f"{interval.low:+.1%} to {interval.high:+.1%}",
            f"{paired.wins}/{paired.losses}/{ties}",
            _p(pair.p_holm if adjusted else paired.p_value), str(paired.tasks_needed or "none"),
        ])  # fmt: skip
    return terminal_table(lines, width=width, title=f"against {against} ({test})")


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"
