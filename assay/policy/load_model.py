"""Load a policy from a model directory, an adapter directory, a GGUF file or a hub name."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from assay.config.sections import PolicySettings
from assay.errors import MachineError, ModelError, SettingsError
from assay.policy.adapters import check_vocabulary, with_adapter
from assay.policy.chat import Chat, open_chat
from assay.policy.checkpoints import not_finite
from assay.policy.layers import use_efficient_layers
from assay.policy.onednn import has_bfloat16, use_fast_linear
from assay.policy.source import ModelSource, context_of, source_of
from assay.policy.tiny import tiny_config

log = logging.getLogger(__name__)
REFUSED = {"moshi": "it is the text half of a speech model"}
"""Types of models that load, but cannot be trained here, and why."""
WIDE = 512
"""Models of fewer hidden units gain little from bfloat16."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model with its tokenizer."""

    model: Any
    """A transformers model, or a peft model around one."""
    chat: Chat
    """Encodes prompts and decodes completions."""
    device: torch.device
    """The device that computes. It holds the model, unless ranks keep a whole copy for servers."""
    pad_token: int
    """The id that pads sequences; always masked."""
    starts_as_base: bool = False
    """Whether a fresh adapter was put on the model: switched off, it gives the loaded weights."""

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


def load_policy(
    settings: PolicySettings, source: ModelSource | None = None, *, empty: bool = False
) -> Policy:
    """The policy that the settings name, ready to learn. `source`: what the name stands for, where
    that is known.

    An adapter directory continues to train that adapter. `empty`: without weights, which another
    process has; its tensors are on the meta device, unless they are quantized. Raises ModelError
    without a usable model or tokenizer, SettingsError for settings that do not fit it, MachineError
    if the device has too little memory.
    """
    source = (source or source_of(settings)).converted()
    source.require_made()
    if settings.dtype == "auto":
        settings = with_dtype(settings, source.facts.width)
    device = pick_device(settings.device)
    check_quantize(settings, is_adapted(settings, source))
    tokenizer = source.load_tokenizer()
    if (base_tokenizer := source.load_base_tokenizer()) is not None:
        check_vocabulary(source.name, source.base, tokenizer, base_tokenizer)
    with _loading(source, device):
        full = _full_model(source.base, settings, device, empty)
        model = with_adapter(full, source.adapter, settings.lora)
        if not is_empty(model):
            if wrong := not_finite(model.named_parameters()):
                raise ModelError(
                    f"model {source.name!r} has a weight that is not finite ({wrong}); take an"
                    " earlier checkpoint of it, or save it again"
                )
            model.to(device)
            _warn_of_tokens_without_embedding(source.name, model, tokenizer)
        use_efficient_layers(model)
        if device.type == "cpu":
            use_fast_linear(model)
        if settings.float32_lm_head:
            _compute_head_in_float32(model)
        if settings.gradient_checkpointing:
            enable_gradient_checkpointing(
                model, offload=settings.gradient_checkpointing == "offload"
            )
    eos = model.generation_config.eos_token_id
    stops = eos if isinstance(eos, list) else [] if eos is None else [eos]
    chat = open_chat(tokenizer, settings.chat, stops)
    if more := sorted(chat.stop_tokens.difference(stops)):  # so that `generate` stops there too
        model.generation_config.eos_token_id = [*stops, *more]
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    model.eval()
    starts_as_base = settings.lora is not None and source.adapter is None
    return Policy(model, chat, device, pad, starts_as_base)


def empty_model(settings: PolicySettings) -> Any:
    """The model of the settings, with its adapter, without weights, files of weights or a
    tokenizer: its tensors are on the meta device. 4-bit weights have the settings' data type here.

    Raises UserError for what cannot be used.
    """
    source = source_of(settings, needs_tokenizer=False).converted()
    shape = source.shape
    config = tiny_config(shape, shape.vocabulary) if shape else source.config
    with source.loading():
        dtype = usual_dtype(config.get_text_config().hidden_size, has_instructions=True)
        dtype = dtype if settings.dtype == "auto" else settings.dtype
        full = _empty(config, getattr(torch, dtype), settings)
        model = with_adapter(full, source.adapter, settings.lora)
    use_efficient_layers(model)
    return model


def is_adapted(settings: PolicySettings, source: ModelSource) -> bool:
    """Whether an adapter is trained, not the model's own weights."""
    return settings.lora is not None or source.adapter is not None


