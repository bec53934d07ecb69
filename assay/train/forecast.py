"""What a stage will take: memory by part, seconds of a step, disk. It is estimated first, then
measured while that is cheap beside the run and tells something new: micro-batches first, so that
what does not fit is known before anything trains.
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

from assay.config.load_settings import Plan
from assay.config.sections import RunSettings
from assay.engines.base import GenerationRequest, sampling_of
from assay.errors import SettingsError
from assay.evaluate.benchmark import benchmarks_of
from assay.maths.seeds import derive
from assay.progress import Progress
from assay.sync import in_own_thread, on_signals, run_in_thread, together
from assay.trackers.rollouts import write_rollouts
from assay.train.estimate import Forecast, estimate, evaluations_of, static_parts
from assay.train.memory import DeviceMemory, in_words
from assay.train.run import Stage, StageRun, open_run
from assay.train.stages import prepare_all, with_start
from assay.train.timing import Timing
from assay.types import Metrics, Sample

PROBE = 4
"""The first micro-batch that is tried is this fraction of the largest."""
ACTIVATIONS, KV_CACHE, PROCESS = "activations", "KV cache", "this process"
TRIES = 50
SAMPLED = ("rollout/truncated", "rollout/zero_variance_groups", "reward/pass_rate")


def forecast(plan: Plan, progress: Progress, *, quick: bool = False) -> list[Forecast]:
    """Estimate every stage of a plan, say so, and, unless it must be `quick`, measure each in a
    folder that is deleted again. SIGINT and SIGTERM end the process at once.

    Each starts from the model of its settings, since the stage before has not trained. Raises
    SettingsError that names the setting to change if a stage does not fit; UserError for what
    cannot be used.
    """
    with TemporaryDirectory(prefix="assay-plan-") as folder, _ending_at_once(Path(folder)):
        free = shutil.disk_usage(_nearest(Path(plan.stages[0].folder))).free
        stages, estimates = [], []
        for stage in prepare_all(plan, progress=progress):
            tasks = stage.settings.tasks.model_copy(update={"screen": None})
            temporary = stage.settings.model_copy(
                update={"folder": folder, "trackers": (), "tasks": tasks}
            )
            stages.append(with_start(replace(stage, settings=temporary), None))
            progress.phase(f"estimating {temporary.stage}")
            estimated = replace(estimate(stages[-1]), disk_free=free)
            _require_room(stages[-1], estimated.parts, estimated.room)
            _require_disk(stage.settings, estimated.disk, free)
            room = f"holds {in_words(estimated.peak)} of {in_words(estimated.room)}"
            progress.say(f"estimated for {estimated.line}; it {room}, and activations")
            estimates.append(estimated)
        if quick:
            return estimates
        return [
            run_in_thread(_measure(stage, estimated, progress))
            for stage, estimated in zip(stages, estimates, strict=True)
        ]


@contextmanager
def _ending_at_once(folder: Path) -> Iterator[None]:
    """On a signal the process ends, whatever its threads compute; children end with it."""

    def end(number: int, frame: FrameType | None) -> None:
        for _ in range(TRIES):  # threads go on writing there meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.02)
        os._exit(128 + number)

    with on_signals(end):
        yield


async def _measure(stage: Stage, estimated: Forecast, progress: Progress) -> Forecast:
    """The estimate, corrected by what was measured."""
    settings, memory = stage.settings, DeviceMemory(torch.device("cpu"))
    name, process = settings.stage, memory.used
    async with open_run(stage, progress) as run:
        device = run.learner.policy.device
        if device.type != "cpu":
            memory, process = DeviceMemory(device), 0
        progress.phase(f"measuring {name}")
        room, timing = memory.free + memory.used, Timing(estimated)
        parts = {PROCESS: process} | static_parts(stage, run.learner.policy)
        run.learner.optimizer.lr = 0.0  # these steps change no weight
        memory.reset_peak()
        learning = await _measure_learning(run, timing, parts, room, memory)
        before, sample, rollouts = memory.used, dict[str, float](), 0
        memory.reset_peak()
        if timing.wants("step"):
            sample, rollouts = await _one_step(run, timing)
        if run.evaluation_prompts:
            await _measure_evaluation(run, timing)
        parts[KV_CACHE] = max(0, memory.peak - before) if stage.generates else 0
        peak = learning + parts[KV_CACHE] if stage.overlaps else max(learning, memory.peak)
    disk = estimated.disk + rollouts * run.steps
    _require_disk(settings, disk, estimated.disk_free)
    return replace(
        estimated, steps=run.steps, evaluations=evaluations_of(settings, run.steps), parts=parts,
        peak=peak, room=room, seconds=timing.seconds, sample=sample, disk=disk,
        measured=tuple(timing.measured),
    )  # fmt: skip


def _require_disk(settings: RunSettings, disk: int, free: int) -> None:
    if disk > free:
        raise SettingsError(
            f"stage {settings.stage!r} writes {in_words(disk)} below {settings.folder}, where"
            f" {in_words(free)} are free; lower save.keep, or choose another folder"
        )


async def _measure_learning(
    run: StageRun, timing: Timing, parts: dict[str, int], room: int, memory: DeviceMemory
) -> int:
    """Learn from a small micro-batch, then from the largest, and add the activations of the
    largest to the parts. The bytes that learning holds at most.
    """
    budget, peak = run.learner.micro_batch_tokens, memory.used
    largest = _tokens(run.source.longest(budget))
    affordable = timing.estimated.tokens * timing.left / timing.seconds["learn"]
    for tokens in (max(1, min(budget, int(affordable)) // PROBE), budget):
        samples = run.source.longest(tokens)
        share = _tokens(samples) / timing.estimated.tokens
        if not timing.wants("learn", share):
            break
        start = time.perf_counter()
        measured = await _activations(run, samples, parts["gradients"], memory)
        timing.add({"learn": time.perf_counter() - start}, share)
        parts[ACTIVATIONS] = measured * largest // _tokens(samples)
        peak = memory.peak + parts[ACTIVATIONS] - measured
        _require_room(run.stage, parts, room, budget)
    return peak


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


async def _one_step(run: StageRun, timing: Timing) -> tuple[Metrics, int]:
    """Take a real step: shares of its completions, and the bytes of its rollouts."""
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
    timing.add(seconds | {"step": time.perf_counter() - start})
    file = run.folder.path / "step.parquet"
    write_rollouts(file, 1, data.groups)
    size = file.stat().st_size if data.groups else 0
    return {name: data.metrics[name] for name in SAMPLED if name in data.metrics}, size


async def _measure_evaluation(run: StageRun, timing: Timing) -> None:
    """Generate as many completions of an evaluation as run at once."""
    settings, engine = run.stage.settings.evaluate, run.context.engine
    assert settings is not None, "there are prompts"
    sets = [
        (run.evaluation_prompts[benchmark.tasks[0]], benchmark.samples)
        for benchmark in benchmarks_of(settings)
    ]
    prompted = [prompt for prompts, samples in sets for prompt in prompts for _ in range(samples)]
    at_once = prompted[: engine.max_concurrent]
    share = len(at_once) / len(prompted)
    if not timing.wants("evaluate", share):
        return
    await engine.load(await in_own_thread(run.learner.whole_policy), 0)
    start, sampling = time.perf_counter(), sampling_of(settings)
    requests = [
        GenerationRequest(prompt.prompt, derive(run.stage.settings.seed, number), prompt.stop)
        for number, prompt in enumerate(at_once)
    ]
    await together(engine.generate(request, sampling) for request in requests)
    timing.add({"evaluate": time.perf_counter() - start}, share)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
