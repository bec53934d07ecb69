"""Token log-probabilities, entropies and values of a batch, in the fastest layout that is exact.

Layouts: packed sequences (varlen attention), padded ones, or those through the whole model.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from assay.errors import ModelError
from assay.policy.head import (
    compared_with_teacher,
    logprobs_from_hidden,
    logprobs_from_logits,
)
from assay.policy.packed import enable_packed_attention, observed_windows, pack
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
NOISE = 0.02
"""Standard deviation of the noise that `perturbed` adds."""
TIMES_OWN = 3.0
"""With less precise weights than float32, a layout may be off by so many times what the model's own
forward and backward pass is off: both are compared with the same weights in float32."""
PROBE_LENGTH = 12
"""Tokens of the longest sequence that layouts are tried out on."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """The output of a policy for a batch; position t belongs to the *prediction* of token t."""

    logprobs: Tensor
    """[B, T] float32, natural logarithm; 0 where nothing is to be predicted."""
    entropy: Tensor
    """[B, T] float32, in nats, of the token's distribution; 0 outside the mask. It has a gradient
    only with `entropy_gradient`. NaN where a server gives the log-probabilities alone."""
    values: Tensor | None = None
    """[B, T] float32, the critic's; None without a critic."""
    teacher_kl: Tensor | None = None
    """[B, T] float32, KL(policy || teacher) over the vocabulary, in nats; None without a teacher.
    It has a gradient."""
    teacher_logprobs: Tensor | None = None
    """[B, T] float32, the teacher's log-probability of each token; None without a teacher."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """What trying out a model has shown."""

    fastest: Layout
    """For sequences within both limits."""
    window: int
    """The longest sequence in which every token attends to all tokens before it."""
    alone_from: float
    """`fixed_rope_length`, or 0 if padding changes the model's results."""


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
    teacher: Any = None,
) -> ModelOutput:
    """Log-probabilities, entropies and values of the tokens of `batch` that are to be predicted.

    `temperature` divides the logits. `critic` maps the hidden states [M, H] that predict the M
    masked tokens to values [M]. `teacher` is a model with the same tokens.
    """
    mask = batch.predicted
    inputs = ModelInput(batch.tokens, batch.attention, mask)
    longest = batch.tokens.shape[1]
    layout, options = layout_of(model, longest), (temperature, critic, entropy_gradient, teacher)
    if longest < alone_from(model):
        outputs = [_forward(layout, model, inputs, *options)]
    else:
        outputs = [_forward(layout, model, row, *options) for row in _single_rows(model, inputs)]
    zeros = torch.zeros(mask.shape, device=mask.device)
    parts = [
        None if part[0] is None else zeros.masked_scatter(mask, torch.cat(part))
        for part in zip(*outputs, strict=True)
    ]
    return ModelOutput(*parts)  # type: ignore[arg-type]


def layout_of(model: Any, longest: int) -> Layout:
    """The layout for sequences of up to `longest` tokens. It is tried out once, and logged.

    `packed`: sequences end to end in one row (varlen attention), with a shared prompt prefix only
    once, and logits in tiles. `padded`: one padded row per sequence, logits in tiles. `plain`: one
    padded row per sequence through the whole model, if it changes the logits after the head.
    Raises ModelError for a model that is not causal.
    """
    layouts, config = _layouts(model), unwrap_model(model).config.get_text_config()
    layout, why = layouts.fastest, "the fastest layout that gives the model's own numbers"
    if layout == "packed" and longest > layouts.window:
        layout, why = "padded", f"sequences are longer than the attention window, {layouts.window}"
    drops = any(getattr(config, name, None) for name in ATTENTION_DROPOUTS)
    if layout == "packed" and model.training and drops:
        layout, why = "padded", "packed attention has no dropout"
    if longest >= layouts.alone_from:
        layout = "plain" if layout == "plain" else "padded"
        why = f"one at a time: from {layouts.alone_from} tokens on, length changes the results"
    _log_once(f"training forward of {config.model_type}: {layout} sequences ({why})")
    return layout


def tried_layouts(model: Any) -> dict[torch.dtype, Layouts]:
    """What trying out the model has shown, for `use_layouts` of a model like it."""
    _layouts(model)
    layouts: dict[torch.dtype, Layouts] = unwrap_model(model).assay_layouts
    return layouts


def use_layouts(model: Any, layouts: dict[torch.dtype, Layouts]) -> None:
    """Take over what was tried out with the same model elsewhere."""
    base = unwrap_model(model)
    base.__dict__["assay_layouts"] = layouts
    if any(layout.fastest == "packed" for layout in layouts.values()):
        enable_packed_attention(base)


def alone_from(model: Any) -> float:
    """Sequences of this many tokens and more run one at a time: others in their batch would change
    their results. 0 for a model with which padding does; infinite for most models.
    """
    return _layouts(model).alone_from


