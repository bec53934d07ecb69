"""What a stage will take: memory by part, seconds of a step, disk. A few real steps measure it, the
largest micro-batch first, so that what does not fit is known before anything trains.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from assay.config.load import Plan
from assay.engines.base import GenerationRequest, sampling_of
from assay.errors import SettingsError
from assay.evaluate.benchmark import benchmarks_of
from assay.maths.seeds import derive
from assay.policy.load import is_adapted
from assay.progress import Progress
from assay.sync import in_own_thread, together
from assay.trackers.rollouts import write_rollouts
from assay.train.memory import DeviceMemory, in_words
from assay.train.run import Run, Stage, open_run
from assay.train.stages import prepare_all, with_start
from assay.types import Metrics, Sample

PROBE = 4
"""The first micro-batch that is tried is this fraction of the largest."""
ACTIVATIONS, KV_CACHE, PROCESS = "activations", "KV cache", "this process"
SAMPLED = ("rollout/truncated", "rollout/zero_variance_groups", "reward/pass_rate")


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one stage takes. Bytes are of the policy's device, seconds are of one step."""

    stage: str
    steps: int
    parts: Mapping[str, int]
    """Bytes by part. Not all are held at the same time."""
    peak: int
    """The most bytes that are held at once."""
    room: int
    """Bytes that the device has for this process."""
    seconds: Metrics
    """`step`, and in it `generate`, `judge`, `learn`; `evaluate` is one evaluation."""
    sample: Metrics
    """Shares over the completions of the step, with the weights at the start of the run."""
    disk: int
    """Bytes of the checkpoints that are kept, and of all rollouts."""
    disk_free: int


def forecast(plan: Plan, progress: Progress) -> list[Forecast]:
    """Measure every stage of a plan, in a folder that is deleted again.

    Each starts from the model of its settings, since the stage before has not trained. Raises
    SettingsError that names the setting to change if a stage does not fit; UserError for what
    cannot be used.
    """
    made = []
    with TemporaryDirectory(prefix="assay-plan-") as folder:
        for stage in prepare_all(plan, progress=progress):
            temporary = stage.settings.model_copy(update={"folder": folder, "trackers": ()})
            started = with_start(replace(stage, settings=temporary), None)
            free = shutil.disk_usage(_nearest(Path(stage.settings.folder))).free
            made.append(asyncio.run(_measure(replace(stage, settings=started), progress, free)))
    return made


