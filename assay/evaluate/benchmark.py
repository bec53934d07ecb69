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
from assay.evaluate.sample_file import LostSample, SampleRow, rollout_of, row_of
from assay.maths.seeds import derive
from assay.rollout.attempt import PromptedTask, RolloutContext, attempt
from assay.rollout.group import score
from assay.rollout.meter import Meter
from assay.sync import together
from assay.tasks import load
from assay.types import Rollout, Task

ROUNDS = 2
"""Times that a completion is sampled and judged while the machine loses it; the second time after
all others, when a server may be back."""
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
    on_row: Callable[[SampleRow | LostSample], None] = lambda row: None,
) -> tuple[Evaluation, list[list[Rollout]]]:  # fmt: skip
    """`settings.samples` rollouts of every task, under `name` (a stage or a model).

    The score is whether tests pass, whatever `context` rewards. Each sample has a seed of its own,
    so `finished` rows, which are not sampled again, change no other. `on_row` gets every new row
    as soon as it is judged, and what the machine lost in all ROUNDS. Returns the evaluation of all
    rows, and the rollouts by task.
    """
    start = time.perf_counter()
    reward, sampling = rewards.build({"tests": {}}), sampling_of(settings)
    axes = axes_of(settings)
    tests_only = replace(
        context, sampling=sampling, reward=reward, scores_turns=False, generation=Meter(),
        judging=Meter(),
    )  # fmt: skip
    stored = {(row.task_id, row.sample): row for row in finished}
    rows: dict[tuple[str, int], SampleRow | LostSample] = {**stored}
    rollouts = dict[tuple[str, int], Rollout]()

    async def run_one(task_number: int, sample: int, is_last: bool) -> Rollout:
        prompted = prompts[task_number]
        rollout = await attempt(prompted, tests_only, derive(derive(seed, task_number), sample))
        (scored,) = await axes([rollout])
        rows[prompted.task.id, sample] = row = row_of(scored, sample, settings.axes)
        if is_last or isinstance(row, SampleRow):
            on_row(row)
        return rollout

    async def run_task(task_number: int, task_id: str, is_last: bool) -> None:
        keys = [(task_id, sample) for sample in range(settings.samples)]
        missing = [key for key in keys if is_missing(rows.get(key))]
        new = await together(run_one(task_number, sample, is_last) for _, sample in missing)
        rollouts.update(zip(missing, await score(new, tests_only), strict=True))

    async with axes.open(context.judge):
        for number in range(1, 1 + ROUNDS):
            await together(
                run_task(n, prompt.task.id, number == ROUNDS) for n, prompt in enumerate(prompts)
            )
    groups = [
        [
            rollouts.get((prompt.task.id, n)) or rollout_of(stored[prompt.task.id, n], prompt.task)
            for n in range(settings.samples)
        ]
        for prompt in prompts
    ]
    seconds = time.perf_counter() - start
    return evaluation_of(name, prompts, settings, list(rows.values()), seconds), groups


def is_missing(row: SampleRow | LostSample | None) -> bool:
    """Whether a completion is to be sampled, once more if the machine lost it. Nobody can judge one
    of a task that cannot be judged.
    """
    return row is None or (isinstance(row, LostSample) and not row.unjudged)


def evaluation_of(
    name: str, prompts: Sequence[PromptedTask], settings: EvaluateSettings,
    rows: Sequence[SampleRow | LostSample], seconds: float, failure: str = "",
) -> Evaluation:  # fmt: skip
    """The evaluation of the rows that there are; others are lost because of the `failure`. Raises
    MachineError without a judged one.
    """
    by_place = {(row.task_id, row.sample): row for row in rows}
    in_order = [
        by_place.get((prompt.task.id, n)) or LostSample(prompt.task.id, n, failure)
        for prompt in prompts
        for n in range(settings.samples)
    ]
    labels = {prompt.task.id: labels_of(prompt.task) for prompt in prompts}
    return summarise(name, settings, in_order, seconds=seconds, labels=labels)
