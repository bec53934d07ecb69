"""Log-probabilities, entropies and values of given tokens, computed the fastest way that is right
for the model.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from assay.policy.head import logprobs_from_hidden, logprobs_from_logits
from assay.policy.packed import pack, sees_only_parts
from assay.registry import one_line
from assay.types import Batch

log = logging.getLogger(__name__)
Layout = Literal["packed", "padded", "plain"]
LAYOUTS: tuple[Layout, ...] = ("packed", "padded", "plain")
"""From the fastest to the one that fits every model."""
SCALES = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)
"""What configurations call a change of the logits behind the head."""
DROPOUTS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob", "attn_dropout")
"""What configurations call dropout inside of attention."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """What a policy makes of a batch; position t holds the numbers of *predicting* token t."""

    logprobs: Tensor
    """[B, T] float32, natural; 0 outside the mask."""
    entropy: Tensor
    """[B, T] float32, nats, of the distribution of the token; 0 outside the mask, with a gradient
    only where asked."""
    values: Tensor | None = None
    """[B, T] float32, the critic's; None without one."""


class Rows(NamedTuple):
    """What there is to see: tokens, attention and mask of a batch, each [B, T]."""

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
    """What `model` makes of the masked tokens of `batch`; `temperature` divides the logits.

    `critic` maps the hidden states [M, H] that predict the M masked tokens to values [M].
    """
    rows = Rows(batch.tokens, batch.attention, batch.mask)
    return _see(layout_of(model), model, rows, temperature, critic, entropy_gradient)


def layout_of(model: Any) -> Layout:
    """How sequences are laid out for `model`, found by trying when first asked and logged.

    `packed`: end to end in one row, shared prompts once, logits in tiles. `padded`: a row for each,
    logits in tiles. `plain`: a row for each through the whole model, for heads whose logits are
    changed afterwards.
    """
    plain, device = unwrap_model(model), model.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else plain.dtype
    known: dict[torch.dtype, Layout] = plain.__dict__.setdefault("assay_layouts", {})
    if dtype not in known:
        known[dtype] = _try_layouts(model, 2e-4 if dtype == torch.float32 else 0.1)
    drops = any(getattr(plain.config.get_text_config(), name, None) for name in DROPOUTS)
    return "padded" if known[dtype] == "packed" and model.training and drops else known[dtype]


