"""The fused decoder: decode steps of Llama-like models on a CPU, with few, large matrix products.

A decode step of a small model is hundreds of operations of microseconds, and transformers spends
twelve of them on the rotary embedding of one layer. Here linear layers of the same input are one
product, of weights that are prepacked once with the weights of the norm before them merged in. So
are LoRA adapters into float32 weights; bfloat16 would round small updates away, so there an adapter
adds its A to the product, and its B is a second one.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.policy.forward import unwrap_model
from assay.policy.onednn import fast_linear, is_plain_linear, pad_rows, prepack

KNOWN = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
BLOCK = 8
"""More rows than this are padded to multiples of it: oneDNN caches a kernel for every size."""
Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""Called with a layer's number, queries [R, A, 1, D], keys and values [R, K, 1, D] and the scale;
returns [R, A * D]."""


def is_fusible(model: Any) -> bool:
    """Whether `model` is of a known architecture, on a CPU, with plain linear layers."""
    base = unwrap_model(model)
    layer_types = set(getattr(base.config, "layer_types", None) or ["full_attention"])
    return (
        type(base).__name__ in KNOWN
        and layer_types == {"full_attention"}
        and base.device.type == "cpu"
        and all(
            is_plain_linear(module) for module in base.modules() if isinstance(module, nn.Linear)
        )
    )


class FusedLinear:
    """Linear layers of the same input as one product, with their LoRA adapters."""

    def __init__(self, *linears: Any, norm: Any = None) -> None:
        """With `norm`, its weights are merged in, and the input must come from `_normalized`."""
        weight = torch.cat([linear.weight for linear in linears])
        self.outputs, self.up = len(weight), None
        downs, ups = zip(*map(_adapter, linears), strict=True)
        down, up = torch.cat(downs), torch.block_diag(*ups)  # type: ignore[no-untyped-call]
        if len(down) and weight.dtype == torch.float32:
            weight = weight.addmm(up, down)
        elif len(down):
            self.up, weight = prepack(up.to(weight)), torch.cat([weight, down.to(weight)])
        if norm is not None:
            scale = norm.weight.float() * norm.weight.numel() ** 0.5
            weight = (weight.float() * scale).to(weight.dtype)
        biases = [linear.bias for linear in linears]
        none = all(bias is None for bias in biases)
        self.bias = (
            None if none else nn.functional.pad(torch.cat(biases), (0, len(weight) - self.outputs))
        )
        self.weight = prepack(weight)

    def __call__(self, values: Tensor) -> Tensor:
        """[R, I] -> [R, O1 + O2 + ...]."""
        out = fast_linear(values, self.weight, self.bias)
        if self.up is None:
            return out
        adapted = fast_linear(out[:, self.outputs :].contiguous(), self.up)
        return adapted.add_(out[:, : self.outputs])


def _adapter(linear: Any) -> tuple[Tensor, Tensor]:
    """A [r, I] and scaled B [O, r] of all LoRA adapters of a layer; r is 0 without any.

    Raises NotImplementedError for any other adapter.
    """
    if isinstance(linear, nn.Linear):
        weight = linear.weight
        return weight.new_empty(0, weight.shape[1]), weight.new_empty(len(weight), 0)
    is_lora = any(base.__module__ == "peft.tuners.lora.layer" for base in type(linear).__mro__)
    if not is_lora or linear.lora_variant or any(linear.lora_bias.values()) or linear.merged:
        raise NotImplementedError(f"the fused decoder does not know {type(linear).__name__}")
    names = linear.active_adapters
    downs = [linear.lora_A[name].weight for name in names]
    ups = [linear.lora_B[name].weight * linear.scaling[name] for name in names]
    return torch.cat(downs), torch.cat(ups, dim=1)


class FusedDecoder:
    """Decode steps with one version of a model's weights."""

    @torch.inference_mode()
    def __init__(self, model: Any) -> None:
        base = unwrap_model(model)
        self.trunk = base.model
        norm = self.trunk.norm
        self.head = FusedLinear(base.lm_head, norm=norm)
        self.layers = [(layer.self_attn, *_fused_layers(layer)) for layer in self.trunk.layers]
        self.activate = self.trunk.layers[0].mlp.act_fn
        self.epsilon = (norm.variance_epsilon * norm.weight.numel()) ** 0.5

    def __call__(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[R, V] float32 logits after `tokens` [R], which stand at `positions` [R]."""
        rows = len(tokens)
        more = -rows % BLOCK if rows > BLOCK else 0
        embedded = self.trunk.embed_tokens(pad_rows(tokens, more))
        positions = pad_rows(positions, more)
        cos, sin = _rotary(*self.trunk.rotary_emb(embedded[:, None], positions[:, None]))
        wide = nn.functional.pad(embedded, (0, 1), value=self.epsilon)
        hidden = wide[:, :-1]
        for number, (attention, *linears) in enumerate(self.layers):
            qkv_proj, o_proj, gate_up_proj, down_proj = linears
            qkv = qkv_proj(_normalized(wide)).view(len(hidden), -1, 1, attention.head_dim)
            kv_heads = qkv.shape[1] // (2 + attention.num_key_value_groups)
            qk, value = qkv[:, :-kv_heads], qkv[:, -kv_heads:]
            if hasattr(attention, "q_norm"):
                normed = (
                    _rms_norm(qk[:, :-kv_heads], attention.q_norm),
                    _rms_norm(qk[:, -kv_heads:], attention.k_norm),
                )
                qk = torch.cat(normed, dim=1)
            qk = torch.addcmul(qk * cos, qk.roll(attention.head_dim // 2, -1), sin)
            query, key = qk[:rows, :-kv_heads], qk[:rows, -kv_heads:]
            attended = attend(number, query, key, value[:rows], attention.scaling)
            hidden += o_proj(pad_rows(attended, more))
            gate, up = gate_up_proj(_normalized(wide)).chunk(2, -1)
            hidden += down_proj(self.activate(gate) * up)
        return self.head(_normalized(wide))[:rows].float()


def _fused_layers(layer: Any) -> tuple[FusedLinear, ...]:
    """qkv_proj, o_proj, gate_up_proj and down_proj."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    return (
        FusedLinear(*projections, norm=layer.input_layernorm),
        FusedLinear(attention.o_proj),
        FusedLinear(mlp.gate_proj, mlp.up_proj, norm=layer.post_attention_layernorm),
        FusedLinear(mlp.down_proj),
    )


def _rotary(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """[R, 1, 1, D] factors of a vector and of the vector with its halves swapped; from [R, 1, D]
    each.
    """
    low, high = sin.unsqueeze(1).chunk(2, dim=-1)
    return cos.unsqueeze(1), torch.cat([-low, high], dim=-1)


def _normalized(wide: Tensor) -> Tensor:
    """[R, E] of [R, E + 1]: RMSNorm without its weights and without the root of E, which the next
    product has. The last column is the root of E times epsilon, so the norm of a row is that of
    RMSNorm in one operation.
    """
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True, dtype=torch.float32)
    return wide[:, :-1].div(norm).to(wide.dtype)


def _rms_norm(values: Tensor, norm: Any) -> Tensor:
    return nn.functional.rms_norm(values, values.shape[-1:], norm.weight, norm.variance_epsilon)
