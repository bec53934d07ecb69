"""Runs the stages of a plan in order. All are checked before the first one starts; each continues
from the weights of the stage before.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from assay import environments, rewards
from assay.algorithms import algorithms
from assay.callbacks import build as build_callbacks
from assay.config.load_settings import Plan
from assay.config.sections import RunSettings
from assay.errors import SettingsError, UserError
from assay.evaluate import plots
from assay.evaluate.benchmark import axes_of
from assay.evaluate.report import Evaluation, label, read_report, write_report
from assay.maths.seeds import derive
from assay.policy.chat import open_chat
from assay.policy.checkpoints import best_of
from assay.policy.load_model import check_quantize, is_adapted, pick_device, with_dtype
from assay.policy.source import ModelSource, source_of
from assay.policy.tiny import make_tiny
from assay.progress import Progress, counted
from assay.prompts import messages
from assay.registry import one_line
from assay.sync import run_sync
from assay.tasks.rows import file_rows
from assay.train.check_settings import check_settings
from assay.train.folder import LOCK, StageFolder, locked
from assay.train.inputs import inputs_of
from assay.train.learner import OpenLearner
from assay.train.loop import train
from assay.train.open_learner import open_learner, require_supported
from assay.train.optimizer import WIDTH, default_lr, with_default_lr
from assay.train.reward_trial import try_rewards
from assay.train.run import BASE, Stage, open_run
from assay.train.stage_tasks import load_stage_tasks

log = logging.getLogger(__name__)
PLAIN = "single_turn"
"""The environment whose rollouts are one reply."""


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
    allow_changes: bool = False,
    progress: Progress | None = None,
    make_learner: OpenLearner = open_learner,
) -> PlanOutcome:
    """Run every stage of the plan: finished stages are skipped, a stopped stage continues.

    `fresh` deletes the run's folder first. `allow_changes`: a stopped stage continues with tasks,
    plug-ins or a model whose content has changed. Raises UserError before anything is written when
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
        for stage in () if allow_changes else stages:
            StageFolder(stage.settings).check_inputs(stage.inputs)
        for stage, anew in zip(stages, plan.starts_anew, strict=True):
            base = BASE if stage is stages[0] else f"{stage.settings.stage} {BASE}"
            stage = with_start(stage, None if anew else previous)
            folder = StageFolder(stage.settings)
            stage = replace(stage, base=base if anew else "")
            try:
                finished = run_sync(_run_stage(stage, progress, make_learner))
            except UserError:
                folder.forget_unopened()
                raise
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
    lost = f", {result.lost} lost" if result.dropped else ""
    return f"{result.pass_at[1]:.1%} [{result.interval.low:.1%}, {result.interval.high:.1%}]{lost}"


def prepare_all(
    plan: Plan, *, dry_run: bool = False, progress: Progress | None = None
) -> list[Stage]:
    """The stages of a plan, each prepared. A `dry_run` asks nothing of a model on the hub, and
    converts none. Raises UserError for what cannot be used.
    """
    stages, adapted = [], False
    for settings, anew in zip(plan.stages, plan.starts_anew, strict=True):
        model = source_of(settings.policy, StageFolder(settings).started_from())
        settings = with_model(settings, model.name)
        adapted = is_adapted(settings.policy, model) or (adapted and not anew)
        with plan.blaming(settings.stage):
            stage = prepare(settings, model, adapted, dry_run=dry_run, progress=progress)
            require_supported(stage.settings, stage.algorithm, adapted)
        stages.append(stage)
    for sft, rl in [] if dry_run else pairwise(stages):
        if (sft.algorithm.learns_from, rl.algorithm.learns_from) == ("dialogues", "rollouts"):
            warn_of_template(sft, rl)
    return stages


def warn_of_template(sft: Stage, rl: Stage) -> None:
    """Log a warning, with both prompts, where a chat model learns from rows without tests, which
    get no template, and is then asked with one. Rows of messages say themselves what is asked.
    """
    row, task = sft.tasks[0], rl.tasks[0]
    if row.checks or row.messages or sft.model.shape:
        return
    learned = messages(row, "", sft.settings.prompt)[-1].content
    prompt = messages(task, "", rl.settings.prompt)[-1].content
    if learned != row.prompt or prompt == task.prompt:
        return
    if open_chat(sft.model.load_tokenizer(), sft.settings.policy.chat, ()).has_template:
        log.warning(
            "stage %r learns to answer %r, and stage %r asks %r: rows without tests get no"
            " template; set prompt.template in the first, or give its rows tests",
            sft.settings.stage, learned, rl.settings.stage, prompt,
        )  # fmt: skip


