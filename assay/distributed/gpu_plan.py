"""Says whether a run fits on GPUs that this machine need not have: `assay plan --gpus 8xH100`.

It reads the model's configuration alone. Servers get the GPUs of `engine.gpus`, and the learner has
a rank on each of the others, as `torchrun` starts them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import torch

from assay import environments, prompts
from assay.algorithms import Algorithm, algorithms
from assay.config.generation import EngineSettings
from assay.config.load_settings import Plan
from assay.config.sections import PolicySettings, RunSettings
from assay.distributed.cards import GB, MOST_GPUS, PER_MACHINE, Gpus, in_gb
from assay.distributed.rank_memory import (
    COPY,
    GRADIENTS,
    Load,
    ModelTensors,
    Parts,
    peak_of,
    rank_memory,
)
from assay.distributed.server_memory import SERVER_RESERVE, ServerMemory, server_memory
from assay.distributed.whole_copy import generates, generates_with_it, overlaps
from assay.engines.vllm.server import MAX_NUM_SEQS, bytes_per_token
from assay.errors import SettingsError
from assay.policy.load_model import empty_model, is_adapted, require_adapter
from assay.policy.source import context_of, source_of
from assay.tasks import load
from assay.train.check_settings import require_learnable, unpaid_tasks
from assay.train.memory import GPU_SHARE, micro_batch_tokens_in
from assay.types import Task

CHARACTERS = 3
"""Of a prompt's token, about: no tokenizer is asked."""
SAMPLED = 32
"""Tasks of each set whose prompts are counted."""
ENGINE_COPY, KV_CACHE, SERVER = "engine's copy", "KV cache", "vLLM server beside it"
AT_MOST, MOST_WAYS = 3, 4
"""Changes that are made together before nothing is said to help, and ways out that are named."""


@dataclass(frozen=True, slots=True)
class StageOnGpus:
    """What one stage takes of the GPUs."""

    stage: str
    gpus: str
    ranks: int
    """Processes that learn."""
    longest: int
    """Tokens of its longest sequence, prompt included."""
    micro_batch_tokens: int
    """Tokens of the largest micro-batch."""
    several: bool
    """Whether a rank has more than one micro-batch in a gradient step."""
    parameters: int
    room: int
    """Bytes of a GPU for tensors."""
    leader: Parts
    """Bytes by part on rank 0 when it holds most."""
    rank: Parts
    """The same on any other rank; empty where there is none."""
    server: ServerMemory | None
    """One GPU of a server; None without vLLM servers."""
    problems: tuple[str, ...]
    """What does not fit, each with the settings that change it. Empty: all fits."""
    notes: tuple[str, ...]
    """What fits, and could be better."""

    @property
    def peak(self) -> int:
        """Bytes on rank 0, which holds most."""
        return sum(self.leader.values())


class ModelShapes:
    """Models without weights, each built once."""

    def __init__(self) -> None:
        self._models: dict[str, ModelTensors] = {}

    def of(self, settings: PolicySettings) -> ModelTensors:
        """The model of these settings. Raises UserError for one that cannot be used."""
        key = settings.model_dump_json(include={"model", "dtype", "lora", "tiny"})
        if key not in self._models:
            self._models[key] = model = ModelTensors(empty_model(settings))
            if not hasattr(model.config, "num_attention_heads"):
                raise SettingsError(
                    f"--gpus: {model.config.model_type!r} has no attention heads to count by;"
                    " measure it with `assay plan` on a GPU"
                )
        return self._models[key]


def plan_on(plan: Plan, gpus: Gpus, longest: int = 0) -> list[StageOnGpus]:
    """What each stage of a run takes of such GPUs. Raises UserError as `on_gpus` does."""
    stages, adapted = [], False
    for settings, anew in zip(plan.stages, plan.starts_anew, strict=True):
        with plan.blaming(settings.stage):
            source = source_of(settings.policy, needs_tokenizer=False)
            adapted = is_adapted(settings.policy, source) or (adapted and not anew)
            stages.append(on_gpus(settings, gpus, longest, adapted=adapted))
    return stages


