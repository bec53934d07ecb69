"""The models that an evaluation asks: on disk, on the hub, or behind an endpoint."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from assay.config.evaluation import EvaluationRun
from assay.config.sections import PolicySettings
from assay.engines.base import Engine, HostedModel
from assay.engines.open_engine import open_engine
from assay.engines.openai import hosted_chat
from assay.errors import SettingsError
from assay.evaluate.protocol import files_hash
from assay.maths.seeds import derive
from assay.policy.chat import Chat
from assay.policy.source import ModelSource, evaluated_sources, hosted_source
from assay.progress import Progress
from assay.sync import in_own_thread, run_sync


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One of the models of an evaluation."""

    run: EvaluationRun
    """With its name as `policy.model`."""
    source: ModelSource


@dataclass(frozen=True, slots=True)
class Subject:
    """A model that is ready to be asked."""

    settings: PolicySettings
    """As given, with the data type that `auto` stands for."""
    chat: Chat
    context: int | None
    """Longest sequence in tokens; None if nobody says."""
    files: str
    """Identifies the weights; of a hosted model, nothing does."""
    open: Callable[[Path], AbstractAsyncContextManager[Engine]]
    """Opens an engine that logs to a folder."""
    not_sent: set[str] = field(default_factory=set)
    """Sampling parameters that an endpoint refuses, as it turns out while it is asked."""


def subject_of(model: EvaluatedModel, progress: Progress) -> Subject:
    """The model of an evaluation, loaded. Nothing is loaded, nor torch imported, for an endpoint.

    Raises UserError for a model that cannot be used.
    """
    run = model.run
    if run.engine.kind.hosted:
        chat = hosted_chat(run.policy.chat)
        hosted = HostedModel(model.source.name)
        return Subject(
            run.policy, chat, None, "hosted",
            lambda logs: open_engine(hosted, run.engine, logs=logs), hosted.not_sent,
        )  # fmt: skip
    from assay.policy.load_model import load_policy, with_dtype

    source = model.source.converted(progress)
    settings = run.policy
    if settings.dtype == "auto":
        settings = with_dtype(settings, source.facts.width)
    policy = run_sync(in_own_thread(load_policy, settings, source))

    @asynccontextmanager
    async def opened(logs: Path) -> AsyncIterator[Engine]:
        seed = derive(run.seed, "engine")
        async with open_engine(policy, run.engine, logs=logs, seed=seed) as engine:
            await engine.load(policy, 0)
            yield engine

    files = files_hash(source.folder) if source.folder else ""
    commit = getattr(policy.model.config, "_commit_hash", None)  # of the base, if an adapter
    identity = f"{files} {commit or ''}".strip()
    return Subject(settings, policy.chat, policy.context, identity, opened)


def models_of(run: EvaluationRun) -> list[EvaluatedModel]:
    """Each model that the run evaluates: the newest or every checkpoint where `policy.model` is the
    folder of a run or of its stage.

    Raises SettingsError for `tiny`, and where `every_checkpoint` finds none; DataError where every
    checkpoint is broken.
    """
    policy = run.policy
    if run.engine.kind.hosted:
        if run.every_checkpoint:
            raise SettingsError("every_checkpoint: a model behind an endpoint has no checkpoints")
        sources = [hosted_source(policy)]
    else:
        sources = evaluated_sources(policy, run.every_checkpoint)
    inert = {"gradient_checkpointing": False} | ({} if policy.quantize else {"lora": None})
    return [
        EvaluatedModel(
            run.model_copy(
                update={"policy": policy.model_copy(update={**inert, "model": source.name})}
            ),
            source,
        )
        for source in sources
    ]
