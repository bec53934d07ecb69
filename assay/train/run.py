"""A stage while it trains: opens and closes its parts, and knows when to evaluate and save."""

import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Literal

import torch

from assay.algorithms import Algorithm
from assay.callbacks import Callbacks, StageHistory
from assay.config.sections import RunSettings
from assay.engines.base import sampling_of
from assay.engines.open_engine import open_engine
from assay.environments import Environment
from assay.errors import TrainingError, UnhealthyError
from assay.evaluate.benchmark import benchmarks_of, run_benchmark
from assay.evaluate.report import (
    Evaluation,
    lost_too_many,
    metrics_of,
    read_report,
    write_report,
)
from assay.judges.open_judge import open_judge
from assay.maths.seeds import derive
from assay.policy.load_model import Policy
from assay.policy.source import ModelSource
from assay.policy.tokenizer import vocabulary
from assay.progress import Progress, counted
from assay.rewards import Reward
from assay.rollout.attempt import PromptedTask, RolloutContext, make_prompts
from assay.rollout.meter import standstill
from assay.rollout.play import play
from assay.rollout.prompter import Prompter
from assay.rollout.row_files import ROW_FILES
from assay.sync import in_own_thread, on_signals
from assay.trackers import Trackers, open_trackers
from assay.trackers.jsonl import read_steps
from assay.trackers.rollouts import write_rollouts
from assay.train.folder import StageFolder
from assay.train.inputs import Digests
from assay.train.learner import Learner, OpenLearner
from assay.train.open_learner import load_learning_policy, open_learner
from assay.train.replay import ReplaySource
from assay.train.screening import screen_tasks
from assay.train.sources import DatasetSource, RolloutSource, Source, StepData
from assay.types import Metrics, Rollout, Task

BASE = "base"
"""Name of the evaluation of the untrained model."""


@dataclass(frozen=True, slots=True)
class Stage:
    """All inputs of a stage, checked before anything is written."""

    settings: RunSettings
    model: ModelSource
    """What `policy.model` stands for."""
    algorithm: Algorithm
    reward: Reward
    environment: Environment
    tasks: list[Task]
    """Training tasks."""
    evaluation_tasks: dict[str, list[Task]]
    """By task set; empty without `evaluate`."""
    sets: Mapping[str, str]
    """By id, the set of each training task."""
    held_out: Mapping[str, Task] = field(default_factory=dict)
    """By id, the training tasks with the checks that are held out of the reward."""
    inputs: Digests = field(default_factory=dict)
    """Digests of tasks, plug-ins and a model on disk."""
    base: str = BASE
    """Name of the evaluation before the first step; empty where the stage before has made it."""
    callbacks: Callbacks = field(default_factory=Callbacks)
    """What may end the stage after a step."""

    @property
    def summary(self) -> str:
        """One line on what the stage does."""
        config = self.settings
        length = counted(config.steps, "step") if config.steps else f"{config.epochs:g} epochs"
        sets = (f", {len(tasks)} of {spec}" for spec, tasks in self.evaluation_tasks.items())
        tested = "".join(sets)
        rows = f"rows of {self.algorithm.file}"
        of_tasks = f"{counted(len(self.tasks), 'task')} of {config.tasks.spec}"
        learned = f"{of_tasks}, {rows}" if self.algorithm.file else of_tasks
        if not config.tasks.train:
            learned = f"{len(self.tasks)} {rows}"
        return (
            f"{config.stage}: {config.algorithm['name']} of {self.model.name}, {length}, {learned}"
            f"{tested and tested + ' to evaluate'}"
        )

    @property
    def generates(self) -> bool:
        """Whether the engine generates; it does not for SFT and pairs without evaluation."""
        return bool(self.evaluation_tasks) or self.algorithm.learns_from == "rollouts"

    @property
    def overlaps(self) -> bool:
        """Whether the engine generates while the policy learns, so that it needs its own copy."""
        stale = self.settings.rollout.max_staleness > 0
        return stale and self.algorithm.learns_from == "rollouts"

    @property
    def needs_judge(self) -> bool:
        """Whether any program runs: of a completion, or of a demonstration in an environment."""
        plays = self.algorithm.learns_from == "dialogues" and self.environment.script is not None
        return self.generates or plays


