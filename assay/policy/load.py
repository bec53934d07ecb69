"""Load a policy from a model directory, an adapter directory, a GGUF file or a hub name."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from assay.config.sections import PolicySettings
from assay.errors import AssayError, MachineError, ModelError, SettingsError
from assay.policy.adapters import (
    ADAPTER,
    adapter_config,
    check_vocabulary,
    is_adapter,
    with_adapter,
)
from assay.policy.chat import Chat, open_chat
from assay.policy.checkpoints import not_finite
from assay.policy.gguf import as_folder, require_path
from assay.policy.layers import use_efficient_layers
from assay.policy.onednn import has_bfloat16, use_fast_linear
from assay.policy.tokenizer import describe_source, load_tokenizer, why_not_loaded

log = logging.getLogger(__name__)
REFUSED = {"moshi": "it is the text half of a speech model"}
"""Types of models that load, but cannot be trained here, and why."""
WIDE = 512
"""Models of fewer hidden units gain little from bfloat16."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Names that configurations use for the number of experts."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "spiece.model",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model with its tokenizer."""

    model: Any
    """A transformers model, or a peft model around one."""
    chat: Chat
    """Encodes prompts and decodes completions."""
    device: torch.device
    """The device that holds the model."""
    pad_token: int
    """The id that pads sequences; always masked."""

    @property
    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that are trained, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @property
    def context(self) -> int | None:
        """The context length in tokens; None if the model's configuration does not say."""
        return context_of(self.model.config)

    def copy_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Give the trained weights the values of others of their names, in place."""
        for name, parameter in self.trainable.items():
            parameter.data.copy_(weights[name].detach())

    def save(self, folder: Path) -> None:
        """Write the adapter alone, or the whole model, and the tokenizer to `folder`.

        `load_policy` loads it again.
        """
        self.model.save_pretrained(folder)
        self.save_beside(folder)

    def save_beside(self, folder: Path) -> None:
        """Write what belongs to the weights: the tokenizer, and the tokens that end a turn."""
        self.chat.tokenizer.save_pretrained(folder)
        self.model.generation_config.save_pretrained(folder)


def is_empty(model: Any) -> bool:
    """Whether weights of the model are still to come."""
    return any(parameter.is_meta for parameter in model.parameters())


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first GPU, or the CPU without one.

    Raises SettingsError for a device that this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingsError(
            f"setting 'policy.device' = {name!r} is not a device; try 'auto', 'cpu' or 'cuda'"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            f"setting 'policy.device' = {name!r}, but torch finds no GPU here; use 'auto'"
        )
    return device


def load_policy(settings: PolicySettings, *, empty: bool = False) -> Policy:
    """The policy that `settings.model` names, ready to learn.

    An adapter directory continues to train that adapter. `empty`: without weights, which another
    process has; its tensors are on the meta device, unless they are quantized. Raises ModelError
    without a usable model or tokenizer, SettingsError for settings that do not fit it, MachineError
    if the device has too little memory.
    """
    settings = with_dtype(settings)
    base = as_folder(base_model_of(settings.model))
    device = pick_device(settings.device)
    check_quantize(settings, is_adapted(settings))
    source, remote = tokenizer_source(settings.model), settings.trust_remote_code
    tokenizer = load_tokenizer(source, remote)
    if is_adapter(settings.model) and source != base and _has_tokenizer(base):
        check_vocabulary(settings.model, base, tokenizer, load_tokenizer(base, remote))
    with _loading(settings, device, base):
        model = with_adapter(_full_model(base, settings, device, empty), settings)
        if not is_empty(model):
            if wrong := not_finite(model.named_parameters()):
                raise ModelError(
                    f"model {settings.model!r} has a weight that is not finite ({wrong}); take an"
                    " earlier checkpoint of it, or save it again"
                )
            model.to(device)
        use_efficient_layers(model)
        if device.type == "cpu":
            use_fast_linear(model)
        if settings.float32_lm_head:
            _compute_head_in_float32(model)
        if settings.gradient_checkpointing:
            _enable_gradient_checkpointing(model)
    eos = model.generation_config.eos_token_id
    stops = eos if isinstance(eos, list) else [] if eos is None else [eos]
    chat = open_chat(tokenizer, settings.chat, stops)
    if more := sorted(chat.stop_tokens.difference(stops)):  # so that `generate` stops there too
        model.generation_config.eos_token_id = [*stops, *more]
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    model.eval()
    return Policy(model, chat, device, pad)


def base_model_of(name: str, needs_tokenizer: bool = True) -> str:
    """The full model behind `name`: itself, or the base model of an adapter directory.

    A directory comes as an absolute path; nothing is downloaded or converted. Raises ModelError
    for a directory that lacks its configuration or its tokenizer.
    """
    folder = Path(name)
    if not folder.is_dir():
        require_path(name)
        return name
    files = {path.name for path in folder.iterdir()}
    if not files & {"config.json", ADAPTER}:
        raise ModelError(
            f"model directory {name!r} holds no config.json; is it a Hugging Face model directory?"
        )
    if ADAPTER not in files:
        if needs_tokenizer and not _has_tokenizer(name):
            raise ModelError(
                f"model directory {name!r} holds no tokenizer; save one there with"
                f" tokenizer.save_pretrained({name!r})"
            )
        return str(folder.resolve())
    base = adapter_config(folder).get("base_model_name_or_path")
    if not base:
        raise ModelError(
            f"adapter directory {name!r} does not say which model it adapts"
            " (base_model_name_or_path)"
        )
    if is_adapter(base):
        raise ModelError(f"adapter {name!r} adapts the adapter {base!r}: merge that first")
    try:
        return base_model_of(str(base), needs_tokenizer=not _has_tokenizer(name))
    except ModelError as error:
        raise ModelError(
            f"adapter {name!r} needs its base, but {error}; correct base_model_name_or_path in"
            f" its {ADAPTER}"
        ) from error


def tokenizer_source(name: str) -> str:
    """Where the tokenizer of model `name` is: with it, or with the base of an adapter."""
    alone = is_adapter(name) and not _has_tokenizer(name)
    return as_folder(base_model_of(name) if alone else name)


def _has_tokenizer(name: str) -> bool:
    """Whether a directory has a tokenizer; a hub name counts as one that has."""
    folder = Path(name)
    return not folder.is_dir() or any((folder / file).is_file() for file in TOKENIZER_FILES)


def is_adapted(settings: PolicySettings) -> bool:
    """Whether an adapter is trained, not the model's own weights."""
    return settings.lora is not None or is_adapter(settings.model)


