"""Token log-probabilities, entropies and values of a batch, in the fastest layout that is exact.

Layouts: packed sequences (varlen attention), padded sequences, or the whole model as it is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from assay.policy.head import logprobs_from_hidden, logprobs_from_logits
from assay.policy.packed import enable_packed_attention, pack
from assay.registry import one_line
from assay.types import Batch

log = logging.getLogger(__name__)
Layout = Literal["packed", "padded", "plain"]
LAYOUTS: tuple[Layout, ...] = ("packed", "padded", "plain")
"""From the fastest to the one that fits every model."""
LOGIT_SCALES = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)
"""Names that configurations use for a change of the logits after the head."""
ATTENTION_DROPOUTS = (
    "attention_dropout",
    "attn_pdrop",
    "attention_probs_dropout_prob",
    "attn_dropout",
)
"""Names that configurations use for dropout inside attention."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """The output of a policy for a batch; position t belongs to the *prediction* of token t."""

    logprobs: Tensor
    """[B, T] float32, natural logarithm; 0 outside the mask."""
    entropy: Tensor
    """[B, T] float32, in nats, of the token's distribution; 0 outside the mask. It has a gradient
    only with `entropy_gradient`."""
    values: Tensor | None = None
    """[B, T] float32, the critic's; None without a critic."""


class ModelInput(NamedTuple):
    """The tokens, attention mask and loss mask of a batch, each [B, T]."""

    tokens: Tensor
    attention: Tensor
    mask: Tensor


def forward(
    model: Any,
    batch: Batch,
    temperature: float = 1.0,
    *,
    critic: Any = None,
    entropy_gradient: bool = False,
) -> ModelOutput:
    """Log-probabilities, entropies and values of the masked tokens of `batch`.

    `temperature` divides the logits. `critic` maps the hidden states [M, H] that predict the M
    masked tokens to values [M].
    """
    inputs = ModelInput(batch.tokens, batch.attention, batch.mask)
    return _forward(layout_of(model), model, inputs, temperature, critic, entropy_gradient)


def layout_of(model: Any) -> Layout:
    """The layout for `model`: tried out on the first call, then logged and remembered.

    `packed`: sequences end to end in one row (varlen attention), with a shared prompt prefix only
    once, and logits in tiles. `padded`: one padded row per sequence, logits in tiles. `plain`: one
    padded row per sequence through the whole model, if it changes the logits after the head.
    """
    base, device = unwrap_model(model), model.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else base.dtype
    known: dict[torch.dtype, Layout] = base.__dict__.setdefault("assay_layouts", {})
    if dtype not in known:
        known[dtype] = _choose_layout(model, 2e-4 if dtype == torch.float32 else 0.1)
    drops = any(getattr(base.config.get_text_config(), name, None) for name in ATTENTION_DROPOUTS)
    return "padded" if known[dtype] == "packed" and model.training and drops else known[dtype]


