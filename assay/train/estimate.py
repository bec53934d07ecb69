"""What a stage may take, from the shapes of its model and a few matrix products on this machine:
an answer in seconds, before anything of it is loaded or measured.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from assay.config.sections import RunSettings
from assay.evaluate.benchmark import benchmarks_of
from assay.policy.load_model import Policy, is_adapted, load_policy
from assay.policy.teacher import load_teacher
from assay.progress import counted
from assay.rollout.prompter import Prompter
from assay.rollout.row_files import ROW_FILES
from assay.train.memory import DeviceMemory
from assay.train.run import Stage
from assay.types import Metrics

SAMPLED, TRIAL = 32, 0.2
"""Tasks whose tokens are counted, and seconds that a machine's speed is tried for."""
REACHED = 0.5
"""Share of a matrix product's speed that a model's layers reach."""
TOGETHER, PACKED = 64, 512
"""Most completions that are generated at once, and tokens that a layer learns from at once."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one stage takes. Bytes are of the policy's device, seconds are of one step."""

    stage: str
    steps: int
    evaluations: int
    parts: Mapping[str, int]
    """Bytes by part. Not all are held at the same time."""
    peak: int
    """The most bytes that are held at once."""
    room: int
    """Bytes that the device has for this process."""
    seconds: Metrics
    """`step`, and in it `generate`, `judge`, `learn`; `evaluate` is one evaluation."""
    sample: Metrics
    """Shares over the completions of the step, with the weights at the start of the run; empty
    where none was taken."""
    disk: int
    """Bytes of the checkpoints that are kept, and of all rollouts."""
    disk_free: int
    tokens: float
    """Tokens that the learner gets in a step, as estimated."""
    changes: Mapping[str, str]
    """What makes each part of the run shorter, by settings that the stage uses."""
    measured: tuple[str, ...] = ()
    """The measurements in their order; what is not measured is estimated."""

    @property
    def total(self) -> float:
        """Seconds of all steps and evaluations."""
        evaluate = self.seconds.get("evaluate", 0.0)
        return self.steps * self.seconds["step"] + self.evaluations * evaluate

    @property
    def line(self) -> str:
        """Its time in one line, with what takes most of it and what makes that shorter."""
        order = ("generate", "judge", "learn", "step", "evaluate")
        seconds = ", ".join(
            f"{part} {self.seconds[part]:.1f}" for part in order if part in self.seconds
        )
        counts = dict.fromkeys(self.changes, self.steps)
        if "evaluate" in counts:
            counts["evaluate"] = self.evaluations
        most = max(counts, key=lambda part: counts[part] * self.seconds.get(part, 0.0))
        return (
            f"{self.stage}: {counted(self.steps, 'step')}; seconds of the first: {seconds};"
            f" the whole stage {in_time(self.total)}, most of it to {most}:"
            f" to shorten that, {self.changes[most]}"
        )


def estimate(stage: Stage) -> Forecast:
    """The estimate of a stage: completions count as if all had their most tokens, and the memory
    of activations and the disk are not estimated. Of the model only its configuration and its
    tokenizer are read. Raises UserError for a model that cannot be used.
    """
    settings, rollout = stage.settings, stage.settings.rollout
    policy = load_policy(settings.policy, stage.model, empty=True)
    generates = stage.algorithm.learns_from == "rollouts"
    of_task = rollout.group_size if generates else 1
    rows = rollout.tasks_per_step * of_task if generates else settings.dataset.batch_size
    tokens = rows * _mean_tokens(stage, policy)
    size = sum(parameter.numel() for parameter in policy.model.parameters())
    trained = sum(parameter.numel() for parameter in policy.trainable.values())
    width = policy.model.config.get_text_config().hidden_size
    learning, generating = (
        _speed(width, policy.model.dtype, policy.device, count) * REACHED
        for count in (PACKED, min(TOGETHER, rows))
    )
    passes = 4 + 2 * (trained == size) + 2 * stage.algorithm.needs_reference
    taught = 2 * sum(tensor.numel() for tensor in teacher_of(stage, policy))
    seconds = {"learn": (passes * size + taught) * tokens / learning}
    if generates:
        seconds["generate"] = 2 * size * rows * rollout.max_tokens / generating
    seconds["step"] = sum(seconds.values())
    if settings.evaluate:
        count = sum(
            len(stage.evaluation_tasks[benchmark.tasks[0]])
            * benchmark.samples
            * benchmark.max_tokens
            for benchmark in benchmarks_of(settings.evaluate)
        )
        seconds["evaluate"] = 2 * size * count / generating
    steps = settings.steps or max(
        1, round((settings.epochs or 1) * len(stage.tasks) * of_task / rows)
    )
    memory, parts = DeviceMemory(policy.device), static_parts(stage, policy)
    return Forecast(
        settings.stage, steps, evaluations_of(settings, steps), parts, sum(parts.values()),
        memory.free + memory.used, seconds, {}, checkpoints_size(stage, parts, policy), 0,
        tokens, changes_of(stage),
    )  # fmt: skip