def with_dtype(settings: PolicySettings, width: int) -> PolicySettings:
    """The settings with the data type that `auto` stands for on this machine; `width`: hidden units
    of the model.
    """
    if settings.dtype != "auto":
        return settings
    device = pick_device(settings.device)
    has_instructions = has_bfloat16() if device.type == "cpu" else torch.cuda.is_bf16_supported()
    dtype = usual_dtype(width, has_instructions)
    log.info("policy.dtype = 'auto': %s (%d hidden units, %s)", dtype, width, device)
    return settings.model_copy(update={"dtype": dtype})


def usual_dtype(width: int, has_instructions: bool) -> Literal["bfloat16", "float32"]:
    """The data type of `auto` for so many hidden units; `has_instructions`: for bfloat16."""
    return "bfloat16" if width >= WIDE and has_instructions else "float32"


def check_quantize(settings: PolicySettings, adapted: bool) -> None:
    """Raises SettingsError for 4-bit weights without an adapter to train, or without the extra."""
    require_adapter(settings, adapted)
    if settings.quantize and find_spec("bitsandbytes") is None:
        raise SettingsError(
            "policy.quantize = 'nf4' needs a package: pip install -e '.[quant]' in assay's checkout"
        )


def require_adapter(settings: PolicySettings, adapted: bool) -> None:
    """Raises SettingsError for 4-bit weights without an adapter to train."""
    if settings.quantize and not adapted:
        raise SettingsError(
            "policy.quantize = 'nf4' freezes the weights, so there is nothing to train; set"
            " policy.lora"
        )


@contextmanager
def _loading(source: ModelSource, device: torch.device) -> Iterator[None]:
    """Turns errors of the libraries into ours, in one line."""
    with source.loading():
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise MachineError(
                f"{device} has no room for model {source.name!r}: set policy.dtype = 'bfloat16'"
                " with policy.lora (and policy.quantize = 'nf4'), choose a smaller policy.model, or"
                " stop other programs on the device"
            ) from error


def _empty(config: Any, dtype: torch.dtype, settings: PolicySettings) -> Any:
    from transformers import AutoModelForCausalLM

    remote = settings.trust_remote_code
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=remote)


def _full_model(base: str, settings: PolicySettings, device: torch.device, empty: bool) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(base, trust_remote_code=settings.trust_remote_code)
    if why := REFUSED.get(config.model_type):
        raise ModelError(f"model {base!r} is of type {config.model_type!r} and is refused: {why}")
    dtype = getattr(torch, settings.dtype)
    if empty and not settings.quantize and not hasattr(config, "quantization_config"):
        return _empty(config, dtype, settings)
    quantized = _nf4(dtype, device) if settings.quantize else {}
    model, report = AutoModelForCausalLM.from_pretrained(
        base, dtype=dtype, trust_remote_code=settings.trust_remote_code,
        ignore_mismatched_sizes=True, output_loading_info=True, **quantized,
    )  # fmt: skip
    if wrong := _why_weights_do_not_fit(report):
        raise ModelError(f"the weights of model {base!r} do not fit its config.json: {wrong}")
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


def _why_weights_do_not_fit(report: Mapping[str, Any]) -> str:
    """From transformers' report of loading, the first weight that it would have made up at random:
    one of another shape, or one that no file has. Empty if all fit.
    """
    for name, saved, configured in sorted(report["mismatched_keys"]):
        shapes = f"{name} is {list(saved)} in the file, and {list(configured)} by config.json"
        return f"{shapes}; take both from one model, or correct config.json"
    missing = sorted(report["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"no file has {missing[0]}{more}; download or save the model again"
    return ""


def _warn_of_tokens_without_embedding(name: str, model: Any, tokenizer: Any) -> None:
    rows = model.get_input_embeddings().weight.shape[0]
    if beyond := sorted(token for token, place in tokenizer.get_vocab().items() if place >= rows):
        log.warning(
            "model %r has %d embeddings, and its tokenizer %d tokens without one, such as %r: a"
            " text with one of them cannot be read",
            name, rows, len(beyond), beyond[0],
        )  # fmt: skip


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


def enable_gradient_checkpointing(model: Any, *, offload: bool = False) -> None:
    """Gradient checkpointing; `offload` keeps the inputs of blocks in host memory. transformers'
    own works only in training mode, but RL trains in eval mode, without dropout.

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
    run = _offloaded_block if offload else _checkpointed_block
    for block in blocks:
        block.forward = partial(run, block.forward)


def _offloaded_block(forward: Any, *inputs: Any, **keywords: Any) -> Any:
    with save_on_cpu(pin_memory=torch.cuda.is_available()):  # a checkpoint saves inputs alone
        return _checkpointed_block(forward, *inputs, **keywords)


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
