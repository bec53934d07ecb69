"""LoRA adapters: a new one, or one that `save_pretrained` of peft has left in a directory."""

import json
from pathlib import Path
from typing import Any

from assay.config.sections import LoraSettings
from assay.errors import ModelError, SettingsError
from assay.registry import one_line

ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def is_adapter(name: str) -> bool:
    """Whether `name` is the directory of an adapter."""
    return (Path(name) / ADAPTER).is_file()


def adapter_config(folder: Path) -> dict[str, Any]:
    """The configuration of an adapter. Raises ModelError for a broken file."""
    file = folder / ADAPTER
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(
            f"{file} is not JSON ({one_line(error)}); save the adapter again"
        ) from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} is not a JSON object; save the adapter again")
    return config


def with_adapter(model: Any, folder: Path | None, lora: LoraSettings | None) -> Any:
    """The model with the adapter in `folder`, with a new one as `lora` says, or without one.

    Raises ModelError for an adapter that does not fit, SettingsError for one of another shape.
    """
    if folder:
        return _load_adapter(model, folder, lora)
    if lora is None:
        return model
    from peft import LoraConfig, get_peft_model

    from assay.policy.lora import use_efficient_lora

    shape = {
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
    }
    config = LoraConfig(**shape, target_modules="all-linear", task_type="CAUSAL_LM")
    return use_efficient_lora(get_peft_model(model, config))


def _load_adapter(model: Any, folder: Path, lora: LoraSettings | None) -> Any:
    from peft import PeftConfig, PeftModel

    from assay.policy.lora import use_efficient_lora

    base, name = model.name_or_path, str(folder)
    config = PeftConfig.from_pretrained(name)
    if config.is_prompt_learning:
        raise ModelError(
            f"adapter {name!r} is of the kind {config.peft_type.value}, which can be"
            " neither trained nor merged here; take one that changes weights, as LoRA does"
        )
    if lora is not None:
        _refuse_another_shape(name, config, lora)
        config.lora_dropout = lora.dropout
    config.base_model_name_or_path = base
    try:
        adapted = PeftModel.from_pretrained(model, name, is_trainable=True, config=config)
        wrong = _other_names(folder, adapted)
    except (RuntimeError, ValueError) as error:  # another shape; modules that do not exist
        wrong = " ".join(str(error).split("\n")[1:2]).strip() or one_line(error)
    if wrong:
        raise ModelError(
            f"adapter {name!r} does not fit {base!r}: is it of another model? {wrong[:200]}"
        )
    return use_efficient_lora(adapted)


def _other_names(folder: Path, model: Any) -> str:
    """The first LoRA weight that only the adapter's file or only the model has; empty if none."""
    from peft import get_peft_model_state_dict
    from safetensors import safe_open

    if not (folder / WEIGHTS).is_file():
        return ""
    with safe_open(folder / WEIGHTS, "pt") as file:
        saved = set(file.keys())
    other = saved ^ set(get_peft_model_state_dict(model, save_embedding_layers=False))
    return next((f"only one of them has {name}" for name in sorted(other) if "lora_" in name), "")


def check_vocabulary(name: str, base: str, tokenizer: Any, base_tokenizer: Any) -> None:
    """Raises ModelError if the adapter's `tokenizer` has tokens that its base's does not have."""
    ids = base_tokenizer.get_vocab()
    other = [token for token, number in tokenizer.get_vocab().items() if ids.get(token) != number]
    if other:
        raise ModelError(
            f"adapter {name!r} has another vocabulary than its base {base!r}: {len(other)} tokens,"
            f" as {min(other)!r}; is it of another model?"
        )


def _refuse_another_shape(name: str, config: Any, lora: LoraSettings) -> None:
    rank, alpha = getattr(config, "r", None), getattr(config, "lora_alpha", None)
    if (rank, alpha) != (lora.rank, lora.alpha):
        raise SettingsError(
            f"model {name!r} is already an adapter of rank {rank} and alpha {alpha};"
            f" policy.lora asks for rank {lora.rank} and alpha {lora.alpha:g}: leave policy.lora"
            " out, or make them agree"
        )