@dataclass(slots=True)
class StageRun:
    """A stage while it trains."""

    stage: Stage
    folder: StageFolder
    learner: Learner
    source: Source
    context: RolloutContext
    tracker: Trackers
    evaluation_prompts: dict[str, list[PromptedTask]]
    """By task set; empty without `evaluate`."""
    steps: int
    """Length of the stage."""
    done: int
    """Steps done."""
    saved: int
    """Steps that the newest checkpoint holds."""
    progress: Progress
    history: StageHistory
    """The steps so far, as callbacks read them."""
    stopping: bool = False
    """Whether to stop after the current step."""

    def remaining_steps(self) -> Iterator[int]:
        """Numbers of the steps to do, from 0; ends early when the run is asked to stop."""
        while self.done < self.steps and not self.stopping:
            yield self.done
            self.done += 1

    def is_due(self, what: Literal["evaluate", "save"], step: int) -> bool:
        """Whether to evaluate or save after step `step`: every so many steps, and after the last.

        A run that is asked to stop saves too, and `save.best` saves before each evaluation.
        """
        settings, done = self.stage.settings, step + 1
        evaluate = settings.evaluate.every if settings.evaluate else 0
        save = settings.save.every, evaluate if settings.save.best else 0
        periods = {"evaluate": (evaluate,), "save": save}[what]
        last = done == self.steps or (what == "save" and self.stopping)
        return last or any(every and done % every == 0 for every in periods)

    async def learn(self, data: StepData, step: int) -> Metrics:
        """Train on the samples of a step, in a thread: rollouts go on meanwhile. The trackers get
        its rollouts, with their advantages, where training fails too.
        """
        try:
            learned = await in_own_thread(self.learner.step, data.samples, step)
            self.source.learned(self.learner.learned_from)
            return learned
        finally:
            if data.groups:
                self.tracker.rollouts(step + 1, data.groups, self.learner.learned_from)

    def track(self, step: int, data: StepData, learned: Metrics) -> None:
        """Give the metrics of a step to the trackers, and ask the callbacks."""
        metrics = data.metrics | learned
        self.tracker.track(step + 1, metrics)
        self.history.add(step + 1, metrics, data.groups)
        self.end_if_asked(step + 1)

    def end_if_asked(self, done: int) -> None:
        """Ask the callbacks; make the stage end after `done` steps where one says so."""
        reason = self.stage.callbacks(self.history)
        if reason and 0 < done < self.steps:
            self.steps = done
            self.folder.note_end(done, reason)
            self.progress.say(
                f"{self.history.stage}: ends after step {done}: {reason}", result=True
            )

    async def run_missing_evaluation(self) -> None:
        """Evaluate the untrained policy, or the checkpoint, where that was due and is missing."""
        settings = self.stage.settings.evaluate
        before = settings is not None and settings.before and bool(self.stage.base)
        due = self.is_due("evaluate", self.done - 1) if self.done else before
        if due and not self.folder.is_evaluated(self.done):
            await self.evaluate(self.done - 1)

    async def evaluate(self, step: int) -> None:
        """Evaluate the policy after step `step`; -1 is before the first step.

        The report shows the newest evaluation of each stage.
        """
        settings, seed = self.stage.settings.evaluate, self.stage.settings.seed
        if settings is None:
            return
        done = step + 1
        name = self.stage.settings.stage if done else self.stage.base
        await self.context.engine.load(await in_own_thread(self.learner.whole_policy), done)
        evaluations: list[Evaluation] = []
        groups: list[list[Rollout]] = []
        with self.progress.interrupted():
            for benchmark in benchmarks_of(settings):
                prompts = self.evaluation_prompts[benchmark.tasks[0]]
                count = len(prompts) * benchmark.samples
                self.progress.phase("evaluating", count, most_tokens=count * benchmark.max_tokens)
                evaluation, new = await run_benchmark(
                    name, prompts, benchmark, self.context, derive(seed, "evaluate"),
                    on_row=lambda row: self.progress.advance(),
                )  # fmt: skip
                evaluations.append(evaluation)
                groups += new
        write_rollouts(self.folder.path / "evaluations" / f"step_{done:06d}.parquet", done, groups)
        write_report(self.folder.run, [*read_report(self.folder.run), *evaluations])
        metrics = metrics_of(evaluations)
        self.tracker.track(done, metrics)
        self.history.add(done, metrics)
        if not lost_too_many(evaluations[0], settings.max_lost):
            self.folder.track_best(done, metrics)
        if not any(lost_too_many(each, settings.max_lost) for each in evaluations):
            self.folder.note_evaluation(done)  # else a resumed run evaluates again
        self.end_if_asked(done)

    async def save(self, step: int) -> None:
        """Write a checkpoint, in a thread: rollouts go on meanwhile."""
        card, position = self.context.prompter.card(self.stage.tasks[0]), self.source.position
        await in_own_thread(self.folder.save, self.learner, step + 1, position, card)
        self.saved = step + 1

    async def save_unsaved_steps(self) -> None:
        """Save steps that have no checkpoint, because the run was stopped during an evaluation."""
        if self.saved < self.done:
            await self.save(self.done - 1)