def has_config(settings: PolicySettings, dry_run: bool) -> bool:
    """Whether the model's configuration may be loaded: a `dry_run` asks nothing of the hub."""
    return not dry_run or settings.model == "tiny" or Path(settings.model).is_dir()


def width_of(settings: PolicySettings) -> int:
    """The hidden size of the model that the settings name. Raises ModelError."""
    if settings.model == "tiny":
        return settings.tiny.width
    return int(_config(settings).get_text_config().hidden_size)


def with_dtype(settings: PolicySettings) -> PolicySettings:
    """The settings with the data type that `auto` stands for on this machine. Raises ModelError."""
    if settings.dtype != "auto":
        return settings
    device, width = pick_device(settings.device), width_of(settings)
    has_instructions = has_bfloat16() if device.type == "cpu" else torch.cuda.is_bf16_supported()
    dtype = "bfloat16" if width >= WIDE and has_instructions else "float32"
    log.info("policy.dtype = 'auto': %s (%d hidden units, %s)", dtype, width, device)
    return settings.model_copy(update={"dtype": dtype})


def check_quantize(settings: PolicySettings, adapted: bool) -> None:
    """Raises SettingsError for 4-bit weights without an adapter to train, or without the extra."""
    if settings.quantize and not adapted:
        raise SettingsError(
            "policy.quantize = 'nf4' freezes the weights, so there is nothing to train; set"
            " policy.lora"
        )
    if settings.quantize and find_spec("bitsandbytes") is None:
        raise SettingsError(
            "policy.quantize = 'nf4' needs a package: pip install -e '.[quant]' in assay's checkout"
        )


def context_of(config: Any) -> int | None:
    """The context length in tokens of a transformers configuration; None if it does not say."""
    config = config.get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    length = length or getattr(config, "n_positions", None)
    return int(length) if length else None


def context_of_model(settings: PolicySettings) -> int | None:
    """The context length of the model that the settings name, without loading its weights.

    Raises ModelError for a configuration that cannot be loaded.
    """
    return settings.tiny.context if settings.model == "tiny" else context_of(_config(settings))


