"""Steps of decoding on a CPU through models built like Llama: few, large products around the
attention.

A step of a small model is hundreds of operations of microseconds, and transformers spends twelve on
turning a layer's queries and keys. Products that read the same are one here, of weights laid out
for them once, adapters added in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.policy.forward import unwrap_model
from assay.policy.onednn import FastLinear, fast_linear, pad_rows, prepack

KNOWN = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
BLOCK = 8
"""Rows that are multiplied are multiples of this."""
Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""Called with a layer's number, queries [R, A, 1, D], keys and values [R, K, 1, D] and the scale:
[R, A * D]."""


def make_fused_decoder(model: Any) -> FusedDecoder | None:
    """The steps of `model` with the weights it has now; None where it is no known one on a CPU."""
    plain = unwrap_model(model)
    kinds = set(getattr(plain.config, "layer_types", None) or ["full_attention"])
    if (
        type(plain).__name__ not in KNOWN
        or kinds != {"full_attention"}
        or plain.device.type != "cpu"
    ):
        return None
    linears = (module for module in plain.modules() if isinstance(module, nn.Linear))
    usual = all(
        type(linear) in (nn.Linear, FastLinear) and "forward" not in vars(linear)
        for linear in linears
    )
    return FusedDecoder(plain) if usual else None


class FusedLinear:
    """Linear layers of the same input as one."""

    def __init__(self, *linears: Any) -> None:
        self.weight = prepack(torch.cat([_weight(linear) for linear in linears]))
        self.bias = (
            None if linears[0].bias is None else torch.cat([linear.bias for linear in linears])
        )

    def __call__(self, given: Tensor) -> Tensor:
        """[R, O1 + O2 + ...] of [R, I]."""
        return fast_linear(given, self.weight, self.bias)


def _weight(linear: Any) -> Tensor:
    """[O, I], with what adapters add."""
    weight: Tensor = linear.weight
    for name in getattr(linear, "active_adapters", ()):
        weight = weight + linear.get_delta_weight(name)
    return weight


class FusedDecoder:
    """Made of one version of a model's weights."""

    @torch.inference_mode()
    def __init__(self, plain: Any) -> None:
        self.trunk = plain.model
        self.head = FusedLinear(plain.lm_head)
        self.layers = [
            (layer, *_products(layer.self_attn, layer.mlp)) for layer in self.trunk.layers
        ]

    def __call__(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[R, V] logits in float32 after `tokens` [R], at `positions` [R]."""
        rows, positions = len(tokens), pad_rows(positions, BLOCK)
        seen = self.trunk.embed_tokens(pad_rows(tokens, BLOCK))
        cos, sin = _turns(*self.trunk.rotary_emb(seen[:, None], positions[:, None]))
        for number, (layer, ask, sum_up, widen, narrow) in enumerate(self.layers):
            attention = layer.self_attn
            asked = ask(_normed(seen, layer.input_layernorm)).view(
                len(seen), -1, 1, attention.head_dim
            )
            shared = asked.shape[1] // (2 + attention.num_key_value_groups)
            both, value = asked[:, :-shared], asked[:, -shared:]
            if hasattr(attention, "q_norm"):
                normed = (
                    _normed(both[:, :-shared], attention.q_norm),
                    _normed(both[:, -shared:], attention.k_norm),
                )
                both = torch.cat(normed, dim=1)
            both = torch.addcmul(both * cos, both.roll(attention.head_dim // 2, -1), sin)
            query, key = both[:rows, :-shared], both[:rows, -shared:]
            found = attend(number, query, key, value[:rows], attention.scaling)
            seen = seen + sum_up(pad_rows(found, BLOCK))
            gate, through = widen(_normed(seen, layer.post_attention_layernorm)).chunk(2, dim=-1)
            seen = seen + narrow(layer.mlp.act_fn(gate) * through)
        return self.head(_normed(seen, self.trunk.norm))[:rows].float()


def _products(attention: Any, mlp: Any) -> tuple[FusedLinear, ...]:
    """Queries, keys and values; what is seen; gate and what goes through it; what comes out."""
    asked = attention.q_proj, attention.k_proj, attention.v_proj
    return (
        FusedLinear(*asked),
        FusedLinear(attention.o_proj),
        FusedLinear(mlp.gate_proj, mlp.up_proj),
        FusedLinear(mlp.down_proj),
    )


def _turns(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """[R, 1, 1, D] factors of a vector and of the same with its halves swapped; from [R, 1, D]
    each.
    """
    low, high = sin.unsqueeze(1).chunk(2, dim=-1)
    return cos.unsqueeze(1), torch.cat([-low, high], dim=-1)


def _normed(values: Tensor, norm: Any) -> Tensor:
    return nn.functional.rms_norm(values, values.shape[-1:], norm.weight, norm.variance_epsilon)