def prepare(
    settings: RunSettings, model: ModelSource, adapted: bool, *, dry_run: bool = False,
    progress: Progress | None = None,
) -> Stage:  # fmt: skip
    """Check a stage's settings and load its tasks. Raises UserError for what cannot be used.

    `model` is what the stage's `policy.model` stands for. `adapted` says whether adapters are
    trained, here or in the stage before.
    """
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    if algorithm.file:
        next(file_rows(Path(algorithm.file)), None)
    reward = rewards.build(settings.rewards)
    if settings.evaluate:
        axes_of(settings.evaluate)
    environment = environments.build(settings.environment, settings.judge.servers)
    callbacks = build_callbacks(settings.callbacks)
    pick_device(settings.policy.device)
    check_quantize(settings.policy, adapted)
    if not dry_run:
        model = model.converted(progress)
    tasks = load_stage_tasks(settings, algorithm, environment)
    facts = model.facts if model.is_here or not dry_run else None
    if facts:
        policy = with_dtype(settings.policy, facts.width)
        settings = settings.model_copy(update={"policy": policy})
    usual = default_lr(algorithm.learns_from, adapted, facts.width if facts else WIDTH)
    settings = with_default_lr(settings, usual)
    check_settings(settings, algorithm.learns_from, tasks.train, adapted, facts, usual)
    if algorithm.learns_from == "rollouts" and tasks.train and environment.name == PLAIN:
        try_rewards(reward, tasks.train[0])  # other environments have turns that no trial has
    inputs = {} if dry_run else inputs_of(settings, model, tasks)
    return Stage(
        settings, model, algorithm, reward, environment, tasks.train, tasks.evaluation, tasks.sets,
        tasks.held_out, inputs, callbacks=callbacks,
    )  # fmt: skip


async def _run_stage(stage: Stage, progress: Progress, make_learner: OpenLearner) -> bool:
    async with open_run(stage, progress, make_learner) as run:
        size = sum(parameter.numel() for parameter in run.learner.policy.trainable.values())
        where = f"step {run.done} of {run.steps}" if run.done else counted(run.steps, "step")
        where = "finished" if run.done >= run.steps else where
        rate = f"learning rate {stage.settings.optimizer.lr:g}"
        dtype, device = stage.settings.policy.dtype, run.learner.policy.device
        trained = f"{size / 1e6:.2f}M trained parameters in {dtype} on {device}"
        pieces = f"micro-batches of {run.learner.micro_batch_tokens:,} tokens"
        tasks = counted(len(stage.tasks), "task")
        line = f"{stage.settings.stage}: {where}, {tasks}, {trained}, {rate}, {pieces}"
        progress.say(line, result=True)
        await train(run)
        return run.done >= run.steps and not run.stopping


def _require_run(run_folder: Path) -> None:
    """Raises SettingsError where --fresh would delete a folder that is not a run."""
    other = run_folder.exists() and any(path.name != LOCK for path in run_folder.iterdir())
    names = ("config.toml", "start/config.json", "screen/screen.json")
    marks = [file for name in names for file in run_folder.glob(f"*/{name}")]
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


def with_start(stage: Stage, previous: Path | None) -> Stage:
    """The stage with the model that it starts from: that of the stage before, or its own, which is
    made if it is the built-in one.
    """
    folder = StageFolder(stage.settings)
    built_in = None if previous else stage.model.shape
    name = str(folder.start if built_in else previous or stage.model.name)
    stage = replace(stage, settings=with_model(stage.settings, name))
    folder = StageFolder(stage.settings)
    folder.check()
    folder.forget_unsaved()
    if built_in:
        make_tiny(folder.start, stage.tasks, built_in, derive(stage.settings.seed, "tiny"))
    if built_in or previous:
        stage = replace(stage, model=source_of(stage.settings.policy))
    return stage


def with_model(settings: RunSettings, name: str) -> RunSettings:
    """The settings with another name as `policy.model`."""
    policy = settings.policy.model_copy(update={"model": name})
    return settings.model_copy(update={"policy": policy})


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