def is_mixture(settings: PolicySettings) -> bool:
    """Whether the model that the settings name is a mixture of experts. Raises ModelError."""
    config = None if settings.model == "tiny" else _config(settings).get_text_config()
    return any((getattr(config, name, 0) or 0) > 1 for name in EXPERTS)


def _config(settings: PolicySettings) -> Any:
    from transformers import AutoConfig

    base = as_folder(base_model_of(settings.model))
    with _loading(settings, torch.device("cpu"), base):
        return AutoConfig.from_pretrained(base, trust_remote_code=settings.trust_remote_code)


@contextmanager
def _loading(settings: PolicySettings, device: torch.device, base: str) -> Iterator[None]:
    """Turns errors of the libraries into ours, in one line."""
    adapter = is_adapter(settings.model)
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MachineError(
            f"{device} has no room for model {settings.model!r}: set policy.dtype = 'bfloat16' with"
            " policy.lora (and policy.quantize = 'nf4'), choose a smaller policy.model, or stop"
            " other programs on the device"
        ) from error
    except AssayError:
        raise
    except Exception as error:  # broken files and remote code raise anything
        raise ModelError(
            f"{f'adapter {settings.model!r}, of ' if adapter else ''}model {describe_source(base)}"
            f" cannot be loaded: {why_not_loaded(error)}"
        ) from error


def _full_model(base: str, settings: PolicySettings, device: torch.device, empty: bool) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(base, trust_remote_code=settings.trust_remote_code)
    if why := REFUSED.get(config.model_type):
        raise ModelError(f"model {base!r} is of type {config.model_type!r} and is refused: {why}")
    dtype = getattr(torch, settings.dtype)
    if empty and not settings.quantize and not hasattr(config, "quantization_config"):
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(
                config, dtype=dtype, trust_remote_code=settings.trust_remote_code
            )
    quantized = _nf4(dtype, device) if settings.quantize else {}
    model = AutoModelForCausalLM.from_pretrained(
        base, dtype=dtype, trust_remote_code=settings.trust_remote_code, **quantized
    )
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # else eval mode repacks weights: no gradient
    generation = model.generation_config
    if _save_error(generation):  # loading allows a temperature beside do_sample = false
        generation.do_sample = True
    if what := _save_error(generation):
        raise ModelError(
            f"generation_config.json of {base!r} cannot be saved again: {what}; fix or delete it"
        )
    return model


def _nf4(dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """Arguments of `from_pretrained` for 4-bit weights as in QLoRA (arXiv:2305.14314): NF4 with
    double quantization.
    """
    from transformers import BitsAndBytesConfig

    shape = {
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": dtype,
    }
    return {
        "quantization_config": BitsAndBytesConfig(load_in_4bit=True, **shape),
        "device_map": {"": device},
    }


def _compute_head_in_float32(model: Any) -> None:
    head = model.get_output_embeddings()
    if not isinstance(model.get_output_embeddings(), torch.nn.Linear):
        raise SettingsError(
            "policy.float32_lm_head does not work with an adapter on the head; leave it out"
        )
    head.forward = partial(_float32_head, head)  # no closure: a copy of the model uses its own head


def _float32_head(head: Any, hidden: Tensor) -> Tensor:
    bias = getattr(head, "bias", None)
    return linear(hidden.float(), head.weight.float(), None if bias is None else bias.float())


def _enable_gradient_checkpointing(model: Any) -> None:
    """Gradient checkpointing. transformers' own works only in training mode, but RL trains in eval
    mode, without dropout.

    Raises ModelError for a model whose blocks are not marked as checkpointable.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    blocks = [
        module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
    if not blocks:
        raise ModelError(
            f"{type(model).__name__} does not support gradient checkpointing; leave"
            " policy.gradient_checkpointing out"
        )
    for block in blocks:
        block.forward = partial(_checkpointed_block, block.forward)


def _checkpointed_block(forward: Any, *inputs: Any, **keywords: Any) -> Any:
    if keywords.get("past_key_values") is not None:  # the KV cache would be written twice
        return forward(*inputs, **keywords)
    return checkpoint(forward, *inputs, use_reentrant=False, **keywords)


def _save_error(generation: Any) -> str:
    """Why the configuration cannot be saved; empty if it can."""
    try:
        generation.validate(strict=True)
    except ValueError as error:
        return " ".join(str(error).split("\n")[1:2]) or str(error)
    return ""
