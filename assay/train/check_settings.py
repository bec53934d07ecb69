"""Checks of a stage's settings before it starts: errors where nothing could be learned, warnings
where little would be.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from assay import choices
from assay.algorithms import algorithms
from assay.config.sections import RunSettings
from assay.environments import repository_tests
from assay.errors import SettingsError
from assay.evaluate.overlap import also_trained_on
from assay.judge.kinds.find import kind_of
from assay.policy.load_model import pick_device
from assay.policy.onednn import has_bfloat16
from assay.policy.source import ModelFacts
from assay.rollout.row_files import ROW_FILES
from assay.types import Sample, Task

log = logging.getLogger(__name__)
HIGHEST_LR, LOWEST_LR = 100.0, 0.001
"""Multiples of the default learning rate beyond which one is warned of."""
LONGEST_PRODUCT = 512
"""Tokens of a completion up to which a product of their ratios is not warned of."""


def check_settings(
    settings: RunSettings, learns_from: str, tasks: Sequence[Task], adapted: bool,
    facts: ModelFacts | None, usual_lr: float,
) -> None:  # fmt: skip
    """Log a warning for each doubtful setting. `facts` of the model are None where nobody asks, and
    `usual_lr` is the default learning rate of such a model.

    Raises SettingsError where nothing could be learned.
    """
    require_learnable(settings, learns_from, tasks, facts)
    rate = settings.optimizer.lr if facts else None
    if rate and (reason := _implausible_lr(rate, usual_lr, adapted)):
        log.warning("stage %r: %s", settings.stage, reason)
    for reason in _warnings(settings, learns_from, tasks):
        log.warning("stage %r: %s", settings.stage, reason)


def require_learnable(
    settings: RunSettings, learns_from: str, tasks: Sequence[Task], facts: ModelFacts | None
) -> None:
    """Raises SettingsError where nothing could be learned, on whatever machine."""
    for reason in _errors(settings, learns_from, tasks, facts):
        raise SettingsError(f"stage {settings.stage!r}: {reason}")


def warn_of_overlap(
    stage: str, spec: str, train: Sequence[Task], bench_spec: str, bench: Sequence[Task]
) -> None:
    """Log a warning if tasks of an evaluation's set are in the training set `spec`, by exact copies
    alone.
    """
    if bench_spec != spec and (same := also_trained_on(train, bench)):
        log.warning(
            "stage %r: %d of %d tasks of %s are also in %s, such as %s: their pass rate says"
            " nothing about other tasks; `assay overlap %s %s` shows them",
            stage, len(same), len(bench), bench_spec, spec, same[0], spec, bench_spec,
        )  # fmt: skip


def unpaid_tasks(settings: RunSettings, tasks: Sequence[Task]) -> list[Task]:
    """The tasks whose every pass the program could have forged, where those are not rewarded."""
    if settings.judge.allow_forgeable or not {*settings.rewards} <= {"tests", "milestones"}:
        return []
    return [task for task in tasks if any(kind_of(check).always_forgeable for check in task.checks)]


def _errors(
    settings: RunSettings, learns_from: str, tasks: Sequence[Task], facts: ModelFacts | None
) -> Iterator[str]:
    rollout = settings.rollout
    if settings.tasks.weights and learns_from in ROW_FILES:
        yield f"tasks.weights has no effect on a file of {learns_from}; leave it out"
    if learns_from == "rollouts":
        choices.build(settings.tasks.choice)
        if settings.tasks.replay:
            yield from _replay_errors(settings.algorithm)
        if tasks and len(unpaid_tasks(settings, tasks)) == len(tasks):
            yield (
                f"every reward would be 0: a program could forge each pass of the {len(tasks)}"
                " tasks (their tests run beside it), and such passes are not paid; set"
                " judge.allow_forgeable = true to reward them"
            )
        others = (task for task in tasks if "milestones" in settings.rewards)
        if other := next((task for task in others if not repository_tests(task)), None):
            yield (
                f"the reward 'milestones' pays repairs of repositories, and task {other.id!r} is"
                " none; take rewards.tests, or leave such tasks out"
            )
        if not _rewards_can_teach(settings):
            yield (
                f"with rollout.tasks_per_step = {rollout.tasks_per_step} and rollout.group_size ="
                f" {rollout.group_size} every advantage of {settings.algorithm['name']} is 0,"
                " whatever the rewards; raise rollout.group_size"
            )
        elsewhere = not settings.engine.kind.in_process or rollout.max_staleness > 0
        context, here = facts.context if facts else None, settings.learner.name == "torch"
        if facts and here and elsewhere and facts.is_mixture:
            yield (
                f"{facts.name!r} is a mixture of experts, and generating and learning would send"
                " tokens to different experts, which ruins such models; set engine.name = 'torch'"
                " and rollout.max_staleness = 0"
            )
        corrected = settings.algorithm.get("importance_sampling") != "none"
        if not corrected and any("fp8" in word for word in settings.engine.arguments):
            yield (
                "engine.arguments asks for fp8, whose rounding algorithm.importance_sampling ="
                " 'none' leaves uncorrected; omit one of them"
            )
        if context and rollout.max_tokens >= context:
            yield (
                f"rollout.max_tokens = {rollout.max_tokens} leaves no room for a prompt in the"
                f" model's context of {context} tokens; lower it"
            )


def _replay_errors(table: Mapping[str, Any]) -> Iterator[str]:
    """Why an algorithm of these settings cannot learn from replayed rollouts."""
    algorithm = algorithms[table["name"]].build(table)
    if not algorithm.learns_replays:
        yield (
            f"tasks.replay needs a loss that weights each token by its ratio to the sampler, and"
            f" {table['name']}'s does not; set algorithm.name = 'dppo', or 'cispo' with"
            " algorithm.anchor = 'sampler'"
        )
    if algorithm.loss_mean != "tokens":
        yield (
            "tasks.replay.share is of tokens, and algorithm.loss_mean ="
            f" {algorithm.loss_mean!r} weighs a replayed rollout as much as a whole"
            " prompt or completion; set algorithm.loss_mean = 'tokens'"
        )
    for name, value in (("zero_variance_groups", "drop"), ("mask_truncated", True)):
        if table.get(name) == value:
            yield (
                f"tasks.replay.share is of all sampled tokens, and algorithm.{name} ="
                f" {str(value).lower() if value is True else repr(value)} leaves some out of the"
                " loss; omit one of them"
            )


def _implausible_lr(rate: float, usual: float, adapted: bool) -> str:
    """A warning of a learning rate far from the default of the model; empty if it is not far."""
    if rate < 5e-6 and adapted:
        return (
            f"optimizer.lr = {rate:g} hardly moves adapters; they need ten times the learning rate"
            " of full training"
        )
    which = f"optimizer.lr = {rate:g}, where {usual:g} is usual for this model,"
    if rate > HIGHEST_LR * usual:
        return f"{which} may ruin the weights within a few steps; lower it, or leave it out"
    if rate < LOWEST_LR * usual:
        return f"{which} hardly moves the weights; raise it, or leave it out"
    return ""


def _length(settings: RunSettings, learns_from: str, tasks: Sequence[Task]) -> float:
    """The steps of the stage, about, where its length is in epochs; inf where only the
    file of rows says it.
    """
    if settings.steps:
        return settings.steps
    if learns_from in ROW_FILES:
        return inf
    if learns_from == "rollouts":
        of_epoch = len(tasks) / settings.rollout.tasks_per_step
    else:
        of_epoch = _demonstrations(tasks) / settings.dataset.batch_size
    return max(1, round((settings.epochs or 1) * of_epoch))


def _demonstrations(tasks: Sequence[Task]) -> int:
    """At most how many: a reference that no model can write counts too, since only its kind of test
    tells it apart.
    """
    return sum(len(task.demonstrations) or task.reference is not None for task in tasks)


def _slow_in_bfloat16(device: str) -> bool:
    return pick_device(device).type == "cpu" and not has_bfloat16()


def _warnings(settings: RunSettings, learns_from: str, tasks: Sequence[Task]) -> Iterator[str]:
    evaluate = settings.evaluate
    if settings.policy.dtype == "bfloat16" and _slow_in_bfloat16(settings.policy.device):
        yield (
            "policy.dtype = 'bfloat16' learns 2.6 to 25 times slower than float32 on this"
            " processor, which has no instructions for it"
        )
    steps, warmup = _length(settings, learns_from, tasks), settings.optimizer.warmup_steps
    if warmup and warmup >= steps:
        yield (
            f"optimizer.warmup_steps = {warmup} of {steps:.0f} steps: the learning rate never"
            " reaches its peak"
        )
    if settings.save.best and not (evaluate and evaluate.every):
        yield (
            "save.best compares evaluations, and there is one at most; set evaluate.tasks and"
            " evaluate.every"
        )
    for spec in evaluate.tasks if evaluate else ():
        if spec in settings.tasks.train:
            yield (
                f"evaluate.tasks = {spec!r} is trained on: its pass rate says nothing about other"
                " tasks"
            )
    if learns_from == "dialogues":
        batch = settings.dataset.batch_size
        there = _demonstrations(tasks)
        if batch > there:
            yield (
                f"dataset.batch_size = {batch}, but there are {there} demonstrations: each is in a"
                " batch more than once"
            )
    if learns_from == "rollouts":
        yield from _rollout_warnings(settings, tasks)


def _rollout_warnings(settings: RunSettings, tasks: Sequence[Task]) -> Iterator[str]:
    rollout = settings.rollout
    if unpaid := unpaid_tasks(settings, tasks):
        yield (
            f"{len(unpaid)} of {len(tasks)} tasks, such as {unpaid[0].id!r}, are never paid: a"
            " program could forge each of their passes; set judge.allow_forgeable = true to"
            " reward them, or leave them out"
        )
    if rollout.tasks_per_step == 1:
        yield ("rollout.tasks_per_step = 1: each step follows the noise of one task; use 8 or more")
    if rollout.max_staleness and settings.algorithm.get("importance_sampling") == "none":
        yield (
            "algorithm.importance_sampling = 'none' with rollout.max_staleness: nothing"
            " corrects for the older weights that sampled the tokens"
        )
    if rollout.max_tokens > LONGEST_PRODUCT:
        for name, value, other in _products(settings):
            yield (
                f"algorithm.{name} = {value!r} is a product over completions of up to"
                f" {rollout.max_tokens} tokens, not normalised by their length: rounding and"
                f" small steps add up until nearly all are clipped; use {other!r}"
            )
    if rollout.tasks_per_step > len(tasks):
        yield (
            f"rollout.tasks_per_step = {rollout.tasks_per_step}, but the training tasks are"
            f" {len(tasks)}: a step samples a task up to"
            f" {-(-rollout.tasks_per_step // len(tasks))} times, in groups of their own, and"
            f" {rollout.tasks_per_step * rollout.group_size:,} completions in all; lower it"
        )


def _products(settings: RunSettings) -> Iterator[tuple[str, str, str]]:
    """Each setting that multiplies the ratios of whole completions, its value and a better one.

    With one gradient step a batch, a ratio to the policy before it is 1, so its product is too.
    """
    fields = algorithms[settings.algorithm["name"]].settings.model_fields
    options = {name: field.default for name, field in fields.items()} | settings.algorithm
    moves = options.get("epochs") != 1 or options.get("minibatches") != 1
    if options.get("ratio") == "product" and (moves or options.get("anchor") == "sampler"):
        yield "ratio", "product", "mean"
    correction = str(options.get("importance_sampling"))
    if correction.startswith("sequence_"):
        yield "importance_sampling", correction, correction.replace("sequence", "token")


def _rewards_can_teach(settings: RunSettings) -> bool:
    """Whether very different rewards give any nonzero advantage, in a fresh algorithm."""
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    nothing, expected = (0.0,) * 3, (0.0, 0.25, 0.5)
    mask = (False, True, True)
    blank = Sample(
        (0,) * 3, mask, nothing, old_logprobs=nothing, reference_logprobs=nothing, values=expected
    )
    steps = [
        [
            replace(
                blank,
                reward=float(passed := (task + member + step) % 2),
                passed=bool(passed),
                group=str(task),
            )
            for task in range(min(settings.rollout.tasks_per_step, 2))
            for member in range(settings.rollout.group_size)
        ]
        for step in (1, 2)
    ]
    return any(
        any(sample.advantages) for batch in steps for sample in algorithm.compute_advantages(batch)
    )
