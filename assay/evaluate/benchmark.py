"""Samples and judges completions of every task, and sums them up with intervals."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from assay import environments, rewards
from assay.config.sections import EvaluateSettings
from assay.engines.base import sampling_of
from assay.environments import Environment
from assay.evaluate.counts import labels_of
from assay.evaluate.report import Evaluation, summarise
from assay.evaluate.samples import SampleRow, rollout_of, row_of
from assay.maths.seeds import derive
from assay.rollout.attempt import PromptedTask, RolloutContext, attempt
from assay.rollout.group import score
from assay.rollout.meter import Meter
from assay.sync import together
from assay.tasks import load
from assay.types import Rollout, Task

GREEDY = {"samples": 1, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


def axes_of(settings: EvaluateSettings) -> rewards.Reward:
    """The terms that an evaluation reports beside tests. Raises SettingsError for an unknown one,
    or one that cannot do without parameters.
    """
    return rewards.Reward([rewards.term(name, {}) for name in settings.axes])


def load_sets(settings: EvaluateSettings, environment: Environment) -> dict[str, list[Task]]:
    """The tasks of each task set. Raises UserError for a set that cannot be used, or not in this
    environment.
    """
    sets = {spec: load(spec, limit=settings.limit) for spec in settings.tasks}
    for spec, tasks in sets.items():
        environments.require_fit(environment, tasks, spec)
    return sets


def benchmarks_of(settings: EvaluateSettings) -> list[EvaluateSettings]:
    """One for each task set, with greedy decoding behind it if that is wanted too."""
    benchmarks = []
    for spec in dict.fromkeys(settings.tasks):
        benchmarks.append(settings.model_copy(update={"tasks": (spec,), "greedy": False}))
        if settings.greedy and settings.temperature:
            benchmarks.append(benchmarks[-1].model_copy(update=GREEDY))
    return benchmarks


async def run_benchmark(
    name: str, prompts: Sequence[PromptedTask], settings: EvaluateSettings,
    context: RolloutContext, seed: int, *, finished: Sequence[SampleRow] = (),
    on_row: Callable[[SampleRow | None], None] = lambda row: None,
) -> tuple[Evaluation, list[list[Rollout]]]:  # fmt: skip
    """`settings.samples` rollouts of every task, under `name` (a stage or a model).

    The score is whether tests pass, whatever `context` rewards. Each sample has a seed of its own,
    so `finished` rows, which are not sampled again, change no other. `on_row` gets every new row
    as soon as it is judged, and None for a rollout that the machine failed. Returns the evaluation
    of all rows, and the rollouts by task.
    """
    start = time.perf_counter()
    reward, sampling = rewards.build({"tests": {}}), sampling_of(settings)
    axes = axes_of(settings)
    tests_only = replace(
        context, sampling=sampling, reward=reward, scores_turns=False, generation=Meter(),
        judging=Meter(),
    )  # fmt: skip
    rows = {(row.task_id, row.sample): row for row in finished}

    async def run_one(task_number: int, sample: int) -> Rollout:
        prompted = prompts[task_number]
        rollout = await attempt(prompted, tests_only, derive(derive(seed, task_number), sample))
        (scored,) = await axes([rollout])
        row = row_of(scored, sample, settings.axes)
        if row is not None:
            rows[row.task_id, row.sample] = row
        on_row(row)
        return rollout

    async def run_task(task_number: int, task_id: str) -> list[Rollout]:
        numbers = range(settings.samples)
        stored = {n: rows[task_id, n] for n in numbers if (task_id, n) in rows}
        missing = [n for n in numbers if n not in stored]
        rollouts = await together(run_one(task_number, sample) for sample in missing)
        new = dict(zip(missing, await score(rollouts, tests_only), strict=True))
        task = prompts[task_number].task
        return [new[n] if n in new else rollout_of(stored[n], task) for n in numbers]

    async with axes.open(context.judge):
        groups = await together(run_task(n, prompt.task.id) for n, prompt in enumerate(prompts))
    in_order = [
        rows.get((prompt.task.id, n)) for prompt in prompts for n in range(settings.samples)
    ]
    failure = next(filter(None, (rollout.failure for group in groups for rollout in group)), None)
    seconds = time.perf_counter() - start
    labels = {prompt.task.id: labels_of(prompt.task) for prompt in prompts}
    return (
        summarise(name, settings, in_order, seconds=seconds, failure=failure, labels=labels),
        groups,
    )