async def _measure(stage: Stage, progress: Progress, disk_free: int) -> Forecast:
    settings, memory = stage.settings, DeviceMemory(torch.device("cpu"))
    name, process = settings.stage, memory.used
    async with open_run(stage, progress) as run:
        device = run.learner.policy.device
        if device.type != "cpu":
            memory, process = DeviceMemory(device), 0
        progress.phase(f"measuring {name}")
        room, parts = memory.free + memory.used, {PROCESS: process} | _static_parts(run)
        run.learner.optimizer.lr = 0.0  # these steps change no weight
        budget = run.learner.micro_batch_tokens
        tried = [run.source.longest(max(1, tokens)) for tokens in (budget // PROBE, budget)]
        for samples in tried:
            parts[ACTIVATIONS] = await _activations(run, samples, parts["gradients"], memory)
            likely = parts[ACTIVATIONS] * _tokens(tried[-1]) // _tokens(samples)
            _require_room(stage, parts | {ACTIVATIONS: likely}, room, device, budget)
        learning, before = memory.peak, memory.used
        memory.reset_peak()
        seconds, sample, rollouts = await _one_step(run)
        parts[KV_CACHE] = max(0, memory.peak - before) if stage.generates else 0
        peak = learning + parts[KV_CACHE] if stage.overlaps else max(learning, memory.peak)
    saved = (
        _size(run.learner.policy.trainable.values())
        if is_adapted(settings.policy)
        else parts["weights"]
    )
    state = parts["optimizer"] + parts["master weights"]
    disk = (settings.save.keep + 1) * (saved + state) + rollouts * run.steps
    if disk > disk_free:
        raise SettingsError(
            f"stage {name!r} writes {in_words(disk)} below {settings.folder}, where"
            f" {in_words(disk_free)} are free; lower save.keep, or choose another folder"
        )
    return Forecast(name, run.steps, parts, peak, room, seconds, sample, disk, disk_free)


def _static_parts(run: Run) -> dict[str, int]:
    """What is held through all of training; gradients while the learner works."""
    learner, settings = run.learner, run.stage.settings
    model, optimizer = learner.policy.model, learner.optimizer
    masters = optimizer.masters.values()
    own = [m for name, m in optimizer.masters.items() if m is not optimizer.parameters[name]]
    weights = _size([*model.parameters(), *model.buffers()])
    copies = run.stage.generates and settings.engine.copies_policy(run.stage.overlaps)
    reference = learner.reference.weights.values() if learner.reference else ()
    return {
        "weights": weights,
        "master weights": _size(own),
        "gradients": _size(masters),
        "optimizer": 2 * _size(masters),
        "reference": 2 * _size(reference),
        "critic": _size(learner.critic.parameters()) if learner.critic else 0,
        "engine's copy": weights if copies else 0,
    }


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(one.nbytes for one in tensors)


async def _activations(
    run: Run, samples: Sequence[Sample], gradients: int, memory: DeviceMemory
) -> int:
    """Bytes that learning from the samples takes beside what stays."""
    memory.reset_peak()
    await run.learn(samples, 0)
    return max(0, memory.peak - memory.used - gradients)


def _tokens(samples: Sequence[Sample]) -> int:
    return sum(len(one.tokens) for one in samples)


def _require_room(
    stage: Stage, parts: Mapping[str, int], room: int, device: torch.device, budget: int
) -> None:
    """Raises SettingsError that names the largest part which a setting can make smaller."""
    needed = sum(parts.values())
    if needed <= room:
        return
    left = room - needed + parts[ACTIVATIONS]
    if left > parts[ACTIVATIONS] // 16:
        fits = budget * left // parts[ACTIVATIONS]
        advice = f"lower learner.micro_batch_tokens from {budget} to {fits}"
        if not stage.settings.policy.gradient_checkpointing:
            advice += ", or set policy.gradient_checkpointing"
    elif stage.settings.policy.lora is None:
        advice = "train an adapter with policy.lora, or take a smaller policy.model"
    else:
        advice = "set policy.quantize = 'nf4', or take a smaller policy.model"
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    named = ", ".join(f"{name} {in_words(size)}" for name, size in largest)
    raise SettingsError(
        f"stage {stage.settings.stage!r} needs about {in_words(needed)} of {device}, which has"
        f" {in_words(room)} ({named}); {advice}"
    )


async def _one_step(run: Run) -> tuple[Metrics, Metrics, int]:
    """Seconds and shares of a real step and of as many completions of an evaluation as run at
    once; and the bytes of the step's rollouts.
    """
    start = time.perf_counter()
    await run.source.publish(run.learner, 0)
    data = await run.source.next(0)
    learned = await run.learn(data.samples, 0)
    metrics = data.metrics | learned
    seconds = {
        part: metrics[f"time/{part}"]
        for part in ("generate", "judge", "learn")
        if f"time/{part}" in metrics
    }
    seconds["step"] = time.perf_counter() - start
    if run.evaluation_prompts:
        seconds["evaluate"] = await _evaluation_seconds(run)
    file = run.folder.path / "step.parquet"
    write_rollouts(file, 1, data.groups)
    size = file.stat().st_size if data.groups else 0
    return seconds, {name: data.metrics[name] for name in SAMPLED if name in data.metrics}, size


async def _evaluation_seconds(run: Run) -> float:
    """Seconds to generate an evaluation's completions, from as many as run at once."""
    settings, engine = run.stage.settings.evaluate, run.context.engine
    assert settings is not None, "there are prompts"
    sets = [(run.evaluation_prompts[one.tasks[0]], one.samples) for one in benchmarks_of(settings)]
    wanted = [one for prompts, samples in sets for one in prompts for _ in range(samples)]
    await engine.load(await in_own_thread(run.learner.whole_policy), 0)
    start, sampling = time.perf_counter(), sampling_of(settings)
    requests = [
        GenerationRequest(one.prompt, derive(run.stage.settings.seed, number), one.stop)
        for number, one in enumerate(wanted[: engine.max_concurrent])
    ]
    await together(engine.generate(one, sampling) for one in requests)
    return (time.perf_counter() - start) * len(wanted) / len(requests)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