def unwrap_model(model: Any) -> Any:
    """The transformers model, without peft's wrapping."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _see(
    layout: Layout, model: Any, rows: Rows, temperature: float, critic: Any, entropy_gradient: bool
) -> ModelOutput:
    plain, targets = unwrap_model(model), rows.tokens[rows.mask]
    if layout == "plain":
        hidden, logits = _whole(model, rows, wants_hidden=critic is not None)
        logprobs, entropy = logprobs_from_logits(
            logits.float() / temperature, targets, entropy_gradient
        )
    else:
        hidden = (_packed if layout == "packed" else _padded)(plain.base_model, rows)
        head = plain.get_output_embeddings()
        logprobs, entropy = logprobs_from_hidden(
            head, hidden, targets, temperature, entropy_gradient
        )
    zeros = torch.zeros(rows.tokens.shape, dtype=torch.float32, device=rows.tokens.device)
    values = None if critic is None else zeros.masked_scatter(rows.mask, critic(hidden).float())
    return ModelOutput(
        zeros.masked_scatter(rows.mask, logprobs), zeros.masked_scatter(rows.mask, entropy), values
    )


def _packed(trunk: Any, rows: Rows) -> Tensor:
    """[M, H] hidden states that predict the masked tokens, in row-major order."""
    row = pack(rows.tokens, rows.mask)
    no_mask = torch.ones(
        1, 1, 1, 1, dtype=torch.bool, device=rows.tokens.device
    )  # four axes: passed on as it is
    places = {"input_ids": row.tokens.unsqueeze(0), "position_ids": row.positions.unsqueeze(0)}
    out = trunk(**places, attention_mask=no_mask, use_cache=False, parts=row.parts)
    # many places are the last of one prompt: indexing would add their gradients up in an order that
    # threads decide
    return nn.functional.embedding(row.places, out.last_hidden_state[0])


def _padded(trunk: Any, rows: Rows) -> Tensor:
    out = trunk(input_ids=rows.tokens, attention_mask=rows.attention.long(), use_cache=False)
    return out.last_hidden_state[:, :-1][rows.mask[:, 1:]]  # type: ignore[no-any-return]


def _whole(model: Any, rows: Rows, wants_hidden: bool) -> tuple[Tensor | None, Tensor]:
    """The hidden states, and [M, V] logits; logits are made only of the positions that some row
    needs.
    """
    wanted = rows.mask[:, 1:]
    needed = wanted.any(dim=0).nonzero().squeeze(-1)
    given = {"input_ids": rows.tokens, "attention_mask": rows.attention.long(), "use_cache": False}
    out = model(**given, logits_to_keep=needed, output_hidden_states=wants_hidden)
    return out.hidden_states[-1][:, :-1][wanted] if wants_hidden else None, out.logits[
        wanted[:, needed]
    ]


def _try_layouts(model: Any, tolerance: float) -> Layout:
    """The fastest layout that sees in a small batch what the whole model sees in it."""
    plain, was_training = unwrap_model(model), model.training
    config = plain.config.get_text_config()
    model.eval()
    try:
        expected = _try("plain", model)
        for layout in LAYOUTS[:-1]:
            try:
                if any(getattr(config, name, None) not in (None, 1.0) for name in SCALES):
                    raise NotImplementedError("its logits are changed behind the head")
                if layout == "packed" and not sees_only_parts(plain):
                    raise NotImplementedError("its attention is not full and causal everywhere")
                found = zip(_try(layout, model), expected, strict=True)
                if _leaks(layout, model):
                    raise NotImplementedError(
                        "a token would change what was before it, or beside it"
                    )
                off = float(
                    torch.stack(
                        [(a - b).abs().max() / b.abs().max().clamp(min=1.0) for a, b in found]
                    ).max()
                )
            except Exception as error:  # noqa: BLE001  # models bring code of their own, and that raises anything
                reason = one_line(error)
            else:
                if off <= tolerance:
                    log.info("the sequences of %s are %s", config.model_type, layout)
                    return layout
                reason = f"its numbers would be off by {off:.2g}"
            log.warning("the sequences of %s cannot be %s: %s", config.model_type, layout, reason)
        return "plain"
    finally:
        model.train(was_training)


def _leaks(layout: Layout, model: Any) -> bool:
    """Whether another token in one place changes anything but what that place and the later ones of
    its row tell.
    """
    (before, _), (after, _) = _try(layout, model), _try(layout, model, other=1)
    moved = (before - after).abs() > 1e-6
    moved[1, 7:] = False
    return bool(moved.any())


def _try(layout: Layout, model: Any, other: int = 0) -> tuple[Tensor, Tensor]:
    """[3, 12] log-probabilities of a small batch, and the slope [H] of a sum of them as all
    embeddings shift.

    `other` is added to the token in row 1, place 7.
    """
    embedding = unwrap_model(model).get_input_embeddings()
    tokens = (torch.arange(36, device=model.device) * 7919 % embedding.weight.shape[0]).view(3, 12)
    tokens[1, :5] = tokens[0, :5]
    tokens[1, 7] = (tokens[1, 7] + other) % embedding.weight.shape[0]
    place = torch.arange(12, device=model.device)
    attention = place < torch.tensor([[12], [9], [10]], device=model.device)
    mask = attention & (place >= torch.tensor([[5], [5], [3]], device=model.device))
    embedded: list[Tensor] = []

    def cut(module: nn.Module, given: Any, out: Tensor) -> Tensor:
        embedded.append(out.detach().requires_grad_())
        return embedded[0]

    hook = embedding.register_forward_hook(cut)
    try:
        with torch.enable_grad():
            logprobs = _see(layout, model, Rows(tokens, attention, mask), 1.0, None, False).logprobs
            (slope,) = torch.autograd.grad((logprobs * torch.cos(place)).sum(), embedded)
    finally:
        hook.remove()
    return logprobs.detach(), slope.float().sum(dim=(0, 1))
