"""The models that an evaluation asks: on disk, on the hub, or behind an endpoint."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.config.evaluation import EvaluationRun
from assay.config.sections import PolicySettings
from assay.engines.base import Engine
from assay.engines.open import open_engine
from assay.engines.openai import hosted_chat, open_openai
from assay.errors import SettingsError
from assay.evaluate.protocol import files_hash
from assay.maths.seeds import derive
from assay.policy.chat import Chat
from assay.policy.checkpoints import checkpoints_of, newest_whole
from assay.policy.gguf import as_folder
from assay.progress import Progress
from assay.sync import in_own_thread, run_sync


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


def subject_of(run: EvaluationRun, progress: Progress) -> Subject:
    """The model of an evaluation, loaded. Nothing is loaded, nor torch imported, for an endpoint.

    Raises UserError for a model that cannot be used.
    """
    model = run.policy.model
    if run.engine.kind.hosted:
        chat = hosted_chat(run.policy.chat)
        return Subject(
            run.policy, chat, None, "hosted", lambda logs: open_openai(model, run.engine)
        )
    from assay.policy.load import load_policy, with_dtype

    folder = Path(as_folder(model, progress))
    settings = with_dtype(run.policy)
    policy = run_sync(in_own_thread(load_policy, settings))

    @asynccontextmanager
    async def opened(logs: Path) -> AsyncIterator[Engine]:
        seed = derive(run.seed, "engine")
        async with open_engine(policy, run.engine, logs=logs, seed=seed) as engine:
            await engine.load(policy, 0)
            yield engine

    files = files_hash(folder) if folder.is_dir() else ""
    commit = getattr(policy.model.config, "_commit_hash", None)  # of the base, if an adapter
    identity = f"{files} {commit or ''}".strip()
    return Subject(settings, policy.chat, policy.context, identity, opened)


def models_of(run: EvaluationRun) -> list[EvaluationRun]:
    """The run, once for each model that `policy.model` stands for: the newest or every checkpoint
    where it is the folder of a run or of its stage.

    Raises SettingsError for `tiny`, and where `every_checkpoint` finds none; DataError where every
    checkpoint is broken.
    """
    policy, folder = run.policy, Path(run.policy.model)
    if policy.model == "tiny":
        raise SettingsError(
            "setting 'policy.model' = 'tiny' is made by a training run; name the run's folder or a"
            " checkpoint, such as --model runs/demo"
        )
    checkpoints = [] if run.engine.kind.hosted else checkpoints_of(folder)
    if run.every_checkpoint and not checkpoints:
        raise SettingsError(
            f"every_checkpoint: {policy.model} is no folder of a run or stage with checkpoints"
        )
    names = [*map(str, checkpoints)] or [policy.model]
    if checkpoints and not run.every_checkpoint:
        names = [str(newest_whole(checkpoints))]
    inert = {"gradient_checkpointing": False} | ({} if policy.quantize else {"lora": None})
    return [
        run.model_copy(update={"policy": policy.model_copy(update={**inert, "model": name})})
        for name in names
    ]