def changes_of(stage: Stage) -> dict[str, str]:
    """What makes each part of a stage shorter: only settings that this stage uses."""
    settings, learn = stage.settings, "lower dataset.batch_size"
    changes = {}
    if stage.algorithm.learns_from == "rollouts":
        learn = "lower rollout.group_size or rollout.max_tokens"
        changes = {
            "generate": "lower rollout.max_tokens, rollout.group_size or rollout.tasks_per_step",
            "judge": "lower rollout.group_size, or add judge.servers",
        }
    if not is_adapted(settings.policy, stage.model):
        learn = f"train an adapter with policy.lora, or {learn}"
    changes["learn"] = learn
    if settings.evaluate:
        changes["evaluate"] = "lower evaluate.limit, evaluate.samples or evaluate.max_tokens"
    return changes


def checkpoints_size(stage: Stage, parts: Mapping[str, int], policy: Policy) -> int:
    """Bytes of the checkpoints that are kept, and of the one that is being written."""
    settings = stage.settings
    adapted = is_adapted(settings.policy, stage.model)
    saved = size_of(policy.trainable.values()) if adapted else parts["weights"]
    return (settings.save.keep + 1) * (saved + parts["optimizer"] + parts["master weights"])


def evaluations_of(settings: RunSettings, steps: int) -> int:
    """How many evaluations a stage makes."""
    evaluate = settings.evaluate
    if evaluate is None:
        return 0
    return 1 + evaluate.before + (steps - 1) // (evaluate.every or steps)


def static_parts(stage: Stage, policy: Policy) -> dict[str, int]:
    """Bytes that are held through all of training, by part; gradients while the learner works."""
    settings, algorithm, model = stage.settings, stage.algorithm, policy.model
    trained = policy.trainable.values()
    masters = 4 * sum(parameter.numel() for parameter in trained)
    weights = size_of([*model.parameters(), *model.buffers()])
    copies = stage.generates and settings.engine.copies_policy(stage.overlaps)
    width = model.config.get_text_config().hidden_size
    return {
        "weights": weights,
        "master weights": 4
        * sum(parameter.numel() for parameter in trained if parameter.dtype != torch.float32),
        "gradients": masters,
        "optimizer": 2 * masters,
        "reference": 2 * size_of(trained)
        if algorithm.needs_reference and not policy.starts_as_base
        else 0,
        "teacher": size_of(teacher_of(stage, policy)),
        "critic": 4 * width if algorithm.needs_critic else 0,
        "engine's copy": weights if copies else 0,
    }


def teacher_of(stage: Stage, policy: Policy) -> list[Tensor]:
    """The weights of the stage's teacher, without their values; empty where it has none. Raises
    UserError for a teacher that cannot be used.
    """
    name, settings = stage.algorithm.teacher, stage.settings.policy
    if not name:
        return []
    teacher = load_teacher(name, policy, settings, empty=True)
    return [*teacher.parameters(), *teacher.buffers()]


def size_of(tensors: Iterable[Tensor]) -> int:
    """Their bytes."""
    return sum(tensor.nbytes for tensor in tensors)


def in_time(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`, `2.1 days`."""
    for unit, size in (("days", 86_400), ("h", 3600)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _mean_tokens(stage: Stage, policy: Policy) -> float:
    """Tokens of one row that the learner gets, by the first tasks."""
    settings, algorithm = stage.settings, stage.algorithm
    prompter = Prompter(policy.chat, stage.environment, settings.prompt)
    some = stage.tasks[:SAMPLED]
    if algorithm.learns_from == "rollouts":
        return fmean(len(prompter.prompt(task)) for task in some) + settings.rollout.max_tokens
    if algorithm.file:
        read = ROW_FILES[algorithm.learns_from].read
        rows = read(Path(algorithm.file), stage.tasks, prompter)[:SAMPLED]
    else:
        rows = [prompter.samples(task) for task in some]
    return fmean(sum(len(sample.tokens) for sample in row) for row in rows)


def _speed(width: int, dtype: torch.dtype, device: torch.device, rows: int) -> float:
    """Operations a second of a layer's matrix product for so many tokens at once."""
    layer = torch.rand(width, 4 * width, device=device).to(dtype)
    tokens = torch.rand(rows, width, device=device).to(dtype)
    start, count = time.perf_counter(), 0
    while (seconds := time.perf_counter() - start) < TRIAL:
        float((tokens @ layer)[0, 0])  # waits for the device
        count += 1
    return 2 * rows * layer.numel() * count / seconds
