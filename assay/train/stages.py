"""Runs the stages of a plan in order. All are checked before the first one starts; each continues
from the weights of the stage before.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path

from assay import environments, rewards
from assay.algorithms import algorithms
from assay.config.load import Plan
from assay.config.sections import RunSettings
from assay.errors import DataError, SettingsError
from assay.evaluate import plots
from assay.evaluate.benchmark import axes_of, load_sets
from assay.evaluate.report import Evaluation, label, read_report, write_report
from assay.maths.seeds import derive
from assay.policy.checkpoints import best_of, checkpoints_of, newest_whole
from assay.policy.gguf import as_folder
from assay.policy.load import (
    base_model_of,
    check_quantize,
    has_config,
    is_adapted,
    pick_device,
    width_of,
    with_dtype,
)
from assay.policy.tiny import make_tiny
from assay.progress import Progress
from assay.registry import one_line
from assay.rollout.held_out import hold_out
from assay.rollout.pairs import tasks_of_pairs
from assay.sync import run_sync
from assay.tasks import load
from assay.tasks.rows import file_rows
from assay.train.check_settings import check_settings, warn_of_overlap, warn_of_template
from assay.train.folder import LOCK, StageFolder, locked
from assay.train.learner import Learner, OpenLearner
from assay.train.loop import train
from assay.train.optimizer import WIDTH, with_default_lr
from assay.train.run import BASE, Stage, open_run
from assay.types import Task

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The result of a plan."""

    folder: Path
    """The run's folder."""
    evaluations: list[Evaluation]
    """In the order they were made."""
    model: Path | None
    """The newest checkpoint."""
    best: Path | None
    """The best checkpoint of the last stage that ran, where `save.best` asks for it."""
    finished: bool
    """Whether every stage ran to its last step."""
    advice: str
    """Which earlier stage is better than the last one; empty if none is."""


def run_plan(
    plan: Plan,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
    make_learner: OpenLearner = Learner,
) -> PlanOutcome:
    """Run every stage of the plan: finished stages are skipped, a stopped stage continues.

    `fresh` deletes the run's folder first. Raises UserError before anything is written when
    settings, tasks or models cannot be used, or when another trainer uses the folder.
    """
    progress = progress or Progress()
    stages = prepare_all(plan, progress=progress)
    run_folder = StageFolder(plan.stages[0]).run
    if fresh:
        _require_run(run_folder)
    if any(run_folder.glob("*/*/config.toml")):
        raise SettingsError(f"{run_folder} holds the runs of a sweep; choose another --name")
    previous = best = None
    finished = True
    with locked(run_folder):
        if fresh:
            _clear(run_folder)
        for stage, anew in zip(stages, plan.starts_anew, strict=True):
            settings = with_start(stage, None if anew else previous)
            folder = StageFolder(settings)
            base = BASE if stage is stages[0] else f"{settings.stage} {BASE}"
            stage = replace(stage, settings=settings, base=base if anew else "")
            finished = run_sync(_run_stage(stage, progress, make_learner))
            previous, best = folder.latest(), best_of(folder.path)
            _draw(plan, run_folder)
            if not finished:
                break
    evaluations = read_report(run_folder)
    folders = {settings.stage: StageFolder(settings) for settings in plan.stages}
    advice = _advice(evaluations, folders) if evaluations else ""
    return PlanOutcome(run_folder, evaluations, previous, best, finished, advice)


def _advice(evaluations: Sequence[Evaluation], folders: Mapping[str, StageFolder]) -> str:
    last = evaluations[-1]
    comparable = [
        evaluation for evaluation in evaluations if label(evaluation)[1:] == label(last)[1:]
    ]
    top = max(comparable, key=lambda evaluation: evaluation.pass_at[1])
    if top.pass_at[1] <= last.pass_at[1]:
        return ""
    clear = last.interval.high < top.interval.low
    words, doubt = ("is", "") if clear else ("looks", ", but the intervals overlap")
    model = folders[top.name].latest() if top.name in folders else None
    rates = f"pass@1 {_rate(last)}, before {_rate(top)}{doubt}"
    advice = f"use {model}" if model else "keep the model you started from"
    return f"{last.name} {words} worse than {top.name}: {rates}; {advice}"


def _rate(result: Evaluation) -> str:
    return f"{result.pass_at[1]:.1%} [{result.interval.low:.1%}, {result.interval.high:.1%}]"


def prepare_all(
    plan: Plan, *, dry_run: bool = False, progress: Progress | None = None
) -> list[Stage]:
    """The stages of a plan, each prepared. A `dry_run` asks nothing of a model on the hub, and
    converts none. Raises UserError for what cannot be used.
    """
    stages, adapted = [], False
    for settings, anew in zip(plan.stages, plan.starts_anew, strict=True):
        settings = with_checkpoint(settings)
        adapted = is_adapted(settings.policy) or (adapted and not anew)
        with plan.blaming(settings.stage):
            stages.append(prepare(settings, adapted, dry_run=dry_run, progress=progress))
    for sft, rl in [] if dry_run else pairwise(stages):
        if (sft.algorithm.learns_from, rl.algorithm.learns_from) == ("dialogues", "rollouts"):
            warn_of_template(sft.settings, sft.tasks[0], rl.settings, rl.tasks[0])
    return stages


def with_checkpoint(settings: RunSettings) -> RunSettings:
    """The settings with a checkpoint as `policy.model` where that is the folder of a run or stage:
    the one that this stage has started from, else the last stage's best, or else the newest whole
    one. Raises DataError where all are broken.
    """
    checkpoints = checkpoints_of(Path(settings.policy.model))
    if not checkpoints:
        return settings
    best, start = best_of(checkpoints[-1].parents[1]), StageFolder(settings).started_from()
    model = next((path for path in checkpoints if path.resolve() == start), None)
    model = model or newest_whole([*checkpoints, *([best] if best else [])])
    return settings.model_copy(
        update={"policy": settings.policy.model_copy(update={"model": str(model)})}
    )