def unwrap_model(model: Any) -> Any:
    """The transformers model inside a peft model, or `model` itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _forward(
    layout: Layout,
    model: Any,
    inputs: ModelInput,
    temperature: float,
    critic: Any,
    entropy_gradient: bool,
) -> ModelOutput:
    base, targets = unwrap_model(model), inputs.tokens[inputs.mask]
    if layout == "plain":
        hidden, logits = _full_logits(model, inputs, wants_hidden=critic is not None)
        scaled = logits.float() / temperature
        logprobs, entropy = logprobs_from_logits(scaled, targets, entropy_gradient)
    else:
        hidden = (_packed if layout == "packed" else _padded)(base.base_model, inputs)
        head = base.get_output_embeddings()
        logprobs, entropy = logprobs_from_hidden(
            head, hidden, targets, temperature, entropy_gradient
        )
    mask, zeros = inputs.mask, torch.zeros(inputs.mask.shape, device=inputs.mask.device)
    values = None if critic is None else zeros.masked_scatter(mask, critic(hidden).float())
    return ModelOutput(
        zeros.masked_scatter(mask, logprobs), zeros.masked_scatter(mask, entropy), values
    )


def _packed(trunk: Any, inputs: ModelInput) -> Tensor:
    """[M, H] hidden states that predict the masked tokens, in row-major order."""
    row = pack(inputs.tokens, inputs.mask)
    no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=row.tokens.device)  # 4D is kept as is
    out = trunk(
        input_ids=row.tokens.unsqueeze(0),
        position_ids=row.positions.unsqueeze(0),
        attention_mask=no_mask,
        use_cache=False,
        segments=row.segments,
    )
    # A shared prompt's last token predicts many tokens. The gradient of indexing would add them up
    # in an order that depends on threads; that of an embedding does not.
    return nn.functional.embedding(row.predictors, out.last_hidden_state[0])


def _padded(trunk: Any, inputs: ModelInput) -> Tensor:
    """As `_packed`, of padded rows."""
    out = trunk(input_ids=inputs.tokens, attention_mask=inputs.attention.long(), use_cache=False)
    return out.last_hidden_state[:, :-1][inputs.mask[:, 1:]]  # type: ignore[no-any-return]


def _full_logits(
    model: Any, inputs: ModelInput, wants_hidden: bool
) -> tuple[Tensor | None, Tensor]:
    """The hidden states [M, H] if wanted, and logits [M, V], computed only at positions that some
    row needs.
    """
    mask = inputs.mask[:, 1:]
    positions = mask.any(dim=0).nonzero().squeeze(-1)
    out = model(
        input_ids=inputs.tokens,
        attention_mask=inputs.attention.long(),
        use_cache=False,
        logits_to_keep=positions,
        output_hidden_states=wants_hidden,
    )
    hidden = out.hidden_states[-1][:, :-1][mask] if wants_hidden else None
    return hidden, out.logits[mask[:, positions]]


def _choose_layout(model: Any, tolerance: float) -> Layout:
    """The fastest layout that gives the numbers of the whole model on a small batch."""
    base, was_training = unwrap_model(model), model.training
    config = base.config.get_text_config()
    model.eval()
    try:
        expected = _probe("plain", model)
        for layout in LAYOUTS[:-1]:
            try:
                if any(getattr(config, name, None) not in (None, 1.0) for name in LOGIT_SCALES):
                    raise NotImplementedError("the model changes its logits after the head")
                if layout == "packed" and not enable_packed_attention(base):
                    raise NotImplementedError("its attention is not full and causal in every layer")
                results = zip(_probe(layout, model), expected, strict=True)
                if _leaks(layout, model):
                    raise NotImplementedError("a token would change tokens before it or beside it")
                differences = [
                    (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0)
                    for ours, theirs in results
                ]
                off = float(torch.stack(differences).max())
            except Exception as error:  # noqa: BLE001  # models run their own code, which raises anything
                reason = one_line(error)
            else:
                if off <= tolerance:
                    log.info("the sequences of %s are %s", config.model_type, layout)
                    return layout
                reason = f"the results would differ by {off:.2g}"
            log.warning("the sequences of %s cannot be %s: %s", config.model_type, layout, reason)
        return "plain"
    finally:
        model.train(was_training)


def _leaks(layout: Layout, model: Any) -> bool:
    """Whether a changed token changes any log-probability but its own and later ones of its row."""
    (before, _), (after, _) = _probe(layout, model), _probe(layout, model, other=1)
    moved = (before - after).abs() > 1e-6
    moved[1, 7:] = False
    return bool(moved.any())


def _probe(layout: Layout, model: Any, other: int = 0) -> tuple[Tensor, Tensor]:
    """[3, 12] log-probabilities of a small batch, and the gradient [H] of a weighted sum of them
    as all embeddings shift.

    `other` is added to the token in row 1, position 7.
    """
    embedding = unwrap_model(model).get_input_embeddings()
    tokens = (torch.arange(36, device=model.device) * 7919 % embedding.weight.shape[0]).view(3, 12)
    tokens[1, :5] = tokens[0, :5]
    tokens[1, 7] = (tokens[1, 7] + other) % embedding.weight.shape[0]
    position = torch.arange(12, device=model.device)
    attention = position < torch.tensor([[12], [9], [10]], device=model.device)
    mask = attention & (position >= torch.tensor([[5], [5], [3]], device=model.device))
    embedded: list[Tensor] = []

    def detach(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    hook = embedding.register_forward_hook(detach)
    try:
        with torch.enable_grad():
            inputs = ModelInput(tokens, attention, mask)
            logprobs = _forward(layout, model, inputs, 1.0, None, False).logprobs
            (grad,) = torch.autograd.grad((logprobs * torch.cos(position)).sum(), embedded)
    finally:
        hook.remove()
    return logprobs.detach(), grad.float().sum(dim=(0, 1))
