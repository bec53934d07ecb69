"""Checks of a stage's settings before it starts: errors where nothing could be learned, warnings
where little would be.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.algorithms import algorithms
from assay.config.sections import RunSettings
from assay.errors import SettingsError
from assay.evaluate.overlap import also_trained_on
from assay.policy.chat import open_chat
from assay.policy.load import (
    context_of_model,
    has_config,
    is_mixture,
    pick_device,
    tokenizer_source,
)
from assay.policy.onednn import has_bfloat16
from assay.policy.tokenizer import load_tokenizer
from assay.prompts import messages
from assay.types import Sample, Task

log = logging.getLogger(__name__)


def check_settings(
    settings: RunSettings, learns_from: str, tasks: Sequence[Task], adapted: bool,
    dry_run: bool = False
) -> None:  # fmt: skip
    """Log a warning for each doubtful setting. A `dry_run` asks nothing of a model on the hub.

    Raises SettingsError where nothing could be learned.
    """
    for reason in _errors(settings, learns_from, dry_run):
        raise SettingsError(f"stage {settings.stage!r}: {reason}")
    for reason in _warnings(settings, learns_from, tasks, adapted):
        log.warning("stage %r: %s", settings.stage, reason)


def warn_of_template(sft: RunSettings, row: Task, rl: RunSettings, task: Task) -> None:
    """Log a warning, with both prompts, where a chat model learns from rows without tests, which
    get no template, and is then asked with one. Rows of messages say themselves what is asked.
    """
    policy = sft.policy
    if row.checks or row.messages or policy.model == "tiny":
        return
    tokenizer = load_tokenizer(tokenizer_source(policy.model), policy.trust_remote_code)
    learned = messages(row, "", sft.prompt)[-1].content
    prompt = messages(task, "", rl.prompt)[-1].content
    differ = learned == row.prompt and prompt != task.prompt
    if differ and open_chat(tokenizer, policy.chat, ()).has_template:
        log.warning(
            "stage %r learns to answer %r, and stage %r asks %r: rows without tests get no"
            " template; set prompt.template in the first, or give its rows tests",
            sft.stage, learned, rl.stage, prompt,
        )  # fmt: skip


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


def _errors(settings: RunSettings, learns_from: str, dry_run: bool) -> Iterator[str]:
    rollout, model = settings.rollout, settings.policy.model
    if settings.tasks.weights and learns_from == "pairs":
        yield "tasks.weights has no effect on a file of pairs; leave it out"
    if learns_from == "rollouts":
        if not _rewards_can_teach(settings):
            yield (
                f"with rollout.tasks_per_step = {rollout.tasks_per_step} and rollout.group_size ="
                f" {rollout.group_size} every advantage of {settings.algorithm['name']} is 0,"
                " whatever the rewards; raise rollout.group_size"
            )
        elsewhere = not settings.engine.kind.in_process or rollout.max_staleness > 0
        has_shapes = has_config(settings.policy, dry_run)
        context = context_of_model(settings.policy) if has_shapes else None
        if has_shapes and elsewhere and is_mixture(settings.policy):
            yield (
                f"{model!r} is a mixture of experts, and generating and learning would send tokens"
                " to different experts, which ruins such models; set engine.name = 'torch' and"
                " rollout.max_staleness = 0"
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


def _warnings(
    settings: RunSettings, learns_from: str, tasks: Sequence[Task], adapted: bool
) -> Iterator[str]:
    rate, evaluate, rollout = settings.optimizer.lr, settings.evaluate, settings.rollout
    if rate and rate < 5e-6 and adapted:
        yield (
            f"optimizer.lr = {rate:g} hardly moves adapters; they need ten times the learning rate"
            " of full training"
        )
    on_cpu = pick_device(settings.policy.device).type == "cpu"
    if settings.policy.dtype == "bfloat16" and on_cpu and not has_bfloat16():
        yield (
            "policy.dtype = 'bfloat16' learns 2.6 to 25 times slower than float32 on this"
            " processor, which has no instructions for it"
        )
    if settings.steps and settings.optimizer.warmup_steps >= settings.steps:
        yield (
            f"optimizer.warmup_steps = {settings.optimizer.warmup_steps} of {settings.steps} steps:"
            " the learning rate never reaches its peak"
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
        there = sum(len(task.demonstrations) or task.reference is not None for task in tasks)
        if batch > there:
            yield (
                f"dataset.batch_size = {batch}, but there are {there} demonstrations: each is in a"
                " batch more than once"
            )
    if learns_from == "rollouts":
        if rollout.tasks_per_step == 1:
            yield (
                "rollout.tasks_per_step = 1: each step follows the noise of one task; use 8 or more"
            )
        if rollout.max_staleness and settings.algorithm.get("importance_sampling") == "none":
            yield (
                "algorithm.importance_sampling = 'none' with rollout.max_staleness: nothing"
                " corrects for the older weights that sampled the tokens"
            )
        if rollout.tasks_per_step > len(tasks):
            yield (
                f"rollout.tasks_per_step = {rollout.tasks_per_step}, but there are {len(tasks)}"
                " tasks: a step uses some of them twice"
            )


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