def prepare(
    settings: RunSettings, adapted: bool, *, dry_run: bool = False, progress: Progress | None = None
) -> Stage:
    """Check a stage's settings and load its tasks. Raises UserError for what cannot be used.

    `adapted` says whether adapters are trained, here or in the stage before.
    """
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    if algorithm.pairs:
        next(file_rows(Path(algorithm.pairs)), None)
    reward = rewards.build(settings.rewards)
    if settings.evaluate:
        axes_of(settings.evaluate)
    environment = environments.build(settings.environment)
    pick_device(settings.policy.device)
    check_quantize(settings.policy, adapted)
    if settings.policy.model != "tiny":
        base = base_model_of(settings.policy.model)
        if not dry_run:
            as_folder(base, progress)
    judged = algorithm.learns_from == "rollouts"
    tasks, sets = _training_tasks(settings, judged)
    if algorithm.pairs and not tasks:
        tasks = tasks_of_pairs(Path(algorithm.pairs))
    count = settings.tasks.held_out if judged else 0
    seed = derive(settings.seed, "held_out")
    tasks, held_out = hold_out(tasks, count, seed, settings.tasks.spec)
    evaluation_tasks = load_sets(settings.evaluate, environment) if settings.evaluate else {}
    environments.require_fit(environment, tasks, settings.tasks.spec)
    for spec, (bench, bench_tasks) in product(settings.tasks.train, evaluation_tasks.items()):
        tasks_of_spec = [task for task in tasks if sets[task.id] == spec]
        warn_of_overlap(settings.stage, spec, tasks_of_spec, bench, bench_tasks)
    width = WIDTH
    if has_config(settings.policy, dry_run):
        settings = settings.model_copy(update={"policy": with_dtype(settings.policy)})
        width = width_of(settings.policy)
    settings = with_default_lr(settings, algorithm.learns_from, adapted, width)
    check_settings(settings, algorithm.learns_from, tasks, adapted, dry_run)
    return Stage(settings, algorithm, reward, environment, tasks, evaluation_tasks, sets, held_out)


def _training_tasks(settings: RunSettings, judged: bool) -> tuple[list[Task], dict[str, str]]:
    """The tasks of all training sets, and the set of each by its id. Raises DataError where two
    sets have tasks of one id.
    """
    tasks: list[Task] = []
    sets: dict[str, str] = {}
    for spec in settings.tasks.train:
        for task in load(spec, limit=settings.tasks.limit, judged=judged):
            if task.id in sets:
                raise DataError(
                    f"{spec} and {sets[task.id]} both have a task {task.id!r}; rename one"
                )
            sets[task.id] = spec
            tasks.append(replace(task, checks=task.checks[: settings.tasks.checks]))
    return tasks, sets


async def _run_stage(stage: Stage, progress: Progress, make_learner: OpenLearner) -> bool:
    async with open_run(stage, progress, make_learner) as run:
        size = sum(parameter.numel() for parameter in run.learner.policy.trainable.values())
        where = f"step {run.done} of {run.steps}" if run.done else f"{run.steps} steps"
        where = "finished" if run.done >= run.steps else where
        rate = f"learning rate {stage.settings.optimizer.lr:g}"
        dtype, device = stage.settings.policy.dtype, run.learner.policy.device
        trained = f"{size / 1e6:.2f}M trained parameters in {dtype} on {device}"
        pieces = f"micro-batches of {run.learner.micro_batch_tokens:,} tokens"
        tasks = f"{len(stage.tasks)} tasks"
        line = f"{stage.settings.stage}: {where}, {tasks}, {trained}, {rate}, {pieces}"
        progress.say(line, result=True)
        await train(run)
        return run.done >= run.steps and not run.stopping


def _require_run(run_folder: Path) -> None:
    """Raises SettingsError where --fresh would delete a folder that is not a run."""
    other = run_folder.exists() and any(path.name != LOCK for path in run_folder.iterdir())
    marks = [*run_folder.glob("*/config.toml"), *run_folder.glob("*/start/config.json")]
    if other and not marks:
        raise SettingsError(
            f"--fresh would delete {run_folder}, which is not a run; choose another --name"
        )


def _clear(run_folder: Path) -> None:
    """Delete everything but the lock, which this process holds."""
    for path in run_folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def with_start(stage: Stage, previous: Path | None) -> RunSettings:
    """The stage's settings with the model that it starts from, which is made if it is `tiny`."""
    folder, policy = StageFolder(stage.settings), stage.settings.policy
    tiny = not previous and policy.model == "tiny"
    model = str(folder.start if tiny else previous or policy.model)
    settings = stage.settings.model_copy(
        update={"policy": policy.model_copy(update={"model": model})}
    )
    StageFolder(settings).check()
    folder.forget_unsaved()
    if tiny:
        make_tiny(folder.start, stage.tasks, policy.tiny, derive(settings.seed, "tiny"))
    return settings


def _draw(plan: Plan, run_folder: Path) -> None:
    files = {
        settings.stage: StageFolder(settings).path / "metrics.jsonl" for settings in plan.stages
    }
    present = {name: file for name, file in files.items() if file.is_file()}
    try:
        plots.learning_curve(present, run_folder / "learning_curve.png")
        if evaluations := read_report(run_folder):
            plots.stages(evaluations, run_folder / "stages.png")
        write_report(run_folder, evaluations)
    except OSError as error:
        log.warning("the report or the plots cannot be written: %s", one_line(error))
