"""Exports a checkpoint as a model folder that transformers loads, with a card that says all."""

import json
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError
from torch import Tensor

from assay.config.sections import PolicySettings
from assay.config.toml_files import saved_model
from assay.errors import DataError, ModelError, SettingsError
from assay.files import by_step, replacing
from assay.os_errors import error_number
from assay.paths import real_path
from assay.policy.checkpoints import checkpoints_of, newest_whole
from assay.policy.forward import perturbed, unwrap_model
from assay.policy.load_model import Policy, load_policy
from assay.policy.source import ModelSource, source_of
from assay.prompts import CARD
from assay.registry import one_line
from assay.train.model_card import model_card

TOLERANCE = 1e-4
"""How far outputs of a merged adapter may be off, of their largest."""
LARGEST_LOSS = 0.1
"""The share of what training changed that rounding a merged adapter may take back."""
EXACT = 1e-3
"""Nats by which a merged adapter in float32 may be off in any case."""
TOKENS = 256
"""Tokens of the prompt on which models are compared."""
ExportDtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    checkpoint: Path
    """The checkpoint that holds the trained weights."""
    dtype: str
    """The data type of the written weights."""
    distance: str = ""
    """How far a merged adapter's files are from the trained model, in words; empty for a model that
    is written as it was trained."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged adapter, as its files are when loaded again."""

    dtype: str
    moved: float
    """How far training moved log-probabilities, in nats (`_distance`)."""
    off: float
    """How far those of the files are from those of the trained model."""

    def keeps_training(self) -> bool:
        """Whether rounding takes back less than LARGEST_LOSS of what training changed."""
        return self.off <= LARGEST_LOSS * self.moved


def export(
    source: Path, out: Path, trust_remote_code: bool = False, dtype: ExportDtype = "auto"
) -> Exported:
    """Write the model of a checkpoint, or of a run's newest one, to `out`.

    An adapter is merged into its base. With `dtype` "auto" the result is in the dtype of the
    training, or in float32 where rounding would take back more than a tenth of what training
    changed. What the run's settings say of code is not believed: only `trust_remote_code` lets a
    model run its own. Raises SettingsError if `out` holds files or the run trusted such code,
    DataError for a source that no run made.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"{out} holds files already; choose a folder that is new or empty")
    checkpoint = _checkpoint(source)
    stage = checkpoint.parents[1]
    recipe = _recipe(stage)
    tables = {name: tomllib.loads(text) for name, text in recipe.items()}
    trained = {name: _policy(stage.parent / name / "config.toml", table)
               for name, table in tables.items()}[stage.name]  # fmt: skip
    if trained.trust_remote_code and not trust_remote_code:
        raise SettingsError(
            f"{stage} was trained with the model's own Python code, which would run here too; read"
            " it, and if you trust it add --trust-remote-code"
        )
    settings = PolicySettings(
        model=str(checkpoint), device="cpu", dtype=trained.dtype, chat=trained.chat,
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    model = source_of(settings)
    with replacing(out) as partial:
        partial.mkdir()
        written = _write(settings, model, partial, dtype)
        shutil.copy(checkpoint / CARD, partial / CARD)
        how = _how(written, adapted=model.adapter is not None)
        (partial / "README.md").write_text(model_card(checkpoint, recipe, partial, out.name, how))
    return replace(written, checkpoint=checkpoint)


def _policy(file: Path, table: Mapping[str, Any]) -> PolicySettings:
    """What the saved settings of a stage say of its policy. Raises DataError where these, or what a
    card shows of the others, cannot be read.
    """
    specs = table["tasks"].get("train") if isinstance(table.get("tasks"), dict) else None
    if not isinstance(specs, list) or not all(isinstance(spec, str) for spec in specs):
        raise DataError(f"{file} cannot be read: tasks.train is no list of texts")
    if not isinstance(table.get("evaluate", {}), dict):
        raise DataError(f"{file} cannot be read: evaluate is no table")
    names = ("trust_remote_code", "dtype", "chat")
    if absent := [name for name in names if name not in table["policy"]]:
        raise DataError(f"{file} cannot be read: it lacks policy.{absent[0]}")
    try:
        return PolicySettings(**{name: table["policy"][name] for name in names})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise DataError(f"{file} cannot be read: policy.{name}: {first['msg']}") from None


def _write(
    settings: PolicySettings, model: ModelSource, folder: Path, dtype: ExportDtype
) -> Exported:
    """Write the model's files. Raises ModelError where they are not the model that was trained."""
    if model.adapter is None:
        weights_dtype = settings.dtype if dtype == "auto" else dtype
        load_policy(settings.model_copy(update={"dtype": weights_dtype}), model).save(folder)
        return Exported(folder, weights_dtype)
    _require_mergeable(settings, model, folder / "trial")
    rounded = _merge(
        settings, model, folder / "merged", settings.dtype if dtype == "auto" else dtype
    )
    merged, why = rounded, ""
    if dtype == "auto" and not rounded.keeps_training():
        why = f"; rounded to {rounded.dtype} they would be {rounded.off:.2g} nats from it"
        shutil.rmtree(folder / "merged")
        merged = _merge(settings, model, folder / "merged", "float32")
    if merged.dtype == "float32" and not merged.off <= max(EXACT, LARGEST_LOSS * merged.moved):
        raise ModelError(
            f"the merged model of {model.name} was saved, but its files give log-probabilities"
            f" {merged.off:.2g} nats from those of the adapter; load it with peft"
        )
    for file in (folder / "merged").iterdir():
        file.rename(folder / file.name)
    (folder / "merged").rmdir()
    distance = (
        f"loaded again, the weights are {merged.off:.2g} nats from the trained model, which is"
        f" {merged.moved:.2g} nats from its base{why}"
    )
    return Exported(folder, merged.dtype, distance)


