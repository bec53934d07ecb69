"""Loads the tasks of a stage: those it trains on, with held-out checks, and those it evaluates."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from assay.algorithms import Algorithm
from assay.check.report import naming_check
from assay.config.sections import RunSettings
from assay.environments import Environment, reported, require_fit
from assay.errors import DataError, SettingsError
from assay.evaluate.benchmark import load_sets
from assay.maths.seeds import derive
from assay.rollout.held_out import hold_out
from assay.rollout.row_files import ROW_FILES
from assay.tasks import load
from assay.train.check_settings import warn_of_overlap
from assay.types import Task


@dataclass(frozen=True, slots=True)
class StageTasks:
    """The tasks of a stage."""

    train: list[Task]
    sets: Mapping[str, str]
    """By id, the set of each training task."""
    whole: list[Task]
    """The training tasks with all their checks, as the sets have them."""
    held_out: Mapping[str, Task]
    """By id, the training tasks with the checks that are held out of the reward."""
    evaluation: dict[str, list[Task]]
    """By task set; empty without `evaluate`."""


def load_stage_tasks(
    settings: RunSettings, algorithm: Algorithm, environment: Environment
) -> StageTasks:
    """Load them, and warn of training tasks that are evaluated too. Raises UserError for tasks that
    cannot be used.
    """
    judged = algorithm.learns_from == "rollouts"
    whole, sets = _training_tasks(settings, judged)
    if algorithm.file and not whole:
        whole = ROW_FILES[algorithm.learns_from].tasks(Path(algorithm.file))
    count = settings.tasks.held_out if judged else 0
    seed = derive(settings.seed, "held_out")
    train, held_out = hold_out(whole, count, seed, settings.tasks.spec)
    evaluation = load_sets(settings.evaluate, environment) if settings.evaluate else {}
    require_fit(environment, train, settings.tasks.spec)
    first = next(iter(evaluation.values()), [])
    if evaluation and settings.save.best == "evaluate/reward" and not any(map(reported, first)):
        raise SettingsError(
            "save.best = 'evaluate/reward' compares rewards that agents report, and no task of the"
            " first of evaluate.tasks has a check `task_data`; choose 'evaluate/pass@1'"
        )
    for spec, (bench, bench_tasks) in product(settings.tasks.train, evaluation.items()):
        tasks_of_spec = [task for task in train if sets[task.id] == spec]
        warn_of_overlap(settings.stage, spec, tasks_of_spec, bench, bench_tasks)
    return StageTasks(train, sets, whole, held_out, evaluation)


def _training_tasks(settings: RunSettings, judged: bool) -> tuple[list[Task], dict[str, str]]:
    """The tasks of all training sets, and the set of each by its id. Raises DataError where two
    sets have tasks of one id.
    """
    tasks: list[Task] = []
    sets: dict[str, str] = {}
    for spec in settings.tasks.train:
        try:
            loaded = load(spec, limit=settings.tasks.limit, judged=judged)
        except DataError as error:
            raise naming_check(error, spec) from error
        for task in loaded:
            if task.id in sets:
                raise DataError(
                    f"{spec} and {sets[task.id]} both have a task {task.id!r}; rename one"
                )
            sets[task.id] = spec
            tasks.append(replace(task, checks=task.checks[: settings.tasks.checks]))
    return tasks, sets
