"""Loads a policy: the tiny default, a model directory (full or adapter) or a hub name; refuses what cannot be used."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.config.sections import LoraSettings, PolicySettings
from assay.errors import ModelError, SettingsError
from assay.policy.chat import Chat

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "spiece.model")


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model with its tokenizer."""

    model: Any
    """A transformers model, or a peft model around one."""
    chat: Chat
    """Encodes and decodes for it."""
    device: torch.device
    """Where it lives."""
    pad_token: int
    """The id that fills up sequences; always masked."""

    @property
    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that learning changes, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}


def pick_device(name: str) -> torch.device:
    """`auto` is the first GPU or else the CPU. Raises SettingsError for a device this machine lacks."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingsError(
            f"setting 'policy.device' = {name!r} is not a device; try 'auto', 'cpu' or 'cuda'"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(f"setting 'policy.device' = {name!r}, but torch finds no GPU here; use 'auto'")
    return device


def load_policy(settings: PolicySettings) -> Policy:
    """The policy that `settings.model` names, ready to learn.

    A directory with an adapter goes on training that adapter. Raises ModelError without a usable model or tokenizer.
    """
    base = check_model(settings.model)
    from transformers import AutoModelForCausalLM

    device = pick_device(settings.device)
    tokenizer = _tokenizer(settings.model, settings.trust_remote_code)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            base, dtype=getattr(torch, settings.dtype), trust_remote_code=settings.trust_remote_code
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"model {base!r} cannot be loaded: {_first_line(error)}") from error
    model = _with_adapter(model, settings).to(device)
    stops = {tokenizer.eos_token_id}
    own = model.generation_config.eos_token_id
    stops |= set(own) if isinstance(own, list) else {own} - {None}
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    model.eval()
    return Policy(model, Chat(tokenizer, frozenset(stops)), device, pad)


def check_model(name: str) -> str:
    """The full model behind `name`: itself, or the base of an adapter directory.

    Raises ModelError for a directory that lacks its configuration or its tokenizer.
    """
    folder = Path(name)
    if not folder.is_dir():
        if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise ModelError(f"model directory {name!r} does not exist")
        return name
    files = {path.name for path in folder.iterdir()}
    if not files & {"config.json", "adapter_config.json"}:
        raise ModelError(f"model directory {name!r} holds no config.json; is it a Hugging Face model directory?")
    if not files & set(TOKENIZER_FILES):
        raise ModelError(
            f"model directory {name!r} holds no tokenizer; save one there with tokenizer.save_pretrained({name!r})"
        )
    if "adapter_config.json" not in files:
        return name
    base = json.loads((folder / "adapter_config.json").read_text()).get("base_model_name_or_path")
    if not base:
        raise ModelError(f"adapter directory {name!r} does not say which model it adapts (base_model_name_or_path)")
    return str(base)


def _tokenizer(name: str, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        where = "" if Path(name).is_dir() else " (not a directory here; as a hub name it needs the network)"
        raise ModelError(f"no tokenizer for model {name!r}{where}: {_first_line(error)}") from error
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of {name!r} has no end-of-sequence token; set eos_token in tokenizer_config.json"
        )
    return tokenizer


def _with_adapter(model: Any, settings: PolicySettings) -> Any:
    if (Path(settings.model) / "adapter_config.json").is_file():
        from peft import PeftModel

        return PeftModel.from_pretrained(model, settings.model, is_trainable=True)
    return model if settings.lora is None else _new_adapter(model, settings.lora)


def _new_adapter(model: Any, lora: LoraSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
