"""The screen of a stage: before RL it samples the training tasks with the model that the stage
starts from, and leaves out those from which RL would learn nothing.

`screen/` in the stage's folder holds the samples, and screen.json with the key and the result. A
stage that resumes uses a result of the same key, and any once it has a checkpoint.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.config.evaluation import EvaluationRun
from assay.config.sections import EvaluateSettings, PolicySettings, RunSettings, ScreenSettings
from assay.errors import DataError, MachineError
from assay.evaluate.counts import TaskResult
from assay.evaluate.protocol import hash_of, identity, setup_of
from assay.evaluate.sample_file import LostSample, SampleFile
from assay.evaluate.screen import ScreenRule, how_often, sample_until_decided
from assay.files import remove, saved_table, write_atomically
from assay.maths.seeds import derive
from assay.policy.load_model import Policy
from assay.policy.source import ModelSource
from assay.progress import Progress, counted
from assay.rollout.attempt import PromptedTask, RolloutContext, make_prompts
from assay.train.inputs import Digests
from assay.types import Task

MOST_LOST = 0.01
"""Share of a screen's completions that the machine may lose, as of an evaluation's."""


@dataclass(frozen=True, slots=True)
class TrainingTasks:
    """The tasks that a stage trains on, with what is known of them before its first step."""

    tasks: Sequence[Task]
    results: Sequence[TaskResult] = ()
    """Passes of those that were screened."""


async def screen_tasks(
    settings: RunSettings, tasks: Sequence[Task], model: ModelSource, inputs: Digests,
    policy: Policy, context: RolloutContext, folder: Path, progress: Progress,
) -> TrainingTasks:  # fmt: skip
    """The tasks that `tasks.screen` keeps; without it, all. `model` and `policy` are what the stage
    starts from, and `folder` is the stage's.

    Raises DataError where it keeps none, MachineError where the machine lost too many completions.
    """
    if not (screen := settings.tasks.screen):
        return TrainingTasks(tasks)
    rollout, file = settings.rollout, folder / "screen" / "screen.json"
    prompts = make_prompts(
        tasks, context.prompter, rollout.max_tokens, policy.context, settings.tasks.too_long
    )
    evaluation = EvaluateSettings(
        tasks=settings.tasks.train, samples=screen.samples, temperature=rollout.temperature,
        max_tokens=rollout.max_tokens,
    )  # fmt: skip
    key = _key_of(settings, evaluation, model, inputs, context, prompts)
    stored = saved_table(file)
    has_learned = "results" in stored and any((folder / "checkpoints").glob("step_*"))
    if stored.get("key") != key and not has_learned:  # else tasks would change under its steps
        remove(file.parent)
        stored = {"key": key}
        write_atomically(file, json.dumps(stored))
    if "results" not in stored:
        await context.engine.load(policy, 0)
        rule = rule_of(screen)
        with SampleFile(file.with_name("samples.jsonl")) as samples:
            results, lost = await sample_until_decided(
                prompts, rule, screen.first, evaluation, context,
                derive(settings.seed, settings.stage, "screen"), samples, progress,
            )  # fmt: skip
            _require_few_lost(len(samples.rows), lost)
        ids = [result.id for result in results if rule.is_kept(result)]
        stored |= {
            "solved": how_often(results), "kept": ids, "results": [asdict(it) for it in results],
        }  # fmt: skip
        write_atomically(file, json.dumps(stored, indent=1))
    return _kept(settings, tasks, stored, progress)


def rule_of(screen: ScreenSettings) -> ScreenRule:
    """The rule that the settings state."""
    at_most = screen.samples - 1 if screen.at_most is None else screen.at_most
    return ScreenRule(screen.samples, screen.at_least, at_most)


def _kept(
    settings: RunSettings, tasks: Sequence[Task], stored: dict[str, Any], progress: Progress
) -> TrainingTasks:
    """The tasks that the stored result keeps; says how many. Raises DataError if there are none."""
    ids, results = set(stored["kept"]), [TaskResult(**row) for row in stored["results"]]
    remaining = [task for task in tasks if task.id in ids]
    solved = ", ".join(f"{count} {often}" for often, count in stored["solved"].items())
    completions = counted(sum(result.samples for result in results), "completion")
    summary = f"{completions} of {counted(len(results), 'task')} ({solved})"
    if not remaining:
        raise DataError(
            f"tasks.screen keeps none of {settings.tasks.spec}: {summary}; take other tasks or"
            " another model, or raise tasks.screen.samples"
        )
    progress.say(f"{settings.stage}: screened, {summary}; {len(remaining)} kept", result=True)
    return TrainingTasks(remaining, [result for result in results if result.id in ids])


def _require_few_lost(judged: int, lost: Sequence[LostSample]) -> None:
    """Raises MachineError with the first failure: tasks would be left out for want of samples."""
    if len(lost) > MOST_LOST * (judged + len(lost)):
        raise MachineError(
            f"{len(lost)} completions of the screen of training tasks were lost to the machine; the"
            f" first: {lost[0].failure}; the others are kept: start the run again for those that"
            " are lost"
        )


def _key_of(
    settings: RunSettings, evaluation: EvaluateSettings, model: ModelSource, inputs: Digests,
    context: RolloutContext, prompts: Sequence[PromptedTask],
) -> str:  # fmt: skip
    """Identifies everything that the result of the screen depends on, by content."""
    whatever = {"gradient_checkpointing": PolicySettings().gradient_checkpointing}
    policy = settings.policy.model_copy(update=whatever)  # of the learner alone
    evaluation = evaluation.model_copy(update={"tasks": ("",)})  # their contents are in the prompts
    run = EvaluationRun(
        seed=settings.seed, policy=policy, engine=settings.engine, evaluate=evaluation,
        judge=settings.judge, environment=settings.environment,
    )  # fmt: skip
    digest = model.digest
    name = "" if digest else model.name  # where its content is known, its path does not count
    setup = identity(setup_of(run, name, digest, context.prompter, prompts))
    plugins = {name: digest for name, digest in inputs.items() if name.startswith("plug-in ")}
    screen = settings.tasks.screen
    more = [screen.model_dump() if screen else None, plugins, settings.stage]
    return hash_of([setup, *more])