def _how(written: Exported, adapted: bool) -> str:
    """For the card: which weights these are, and how near they are to those that were trained."""
    if not adapted:
        return f"All weights are trained. They are in {written.dtype}."
    distance = f"{written.distance[0].upper()}{written.distance[1:]}"
    return (
        f"The trained adapter is merged into it, in {written.dtype}. {distance} (mean over the"
        " tokens that the trained model would sample)."
    )


def _require_mergeable(settings: PolicySettings, model: ModelSource, trial: Path) -> None:
    """Merge the adapter in float32 with noise in it, so that errors show which a fresh adapter
    hides; save and load it in the folder `trial`. Raises ModelError for one that no merging keeps.
    """
    exact = settings.model_copy(update={"dtype": "float32"})
    policy = load_policy(exact, model)
    kind = policy.model.peft_config["default"].peft_type.value
    try:
        with perturbed(policy.model):
            expected = _outputs(policy.model)
            replace(policy, model=policy.model.merge_and_unload()).save(trial)
        loaded = load_policy(exact.model_copy(update={"model": str(trial)}))
        pairs = zip(_outputs(loaded.model), expected, strict=True)
        off = max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs)
        why = f"merged, its outputs differ by {off:.2g}" if not off <= TOLERANCE else ""
    except Exception as error:  # peft raises anything for a kind that it cannot merge
        if error_number(error) is not None:
            raise  # the disk is full: nothing is wrong with the adapter
        why = one_line(error)
    if why:
        raise ModelError(
            f"the {kind} adapter in {model.name} cannot be exported: {why}; load it with peft"
        )
    shutil.rmtree(trial)


def _merge(settings: PolicySettings, model: ModelSource, folder: Path, dtype: str) -> Merged:
    """Merge the adapter in float32, round it to `dtype`, save it, and compare the saved files with
    the adapter, both computed in float32.
    """
    exact = settings.model_copy(update={"dtype": "float32"})
    policy = load_policy(exact, model)
    tokens = _text(policy, Path(model.name))
    trained = _logprobs(policy.model, tokens)
    with policy.model.disable_adapter():
        before = _logprobs(policy.model, tokens)
    merged = policy.model.merge_and_unload()
    replace(policy, model=merged.to(getattr(torch, dtype))).save(folder)
    del policy, merged
    saved = load_policy(exact.model_copy(update={"model": str(folder)})).model
    return Merged(dtype, _distance(trained, before), _distance(trained, _logprobs(saved, tokens)))


def _text(policy: Policy, checkpoint: Path) -> Tensor:
    """[1, T] the tokens of the prompt beside the checkpoint, of which some are left out if long."""
    messages = json.loads((checkpoint / CARD).read_text(encoding="utf-8"))["messages"]
    text = "\n".join(str(message["content"]) for message in messages)
    tokens = policy.chat.tokenizer(text)["input_ids"][:TOKENS] or [policy.pad_token]
    return torch.tensor([tokens])


@torch.no_grad()
def _logprobs(model: Any, tokens: Tensor) -> Tensor:
    """[T, V] the log-probability of each next token."""
    return torch.log_softmax(model(tokens).logits[0].float(), -1)


def _distance(trained: Tensor, other: Tensor) -> float:
    """The mean distance of log-probabilities, in nats, over tokens that the trained model samples:
    sum over v of p(v) |log p(v) - log q(v)|, mean over places. Both [T, V].
    """
    return float((trained.exp() * (trained - other).abs()).sum(-1).mean())


@torch.no_grad()
def _outputs(model: Any) -> tuple[Tensor, Tensor]:
    """The embedding of every token, and the logits of four short texts of any tokens."""
    embedding = unwrap_model(model).get_input_embeddings()
    tokens = torch.arange(unwrap_model(model).config.get_text_config().vocab_size)
    few = torch.arange(64) * 7919 % len(tokens)
    return embedding(tokens), model(few.view(4, 16)).logits.float()


def _checkpoint(source: Path) -> Path:
    """The checkpoint itself, or the newest of a stage or a run."""
    source = real_path(source)
    if source in by_step(source.parent).values() and (source.parents[1] / "config.toml").is_file():
        return source
    if checkpoints := checkpoints_of(source):
        return newest_whole(checkpoints)
    raise DataError(f"{source} holds no checkpoint; name RUN, RUN/STAGE or one of its checkpoints")


def _recipe(stage: Path) -> dict[str, str]:
    """By name, the settings of the stages of the run that made the weights, the first one first."""
    file = stage / "config.toml"
    model = Path(saved_model(file))
    before = model.parents[1] if model.parent.name == "checkpoints" else stage
    earlier = _recipe(before) if before.parent == stage.parent and before != stage else {}
    return earlier | {stage.name: file.read_text(encoding="utf-8")}