def on_gpus(
    settings: RunSettings, gpus: Gpus, longest: int = 0, *, adapted: bool = False
) -> StageOnGpus:
    """What a stage takes of such GPUs. `longest`: tokens of its longest sequence; by default the
    longest prompt of its first tasks, about, and all replies at their limit. `adapted`: whether it
    trains adapters, its own or those of the stage before.

    Raises UserError for a model, tasks or settings that cannot be used, by a run too.
    """
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    source = source_of(settings.policy, needs_tokenizer=False).converted()
    require_adapter(settings.policy, adapted or is_adapted(settings.policy, source))
    tasks = _first_tasks(settings, SAMPLED)
    if tasks and len(unpaid_tasks(settings, tasks)) == len(tasks):  # others may be paid
        tasks = _first_tasks(settings, settings.tasks.limit)
    require_learnable(settings, algorithm.learns_from, tasks, source.facts)
    shapes = ModelShapes()
    model = shapes.of(settings.policy)
    if not longest:
        longest = _longest(settings, algorithm, tasks, context_of(model.config))
    planned = planned_on(settings, gpus, shapes, longest)
    problems = [*_misplaced(settings, gpus, algorithm)]
    if planned.peak > planned.room:
        ways = ways_out(partial(_fits, shapes, longest), settings, gpus, planned)
        problems.append(_refusal(planned, ways))
    notes: list[str] = []
    if planned.server:
        problems += _server_problems(planned.server)
        notes = _server_notes(planned.server)
    return replace(planned, problems=tuple(problems), notes=tuple(notes))


