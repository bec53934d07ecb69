"""What a stage will take: memory by part, seconds of a step, disk. A few real steps measure it, the
largest micro-batch first, so that what does not fit is known before anything trains.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import torch

from assay.config.load import Plan
from assay.engines.base import GenerationRequest, sampling_of
from assay.errors import SettingsError
from assay.evaluate.benchmark import benchmarks_of
from assay.maths.seeds import derive
from assay.policy.load import is_adapted
from assay.progress import Progress
from assay.sync import in_own_thread, on_signals, run_in_thread, together
from assay.trackers.rollouts import write_rollouts
from assay.train.estimate import Forecast, estimate, evaluations_of, size_of, static_parts
from assay.train.memory import DeviceMemory, in_words
from assay.train.run import Stage, StageRun, open_run
from assay.train.stages import prepare_all, with_start
from assay.types import Metrics, Sample

PROBE = 4
"""The first micro-batch that is tried is this fraction of the largest."""
ACTIVATIONS, KV_CACHE, PROCESS = "activations", "KV cache", "this process"
SAMPLED = ("rollout/truncated", "rollout/zero_variance_groups", "reward/pass_rate")


def forecast(plan: Plan, progress: Progress) -> list[Forecast]:
    """Estimate every stage of a plan, say so, and measure each in a folder that is deleted again.
    SIGINT and SIGTERM end the process at once.

    Each starts from the model of its settings, since the stage before has not trained. Raises
    SettingsError that names the setting to change if a stage does not fit; UserError for what
    cannot be used.
    """
    with TemporaryDirectory(prefix="assay-plan-") as folder, _ending_at_once(Path(folder)):
        stages = []
        for stage in prepare_all(plan, progress=progress):
            temporary = stage.settings.model_copy(update={"folder": folder, "trackers": ()})
            started = with_start(replace(stage, settings=temporary), None)
            stages.append(replace(stage, settings=started))
            progress.phase(f"estimating {started.stage}")
            estimated = estimate(stages[-1])
            _require_room(stages[-1], estimated.parts, estimated.room)
            room = f"holds {in_words(estimated.peak)} of {in_words(estimated.room)}"
            progress.say(f"estimated for {estimated.line}; it {room}, and activations")
        free = shutil.disk_usage(_nearest(Path(plan.stages[0].folder))).free
        return [run_in_thread(_measure(stage, progress, free)) for stage in stages]


@contextmanager
def _ending_at_once(folder: Path) -> Iterator[None]:
    """On a signal the process ends, whatever its threads compute; children end with it."""

    def end(number: int, frame: FrameType | None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)

    with on_signals(end):
        yield


async def _measure(stage: Stage, progress: Progress, disk_free: int) -> Forecast:
    settings, memory = stage.settings, DeviceMemory(torch.device("cpu"))
    name, process = settings.stage, memory.used
    async with open_run(stage, progress) as run:
        device = run.learner.policy.device
        if device.type != "cpu":
            memory, process = DeviceMemory(device), 0
        progress.phase(f"measuring {name}")
        room = memory.free + memory.used
        parts = {PROCESS: process} | static_parts(stage, run.learner.policy)
        run.learner.optimizer.lr = 0.0  # these steps change no weight
        budget = run.learner.micro_batch_tokens
        tried = [run.source.longest(max(1, tokens)) for tokens in (budget // PROBE, budget)]
        for samples in tried:
            parts[ACTIVATIONS] = await _activations(run, samples, parts["gradients"], memory)
            likely = parts[ACTIVATIONS] * _tokens(tried[-1]) // _tokens(samples)
            _require_room(stage, parts | {ACTIVATIONS: likely}, room, budget)
        learning, before = memory.peak, memory.used
        memory.reset_peak()
        seconds, sample, rollouts = await _one_step(run)
        parts[KV_CACHE] = max(0, memory.peak - before) if stage.generates else 0
        peak = learning + parts[KV_CACHE] if stage.overlaps else max(learning, memory.peak)
    saved = (
        size_of(run.learner.policy.trainable.values())
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
    return Forecast(
        name, run.steps, evaluations_of(settings, run.steps), parts, peak, room, seconds, sample,
        disk, disk_free,
    )  # fmt: skip


async def _activations(
    run: StageRun, samples: Sequence[Sample], gradients: int, memory: DeviceMemory
) -> int:
    """Bytes that learning from the samples takes beside what stays."""
    memory.reset_peak()
    await in_own_thread(run.learner.step, samples, 0)
    return max(0, memory.peak - memory.used - gradients)


def _tokens(samples: Sequence[Sample]) -> int:
    return sum(len(sample.tokens) for sample in samples)


def _require_room(stage: Stage, parts: Mapping[str, int], room: int, budget: int = 0) -> None:
    """Raises SettingsError that names the largest part which a setting can make smaller."""
    needed = sum(parts.values())
    if needed <= room:
        return
    activations = parts.get(ACTIVATIONS, 0)
    left = room - needed + activations
    if left > activations // 16:
        fits = budget * left // activations
        advice = f"lower learner.micro_batch_tokens from {budget} to {fits}"
        if not stage.settings.policy.gradient_checkpointing:
            advice += ", or set policy.gradient_checkpointing"
    elif stage.settings.policy.lora is None:
        advice = "train an adapter with policy.lora, or take a smaller policy.model"
    else:
        advice = "set policy.quantize = 'nf4', or take a smaller policy.model"
    largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
    parts_named = ", ".join(f"{name} {in_words(size)}" for name, size in largest)
    raise SettingsError(
        f"stage {stage.settings.stage!r} needs about {in_words(needed)} of the device, which"
        f" has {in_words(room)} ({parts_named}); {advice}"
    )


async def _one_step(run: StageRun) -> tuple[Metrics, Metrics, int]:
    """Seconds and shares of a real step and of as many completions of an evaluation as run at
    once; and the bytes of the step's rollouts.
    """
    start = time.perf_counter()
    await run.source.publish(run.learner, 0)
    data = await run.source.next(0)
    learned = await in_own_thread(run.learner.step, data.samples, 0)
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


async def _evaluation_seconds(run: StageRun) -> float:
    """Seconds to generate an evaluation's completions, from as many as run at once."""
    settings, engine = run.stage.settings.evaluate, run.context.engine
    assert settings is not None, "there are prompts"
    sets = [
        (run.evaluation_prompts[benchmark.tasks[0]], benchmark.samples)
        for benchmark in benchmarks_of(settings)
    ]
    prompted = [prompt for prompts, samples in sets for prompt in prompts for _ in range(samples)]
    await engine.load(await in_own_thread(run.learner.whole_policy), 0)
    start, sampling = time.perf_counter(), sampling_of(settings)
    requests = [
        GenerationRequest(prompt.prompt, derive(run.stage.settings.seed, number), prompt.stop)
        for number, prompt in enumerate(prompted[: engine.max_concurrent])
    ]
    await together(engine.generate(request, sampling) for request in requests)
    return (time.perf_counter() - start) * len(prompted) / len(requests)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