@asynccontextmanager
async def open_run(
    stage: Stage, progress: Progress, make_learner: OpenLearner = open_learner
) -> AsyncIterator[StageRun]:
    """Open a stage with its policy, source, judge and trackers at its newest checkpoint.

    Raises UserError, before it writes to the stage's folder, when something cannot be used.
    """
    settings = stage.settings
    folder = StageFolder(settings)
    torch.manual_seed(derive(settings.seed, settings.stage, "policy"))
    progress.phase("loading model")
    policy = await in_own_thread(load_learning_policy, settings, stage.model)
    prompter = Prompter(policy.chat, stage.environment, settings.prompt)
    longest = settings.evaluate.max_tokens if settings.evaluate else 0
    evaluation = {
        spec: make_prompts(tasks, prompter, longest, policy.context)
        for spec, tasks in stage.evaluation_tasks.items()
    }
    async with AsyncExitStack() as closing:
        context = await _open_context(stage, policy, prompter, folder.path, progress, closing)
        progress.waiting = partial(
            standstill, {"engine": context.generation, "judge": context.judging}
        )
        progress.tokens = lambda: context.engine.tokens_generated
        closing.callback(setattr, progress, "tokens", int)  # else it would keep the engine's model
        closing.callback(setattr, progress, "waiting", str)
        source = await make_source(stage, policy, context, folder.path, progress)
        closing.push_async_callback(source.close)
        steps = settings.steps or max(1, round((settings.epochs or 1) * source.steps_per_epoch))
        learner = await in_own_thread(
            make_learner, settings, stage.algorithm, policy, steps, source.temperature
        )
        done = await in_own_thread(folder.restore, learner, source)
        end = folder.end_of(done, steps)
        if changes := folder.note_changes(done, end):
            progress.say(f"{settings.stage}: {changes}", result=True)
        folder.open(done)
        if changes := folder.note_inputs(stage.inputs, done):
            progress.say(f"{settings.stage}: {changes}", result=True)
        tracker = open_trackers(
            settings, folder.path, progress, start_step=done, total_steps=steps,
            tokens=partial(vocabulary, policy.chat.tokenizer) if stage.generates else None,
        )  # fmt: skip
        closing.callback(tracker.close)
        history = _history_of(folder, steps)
        run = StageRun(
            stage, folder, learner, source, context, tracker, evaluation, end, done, done,
            progress, history,
        )  # fmt: skip
        if done < end and folder.was_ended(done):
            run.end_if_asked(done)  # by other callbacks, or in a longer stage
        closing.enter_context(_stopping_on_signals(run))
        try:
            yield run
        except TrainingError as error:
            raise folder.explain(error) from error
        except UnhealthyError as error:
            raise folder.explain_stop(error) from error
        except OSError as error:
            raise folder.explain_disk(error) from error


