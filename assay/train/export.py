"""Exports a checkpoint as a model folder that transformers loads, with a card that says all."""

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.config.sections import PolicySettings
from assay.config.toml_files import absolute, saved_settings
from assay.errors import DataError, ModelError, SettingsError
from assay.evaluate.compare import compare
from assay.evaluate.report import read_report
from assay.files import by_step, replacing
from assay.policy.adapters import is_adapter
from assay.policy.checkpoints import checkpoints_of, newest_whole
from assay.policy.forward import perturbed, unwrap_model
from assay.policy.load import Policy, load_policy
from assay.prompts import CARD, transformers_code
from assay.registry import one_line

TOLERANCE = 1e-4
"""How far outputs of a merged adapter may be off, of their largest."""

MODEL_CARD = Path(__file__).with_name("model_card.md")
"""The card, with what is filled in in braces."""


def export(source: Path, out: Path, trust_remote_code: bool = False) -> Path:
    """Write the model of a checkpoint, or of a run's newest one, to `out`; returns the checkpoint.

    An adapter is merged into its base. What the run's settings say of code is not believed: only
    `trust_remote_code` lets a model run its own. Raises SettingsError if `out` holds files or the
    run trusted such code, DataError for a source that no run made.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"{out} holds files already; choose a folder that is new or empty")
    checkpoint = _checkpoint(source)
    stage = checkpoint.parents[1]
    recipe = _recipe(stage)
    tables = {name: tomllib.loads(text) for name, text in recipe.items()}
    adapted, trained = is_adapter(str(checkpoint)), tables[stage.name]["policy"]
    if trained["trust_remote_code"] and not trust_remote_code:
        raise SettingsError(
            f"{stage} was trained with the model's own Python code, which would run here too; read"
            " it, and if you trust it add --trust-remote-code"
        )
    settings = PolicySettings(
        model=str(checkpoint), device="cpu", dtype=trained["dtype"], chat=trained["chat"],
        trust_remote_code=trust_remote_code,
    )  # fmt: skip
    base = str(next(iter(tables.values()))["policy"]["model"])
    base = f"`{Path(base).name if base[0] in './' else base}`"
    trained_on = {name: table["tasks"]["train"] for name, table in tables.items()}
    sets = {name: ", ".join(f"`{spec}`" for spec in specs) for name, specs in trained_on.items()}
    card = MODEL_CARD.read_text(encoding="utf-8").format(
        name=out.name, run=stage.parent.name, stage=stage.name,
        steps=int(checkpoint.name.removeprefix("step_")),
        base=base.replace("`start`", "random weights"),
        merged="The trained adapter is merged into it." if adapted else "All weights are trained.",
        data="\n".join(f"- stage `{name}`: {spec}" for name, spec in sets.items()),
        evaluation=_evaluation(checkpoint),
        prompt=transformers_code(checkpoint).replace(str(checkpoint), out.name),
        recipe="\n\n".join(f"```toml\n{text}```" for text in recipe.values()),
        sets=", ".join(dict.fromkeys(sets.values())),
    )  # fmt: skip
    with replacing(out) as partial:
        policy = _merged(settings, partial / "trial") if adapted else load_policy(settings)
        policy.save(partial)
        shutil.copy(checkpoint / CARD, partial / CARD)
        (partial / "README.md").write_text(card.replace(str(stage.parents[1]), "runs"))
    return checkpoint


def _merged(settings: PolicySettings, trial: Path) -> Policy:
    """The policy with its adapter merged in float32, then rounded to the dtype of the settings.

    First a merged one is saved and loaded in the folder `trial`, with noise in the adapter, so that
    errors show which a fresh adapter hides. Raises ModelError for an adapter that no merging keeps.
    """
    exact = settings.model_copy(update={"dtype": "float32"})
    policy = load_policy(exact)
    kind = policy.model.peft_config["default"].peft_type.value
    try:
        with perturbed(policy.model):
            expected = _outputs(policy.model)
            replace(policy, model=policy.model.merge_and_unload()).save(trial)
        loaded = load_policy(exact.model_copy(update={"model": str(trial)}))
        pairs = zip(_outputs(loaded.model), expected, strict=True)
        off = max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs)
        why = f"merged, its outputs differ by {off:.2g}" if not off <= TOLERANCE else ""
    except Exception as error:  # noqa: BLE001  peft raises anything for a kind that it cannot merge
        why = one_line(error)
    if why:
        raise ModelError(
            f"the {kind} adapter in {settings.model} cannot be exported: {why}; load it with peft"
        )
    shutil.rmtree(trial)
    policy = load_policy(exact)
    model = policy.model.merge_and_unload()
    return replace(policy, model=model.to(getattr(torch, settings.dtype)))


@torch.no_grad()
def _outputs(model: Any) -> tuple[Tensor, Tensor]:
    """The embedding of every token, and the logits of four short texts of any tokens."""
    embedding = unwrap_model(model).get_input_embeddings()
    tokens = torch.arange(unwrap_model(model).config.get_text_config().vocab_size)
    few = torch.arange(64) * 7919 % len(tokens)
    return embedding(tokens), model(few.view(4, 16)).logits.float()


def _checkpoint(source: Path) -> Path:
    """The checkpoint itself, or the newest of a stage or a run."""
    source = source.resolve()
    if source in by_step(source.parent).values() and (source.parents[1] / "config.toml").is_file():
        return source
    if checkpoints := checkpoints_of(source):
        return newest_whole(checkpoints)
    raise DataError(f"{source} holds no checkpoint; name RUN, RUN/STAGE or one of its checkpoints")


def _recipe(stage: Path) -> dict[str, str]:
    """By name, the settings of the stages of the run that made the weights, the first one first."""
    file = stage / "config.toml"
    model = Path(absolute(saved_settings(file), stage)["policy"]["model"])
    before = model.parents[1] if model.parent.name == "checkpoints" else stage
    earlier = _recipe(before) if before.parent == stage.parent and before != stage else {}
    return earlier | {stage.name: file.read_text(encoding="utf-8")}


def _evaluation(checkpoint: Path) -> str:
    stage = checkpoint.parents[1]
    if not read_report(stage.parent):
        return "The run was not evaluated."
    file = stage / "evaluated.json"
    step = json.loads(file.read_text())["step"] if file.is_file() else 0
    other = f"\n\n`{stage.name}` was evaluated after {step} steps, not at this checkpoint."
    text = compare([stage.parent]).markdown()
    return text + (other if checkpoint.name != f"step_{step:06d}" else "")