def fixed_rope_length(config: Any) -> float:
    """Sequences shorter than this have RoPE frequencies that do not depend on their length.

    It is infinite except for dynamic NTK scaling and LongRoPE, which change the frequencies of the
    whole batch when one sequence grows beyond the original context.
    """
    parameters = getattr(config, "rope_parameters", None) or {}
    limits = {math.inf}
    for rope in (parameters, *parameters.values()):
        if isinstance(rope, dict) and "dynamic" in (rope.get("rope_type") or ""):
            limits.add(config.max_position_embeddings)
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            limits.add(rope["original_max_position_embeddings"])
    return min(limits)


@contextmanager
@torch.no_grad()
def perturbed(model: Any) -> Iterator[None]:
    """Meanwhile, the model is in eval mode, and noise is added to what does nothing yet: parameters
    of zeros, as LoRA's B, and all that an adapter trains. Without it, errors there would not show.
    """
    was_training = model.training
    model.eval()
    adapted = hasattr(model, "peft_config")
    saved = {
        parameter: parameter.detach().clone()
        for parameter in model.parameters()
        if parameter.is_floating_point()
        and ((adapted and parameter.requires_grad) or not parameter.any())
    }
    generator = torch.Generator().manual_seed(0)
    for parameter in saved:
        noise = torch.randn(parameter.shape, generator=generator) * NOISE
        parameter.add_(noise.to(parameter))
    try:
        yield
    finally:
        for parameter, before in saved.items():
            parameter.copy_(before)
        model.train(was_training)