def _history_of(folder: StageFolder, steps: int) -> StageHistory:
    """The steps of the stage so far, of `steps` in all."""
    history = StageHistory(folder.settings.stage, folder.path, steps)
    history.resume(read_steps(folder.path / "metrics.jsonl"))
    return history


async def _open_context(
    stage: Stage, policy: Policy, prompter: Prompter, logs: Path, progress: Progress,
    closing: AsyncExitStack,
) -> RolloutContext:  # fmt: skip
    """Start the judge, the reward and the engine; `closing` stops them."""
    settings, rollout = stage.settings, stage.settings.rollout
    learns_from_rollouts = stage.algorithm.learns_from == "rollouts"
    judge = open_judge(settings.judge)
    if stage.needs_judge:
        progress.phase("starting judge")
        await closing.enter_async_context(judge)
    if learns_from_rollouts:
        await closing.enter_async_context(stage.reward.open(judge))
    progress.phase("starting engine")
    opening = open_engine(
        policy,
        settings.engine,
        separate_copy=stage.overlaps,
        generates=stage.generates,
        logs=logs,
        seed=derive(settings.seed, settings.stage, "engine"),
    )
    engine = await closing.enter_async_context(opening)
    return RolloutContext(
        engine, judge, prompter, stage.environment, stage.reward, sampling_of(rollout),
        policy.context, rollout.score_turns, held_out=stage.held_out,
    )  # fmt: skip


async def make_source(
    stage: Stage, policy: Policy, context: RolloutContext, folder: Path, progress: Progress
) -> Source:
    """The source of the samples that the stage's algorithm learns from. `folder` is the stage's."""
    settings, algorithm, tasks = stage.settings, stage.algorithm, stage.tasks
    if algorithm.learns_from == "rollouts":
        training = await screen_tasks(
            settings, tasks, stage.model, stage.inputs, policy, context, folder, progress
        )
        source = RolloutSource(
            settings, training.tasks, policy, context, algorithm.max_resamples, stage.sets,
            training.results,
        )  # fmt: skip
        replay = settings.tasks.replay
        return ReplaySource(source, replay) if replay else source
    if algorithm.file:
        read = ROW_FILES[algorithm.learns_from].read
        rows = read(Path(algorithm.file), tasks, context.prompter)
    else:
        last_only = settings.dataset.assistant_turns == "last"
        samples = await play(tasks, context, progress, last_only=last_only)
        rows = [[sample] for sample in samples]
    return DatasetSource(settings, rows, policy, stage.sets)


@contextmanager
def _stopping_on_signals(run: StageRun) -> Iterator[None]:
    """On the first SIGINT, SIGTERM or SIGHUP the step still finishes; a second SIGINT or SIGTERM
    kills the process. Under `nohup` SIGHUP stays ignored. Outside of the main thread nothing is
    changed.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        run.stopping = True
        hangup = number == signal.SIGHUP  # a terminal that closes may send several
        signal.signal(number, signal.SIG_IGN if hangup else signal.SIG_DFL)
        with suppress(RuntimeError):  # the signal came in the middle of another write
            run.progress.say("finishing this step, then saving; press Ctrl-C again to stop now")

    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    with on_signals(stop, *(() if ignored else (signal.SIGHUP,))):
        yield