def planned_on(settings: RunSettings, gpus: Gpus, shapes: ModelShapes, longest: int) -> StageOnGpus:
    """What a stage takes of such GPUs, without a word on what to change."""
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    model, engine = shapes.of(settings.policy), settings.engine
    ranks = _ranks(settings, gpus)
    dtype = torch.bfloat16 if model.size == 2 else torch.float32
    memory = gpus.card.memory_gb * GB // GPU_SHARE
    budget = micro_batch_tokens_in(memory, settings, model.config, dtype)
    sequences = _rows(settings, algorithm) / algorithm.minibatches
    tokens = max(budget, longest * (2 if algorithm.whole_groups else 1))
    teacher = settings.policy.model_copy(update={"model": algorithm.teacher, "lora": None})
    adapted = settings.policy.lora is not None
    sharing = min(ranks, PER_MACHINE) if settings.learner.hybrid_shard else ranks
    learning = Load(
        ranks, tokens, several=sequences * longest > ranks * tokens, shards=sharing,
        checkpointed=bool(settings.policy.gradient_checkpointing),
        offloaded=settings.policy.gradient_checkpointing == "offload",
        reference=algorithm.needs_reference and not adapted, critic=algorithm.needs_critic,
        teacher=shapes.of(teacher).whole() if algorithm.teacher else 0,
        quantized=bool(settings.policy.quantize),
    )  # fmt: skip
    moments = rank_memory(model, learning)
    rank = peak_of(moments)
    server = None
    if _has_servers(settings, algorithm):
        servers = len(engine.servers) or engine.data_parallel
        at_once = -(-_in_flight(settings) // servers)
        server = server_memory(model, engine, gpus.card, longest, at_once)
    leader = _leader(settings, algorithm, model, moments, server, is_sharded=ranks > 1)
    return StageOnGpus(
        settings.stage, str(gpus), ranks, longest, tokens, learning.several, model.numbers,
        gpus.card.room, leader, rank if ranks > 1 else {}, server, (), (),
    )  # fmt: skip


def _leader(
    settings: RunSettings, algorithm: Algorithm, model: ModelTensors, moments: dict[str, Parts],
    server: ServerMemory | None, *, is_sharded: bool,
) -> Parts:  # fmt: skip
    """The parts of rank 0. It loads the whole weights before ranks shard them, and keeps them where
    the engine computes with them. An engine in its process generates while it learns if rollouts
    are stale, else before.
    """
    engine, whole = settings.engine, model.whole(bool(settings.policy.quantize))
    stale = overlaps(settings, algorithm)
    beside: Parts = {}
    cache: Parts = {}
    if generates(settings, algorithm) and engine.kind.in_process:
        dtype = "float32" if model.size == 4 and engine.dtype == "policy" else "bfloat16"
        cache = {KV_CACHE: engine.kv_cache_tokens * bytes_per_token(model.config, dtype)}
        if engine.copies_policy(stale):
            beside[ENGINE_COPY] = whole // (2 if model.size == 4 and dtype == "bfloat16" else 1)
    if server and not engine.servers and not engine.gpus:
        beside[SERVER] = server.weights + server.kv_cache + SERVER_RESERVE
    start = beside | ({COPY: whole} if is_sharded else {})
    if is_sharded and generates_with_it(settings, algorithm):
        beside[COPY] = whole
    idle = {name: size for name, size in peak_of(moments).items() if name in _between(moments)}
    learning = peak_of(moments) | beside | (cache if stale else {})
    return peak_of({"start": start, "learning": learning, "generation": idle | beside | cache})


def _between(moments: dict[str, Parts]) -> set[str]:
    """The parts that are held between steps: those of every moment but gradients."""
    return set.intersection(*map(set, moments.values())) - {GRADIENTS}


def _ranks(settings: RunSettings, gpus: Gpus) -> int:
    """The processes of one torchrun, in every stage: one for each GPU that no server is given."""
    engine = settings.engine
    starts = engine.name == "vllm" and not engine.servers
    return max(1, gpus.count - len(set(engine.gpus))) if starts else gpus.count


def _has_servers(settings: RunSettings, algorithm: Algorithm) -> bool:
    return generates(settings, algorithm) and settings.engine.name == "vllm"


def _rows(settings: RunSettings, algorithm: Algorithm) -> int:
    """Sequences of one step."""
    if algorithm.learns_from == "rollouts":
        return settings.rollout.tasks_per_step * settings.rollout.group_size
    return settings.dataset.batch_size


def _in_flight(settings: RunSettings) -> int:
    """Rollouts that run at once if nothing stops them: a step's, and those that start early."""
    rollout = settings.rollout
    early = rollout.max_staleness and rollout.prefetch_groups
    groups = early or rollout.max_staleness * rollout.tasks_per_step
    return (rollout.tasks_per_step + groups) * rollout.group_size


def _first_tasks(settings: RunSettings, most: int | None) -> list[Task]:
    """Tasks of each training set, as many as the run takes or at most this many."""
    limit = min(filter(None, (most, settings.tasks.limit)), default=None)
    return [
        replace(task, checks=task.checks[: settings.tasks.checks])
        for spec in settings.tasks.train
        for task in load(spec, limit=limit, judged=False)
    ]


def _longest(
    settings: RunSettings, algorithm: Algorithm, tasks: Sequence[Task], context: int | None
) -> int:
    """Tokens of the longest sequence, about, within the model's context."""
    texts = [0]
    for task in tasks:
        replies = [*task.demonstrations, task.reference or ""]
        spoken = sum(len(message.content) for message in task.messages)
        learned = max(map(len, replies)) if algorithm.learns_from == "dialogues" else 0
        texts.append(max(len(prompts.text(task)) + learned, spoken))
    prompt = -(-max(texts) // CHARACTERS)
    if algorithm.learns_from == "dialogues":
        longest = prompt
    elif algorithm.learns_from == "rollouts":
        environment = environments.build(settings.environment, settings.judge.servers)
        longest = prompt + environment.turns * settings.rollout.max_tokens
    else:
        longest = context or prompt
    return max(1, min(longest, context or longest))


class WayOut(NamedTuple):
    """Settings that may make a run fit."""

    kind: str
    """Of changes of one kind the first that helps is enough."""
    words: str
    """What to write."""
    apply: Callable[[RunSettings, Gpus], tuple[RunSettings, Gpus] | None]
    """The run with it; None where it changes nothing."""


def ways_out(
    fits: Callable[[RunSettings, Gpus], bool], settings: RunSettings, gpus: Gpus,
    planned: StageOnGpus,
) -> list[str]:  # fmt: skip
    """The fewest changes with which the learner fits, each way in words."""
    for count in range(1, AT_MOST + 1):
        ways: dict[tuple[str, ...], str] = {}
        for changes in combinations(_changes(planned), count):
            kinds = tuple(change.kind for change in changes)
            if len({*kinds}) < count or kinds in ways:
                continue
            changed: tuple[RunSettings, Gpus] | None = settings, gpus
            for change in changes:
                changed = changed and change.apply(*changed)
            if changed and fits(*changed):
                ways[kinds] = " and ".join(change.words for change in changes)
        if ways:
            return list(ways.values())[:MOST_WAYS]
    return []


def _changes(planned: StageOnGpus) -> list[WayOut]:
    """In the order in which they cost least."""
    ranks, longest = planned.ranks, planned.longest
    four_bits = {"lora": {"rank": 16}, "quantize": "nf4"}
    lora = "policy.lora = { rank = 16 }"
    checkpoints = partial(_with_policy, values={"gradient_checkpointing": True})
    return [
        WayOut("recompute", "policy.gradient_checkpointing = true", checkpoints),
        WayOut("recompute", "policy.gradient_checkpointing = 'offload'", _offloaded),
        WayOut("cut", f"learner.micro_batch_tokens = {longest}", partial(_cut, planned)),
        WayOut("wait", "rollout.max_staleness = 0", _synchronous),
        WayOut("spread", "learner.hybrid_shard = false", _over_all),
        *(
            WayOut("add", f"{factor * ranks} GPUs for the learner", partial(_more, ranks, factor))
            for factor in (2, 4)
        ),
        WayOut("adapt", lora, partial(_with_policy, values={"lora": {"rank": 16}})),
        WayOut("adapt", f"{lora} with policy.quantize = 'nf4'",
               partial(_with_policy, values=four_bits)),
    ]  # fmt: skip


def _with_policy(
    settings: RunSettings, gpus: Gpus, values: Mapping[str, Any]
) -> tuple[RunSettings, Gpus] | None:
    absent = {name: each for name, each in values.items() if not getattr(settings.policy, name)}
    if not absent:
        return None
    policy = PolicySettings.model_validate(settings.policy.model_dump() | absent)
    return settings.model_copy(update={"policy": policy}), gpus


def _offloaded(settings: RunSettings, gpus: Gpus) -> tuple[RunSettings, Gpus] | None:
    if settings.policy.gradient_checkpointing == "offload":
        return None
    policy = settings.policy.model_copy(update={"gradient_checkpointing": "offload"})
    return settings.model_copy(update={"policy": policy}), gpus


def _cut(
    planned: StageOnGpus, settings: RunSettings, gpus: Gpus
) -> tuple[RunSettings, Gpus] | None:
    if planned.micro_batch_tokens <= planned.longest:
        return None
    learner = settings.learner.model_copy(update={"micro_batch_tokens": planned.longest})
    return settings.model_copy(update={"learner": learner}), gpus


def _synchronous(settings: RunSettings, gpus: Gpus) -> tuple[RunSettings, Gpus] | None:
    if not (settings.rollout.max_staleness and settings.engine.kind.in_process):
        return None
    rollout = settings.rollout.model_copy(update={"max_staleness": 0})
    return settings.model_copy(update={"rollout": rollout}), gpus


def _over_all(settings: RunSettings, gpus: Gpus) -> tuple[RunSettings, Gpus] | None:
    if not settings.learner.hybrid_shard:
        return None
    learner = settings.learner.model_copy(update={"hybrid_shard": False})
    return settings.model_copy(update={"learner": learner}), gpus


def _more(
    ranks: int, factor: int, settings: RunSettings, gpus: Gpus
) -> tuple[RunSettings, Gpus] | None:
    count = gpus.count + (factor - 1) * ranks
    return (settings, replace(gpus, count=count)) if count <= MOST_GPUS else None


def _fits(shapes: ModelShapes, longest: int, settings: RunSettings, gpus: Gpus) -> bool:
    planned = planned_on(settings, gpus, shapes, longest)
    return planned.peak <= planned.room


def _refusal(planned: StageOnGpus, ways: list[str]) -> str:
    largest = sorted(planned.leader.items(), key=lambda part: -part[1])[:3]
    parts = ", ".join(f"{name} {in_gb(size)}" for name, size in largest)
    way = (
        f"It fits with {'; or '.join(ways)}"
        if ways
        else "Take a smaller policy.model or larger GPUs"
    )
    return (
        f"the learner does not fit: rank 0 needs {in_gb(planned.peak)} of {in_gb(planned.room)}"
        f" ({parts}). {way}"
    )


def _misplaced(settings: RunSettings, gpus: Gpus, algorithm: Algorithm) -> Iterator[str]:
    engine = settings.engine
    if not _has_servers(settings, algorithm) or engine.servers:
        return
    there, needed = min(gpus.count, PER_MACHINE), engine.data_parallel * engine.tensor_parallel
    if engine.gpus:
        if beyond := [number for number in engine.gpus if number >= there]:
            yield (
                f"engine.gpus names GPU {beyond[0]}, and rank 0's machine has no such GPU:"
                f" {_placement(engine, there)}"
            )
        elif needed >= there:
            yield f"engine.gpus leaves rank 0 no GPU of its machine: {_placement(engine, there)}"
    elif there > 1:
        yield f"the servers would share GPU 0 with rank 0: {_placement(engine, there)}"
    elif needed > 1:
        yield f"the servers take {needed} GPUs, and there is one: {_placement(engine, there)}"


def _placement(engine: EngineSettings, there: int) -> str:
    """The nearest settings with which servers have GPUs of their own among those of rank 0's
    machine, and rank 0 has one; or else those with which one server shares its only GPU.
    """
    each = engine.tensor_parallel
    servers = min(engine.data_parallel, (there - 1) // each)
    if there == 1:
        changed = [
            name for name in ("data_parallel", "tensor_parallel") if getattr(engine, name) > 1
        ]
        alone = [f"set engine.{name} = 1" for name in changed]
        return " and ".join([*alone, *(["leave engine.gpus out"] if engine.gpus else [])])
    if not servers:
        each, servers = there - 1, 1
    words = {"data_parallel": servers, "tensor_parallel": each}
    changes = [f"engine.{name} = {value}" for name, value in words.items()
               if getattr(engine, name) != value]  # fmt: skip
    numbers = [*range(there - servers * each, there)]
    return f"set {' and '.join([*changes, f'engine.gpus = {numbers}'])}"


def _server_problems(server: ServerMemory) -> Iterator[str]:
    more = "raise engine.tensor_parallel, so that more GPUs share the weights"
    if server.context and server.context < server.longest:
        yield (
            f"the longest rollout has {server.longest:,} tokens, and the model's context"
            f" {server.context:,}: lower --longest, or rollout.max_tokens"
        )
    if server.setting < server.longest:
        way = f"set engine.kv_cache_tokens to at least {server.longest}"
        way += "" if server.most_tokens >= server.longest else f", and {more}"
        yield (
            f"the longest rollout has {server.longest:,} tokens, and a server takes none that is"
            f" longer than engine.kv_cache_tokens = {server.setting}: {way}"
        )
    if server.fits:
        return
    needs = f"{in_gb(server.weights)} for weights and {in_gb(server.kv_cache)} for its KV cache"
    way = more
    if server.most_tokens >= server.longest:
        way = f"lower engine.kv_cache_tokens to {server.most_tokens}, or {way}"
    yield f"a server does not fit: it needs {needs}, and has {in_gb(server.room)}; {way}"


def _server_notes(server: ServerMemory) -> list[str]:
    if server.at_once >= server.rollouts or not server.fits:
        return []
    note = (
        f"a server holds {server.at_once} of the {server.rollouts} rollouts that it gets, if all"
        " are at their longest; the others wait or are prefilled again"
    )
    useful = min(server.setting_for(server.rollouts), server.most_tokens)
    if (count := server.at_once_with(useful)) > server.at_once:
        note += f"; engine.kv_cache_tokens = {useful} holds {count}"
    if server.rollouts > MAX_NUM_SEQS:
        note += f"; a server never runs more than {MAX_NUM_SEQS} at once"
    return [note]