def unwrap_model(model: Any) -> Any:
    """The transformers model inside a peft model, or `model` itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@cache
def _log_once(message: str) -> None:
    log.info("%s", message)


def _layouts(model: Any) -> Layouts:
    base = unwrap_model(model)
    layouts: dict[torch.dtype, Layouts] = base.__dict__.setdefault("assay_layouts", {})
    if base.dtype not in layouts:
        with perturbed(model):
            layouts[base.dtype] = _try_layouts(model, 2e-4 if base.dtype == torch.float32 else 0.1)
    return layouts[base.dtype]


def _single_rows(model: Any, inputs: ModelInput) -> Iterator[ModelInput]:
    """The sequences of a batch one by one, without padding."""
    for row, length in enumerate(inputs.attention.sum(-1).tolist()):
        with torch.no_grad():  # a short sequence resets the RoPE frequencies that a long one left
            unwrap_model(model).base_model(input_ids=inputs.tokens[:1, :1], use_cache=False)
        yield ModelInput(*(part[row : row + 1, :length] for part in inputs))


def _forward(
    layout: Layout,
    model: Any,
    inputs: ModelInput,
    temperature: float,
    critic: Any,
    entropy_gradient: bool,
    teacher: Any,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """What `ModelOutput` has, of the M masked tokens, each [M] float32."""
    base, targets = unwrap_model(model), inputs.tokens[inputs.mask]
    if layout == "plain":
        hidden, logits = _full_logits(model, inputs, wants_hidden=critic is not None)
        last, head = logits, nn.Identity()
        scaled = logits.float() / temperature
        outputs = logprobs_from_logits(scaled, targets, entropy_gradient)
    else:
        last = hidden = (_packed if layout == "packed" else _padded)(base.base_model, inputs)
        head = base.get_output_embeddings()
        outputs = logprobs_from_hidden(head, hidden, targets, temperature, entropy_gradient)
    values = None if critic is None else critic(hidden).float()
    if teacher is None:
        return *outputs, values, None, None
    theirs = _last_states(teacher, inputs)
    return *outputs, values, *compared_with_teacher(head, last, *theirs, targets, temperature)


@torch.no_grad()
def _last_states(model: Any, inputs: ModelInput) -> tuple[Any, Tensor]:
    """A head, and what it makes the logits of the M masked tokens from, [M, H]; without gradient.

    Where length changes its results, it reads the sequences one by one. The policy does not: ranks
    that share it must make as many passes through it as each other.
    """
    longest = inputs.tokens.shape[1]
    rows = [inputs] if longest < alone_from(model) else _single_rows(model, inputs)
    layout, base = layout_of(model, longest), unwrap_model(model)
    if layout == "plain":
        logits = [_full_logits(model, row, wants_hidden=False)[1] for row in rows]
        return nn.Identity(), torch.cat(logits)
    hidden = [(_packed if layout == "packed" else _padded)(base.base_model, row) for row in rows]
    return base.get_output_embeddings(), torch.cat(hidden)


def _packed(trunk: Any, inputs: ModelInput) -> Tensor:
    """[M, H] hidden states that predict the masked tokens, in row-major order."""
    row = pack(inputs.tokens, inputs.mask)
    no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=row.tokens.device)  # 4D is kept as is
    ids = {"input_ids": row.tokens.unsqueeze(0), "position_ids": row.positions.unsqueeze(0)}
    out = trunk(**ids, attention_mask=no_mask, use_cache=False, segments=row.segments)
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
    rows = {"input_ids": inputs.tokens, "attention_mask": inputs.attention.long()}
    options = {"logits_to_keep": positions, "output_hidden_states": wants_hidden}
    out = model(**rows, **options, use_cache=False)
    hidden = out.hidden_states[-1][:, :-1][mask] if wants_hidden else None
    keeps = out.logits.shape[1] == len(positions)  # some models ignore logits_to_keep
    return hidden, out.logits[mask[:, positions]] if keeps else out.logits[:, :-1][mask]


def _try_layouts(model: Any, tolerance: float) -> Layouts:
    """The fastest layout that gives the numbers of the whole model on a small batch."""
    base = unwrap_model(model)
    config = base.config.get_text_config()
    name, limit = config.model_type, fixed_rope_length(config)
    own_attention = config._attn_implementation
    expected = _probe("plain", model, one_by_one=True)
    if _leaks("plain", model, tolerance, one_by_one=True):
        raise ModelError(
            f"model of type {name!r} is not causal: a token changes the log-probabilities of tokens"
            " before it; use a causal language model"
        )
    if base.dtype != torch.float32:
        with suppress(torch.OutOfMemoryError), _float32_weights(model):
            exact = _probe("plain", model, one_by_one=True)
            tolerance = max(tolerance, TIMES_OWN * _distance(expected, exact))
            expected = exact
    for layout in LAYOUTS:
        try:
            scales = any(getattr(config, name, None) not in (None, 1.0) for name in LOGIT_SCALES)
            if layout != "plain" and scales:
                raise NotImplementedError("the model changes its logits after the head")
            window = _packed_window(model) if layout == "packed" else 0
            results = _probe(layout, model)
            if _leaks(layout, model, tolerance if layout == "plain" else 1e-6):
                raise NotImplementedError("a token would change tokens before it or beside it")
            off = _distance(results, expected)
            if not off <= tolerance:
                raise NotImplementedError(f"the results would differ by {off:.2g}")
            return Layouts(layout, window, limit)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # models run their own code, which raises anything
            log.warning("the sequences of %s cannot be %s: %s", name, layout, one_line(error))
        if config._attn_implementation != own_attention:
            base.set_attn_implementation(own_attention)
    return Layouts("plain", window=0, alone_from=0)


def _distance(results: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> float:
    """The largest difference, as a share of the largest expected number (of at least 1)."""
    shares = [
        (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0)
        for ours, theirs in zip(results, expected, strict=True)
    ]
    return float(torch.stack(shares).max())  # NaN stays NaN


@contextmanager
def _float32_weights(model: Any) -> Iterator[None]:
    """Meanwhile, the weights are in float32, which takes twice their memory."""
    rounded = {weight: weight.data for weight in model.parameters() if weight.is_floating_point()}
    try:
        for weight, data in rounded.items():
            weight.data = data.float()
        yield
    finally:
        for weight, data in rounded.items():
            weight.data = data


def _packed_window(model: Any) -> int:
    """The window of a model that now has packed attention. Raises NotImplementedError if packing it
    is not possible, or of no use.
    """
    base = unwrap_model(model)
    enable_packed_attention(base)
    with observed_windows(base) as windows:
        _probe("plain", model)
    window = min(windows, default=0)
    if window < PROBE_LENGTH:
        why = f"its attention window is {window} tokens" if window else "it makes its own masks"
        raise NotImplementedError(why)
    return window


def _leaks(layout: Layout, model: Any, tolerance: float, one_by_one: bool = False) -> bool:
    """Whether a changed token changes any log-probability but its own and later ones of its row."""
    (before, _), (after, _) = (_probe(layout, model, one_by_one, other) for other in (0, 1))
    moved = (before - after).abs() > tolerance
    moved[1, 7:] = False
    return bool(moved.any())


def _probe(
    layout: Layout, model: Any, one_by_one: bool = False, other: int = 0
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [3, 12] of a small batch, and the gradient [H] of a weighted sum of them as
    all embeddings shift. `other` is added to the number of the token in row 1, position 7.

    Tokens whose embedding is about zero, as padding's, are left out: each norm multiplies their
    gradient by a thousand, so that deep models overflow.
    """
    embedding = unwrap_model(model).get_input_embeddings()
    numbers = torch.arange(3 * PROBE_LENGTH, device=model.device).view(3, PROBE_LENGTH) * 7919
    numbers[1, :5] = numbers[0, :5]
    numbers[1, 7] += other
    norms = torch.linalg.vector_norm(embedding.weight.detach(), dim=-1, dtype=torch.float32)
    usable = (norms >= norms.median() / 10).nonzero().squeeze(-1)
    tokens = usable[numbers % len(usable)]
    position = torch.arange(PROBE_LENGTH, device=model.device)
    attention = position < torch.tensor([[12], [9], [10]], device=model.device)
    mask = attention & (position >= torch.tensor([[5], [5], [3]], device=model.device))
    embedded: list[Tensor] = []

    def detach(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return output
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    hook = embedding.register_forward_hook(detach)
    try:
        with torch.enable_grad():
            inputs = ModelInput(tokens, attention, mask)
            rows = _single_rows(model, inputs) if one_by_one else [inputs]
            masked = torch.cat(
                [_forward(layout, model, row, 1.0, None, False, None)[0] for row in rows]
            )
            logprobs = torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, masked)
            grads = torch.autograd.grad((logprobs * torch.cos(position)).sum(), embedded)
    finally:
        hook.remove()
    return logprobs.detach(), torch.stack([g.float().sum((0, 1)) for g in grads]).sum(0)
