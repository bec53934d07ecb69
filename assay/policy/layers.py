"""Memory-efficient RMSNorm and SwiGLU: for the backward pass they keep their inputs, in the model's
data type, and no float32 copies as transformers' own. The output is the same to the bit.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

FAMILIES = "Llama", "Mistral", "Qwen2", "Qwen3"
"""The architectures whose layers compute what is computed here."""

SHARED_EXPERTS = "n_shared_experts", "num_shared_experts", "moe_num_shared_experts"
"""Names that configurations use for the number of experts that every token goes through."""
SHARED_SIZES = "shared_expert_intermediate_size", "shared_intermediate_size"
"""Names for the inner size of those experts together."""
SILU = "SiLU", "SiLUActivation"


class EfficientRMSNorm(nn.Module):
    """Takes the place of a norm of one of FAMILIES, whose attributes it has."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, values: Tensor) -> Tensor:
        """[..., E] -> [..., E]."""
        return _RMSNorm.apply(values, self.weight, self.variance_epsilon)  # type: ignore[no-any-return, no-untyped-call]


class EfficientMLP(nn.Module):
    """Takes the place of an MLP of one of FAMILIES that is activated by SiLU."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, values: Tensor) -> Tensor:
        """[..., E] -> [..., E]."""
        gate, up = self.gate_proj(values), self.up_proj(values)
        return self.down_proj(_SwiGLU.apply(gate, up))  # type: ignore[no-any-return, no-untyped-call]


class _RMSNorm(torch.autograd.Function):
    """y = w x / rms(x) (arXiv:1910.07467). With n = x / rms(x): dn = w dy, dw = sum(n dy), and
    dx = dn / rms(x) - x mean(x dn) / rms(x)^3.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = values.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(values, weight, scale)
        return weight * (wide * scale).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, scale = ctx.saved_tensors
        wide = values.float()
        needs_values, needs_weight, _ = ctx.needs_input_grad
        of_weight = of_values = None
        if needs_weight:
            of_weight = (
                (grad * (wide * scale).to(grad.dtype)).flatten(0, -2).sum(0).to(weight.dtype)
            )
        if needs_values:
            of_normed = (grad * weight).float()
            along = (of_normed * wide).mean(-1, keepdim=True) * scale**3  # NaN where x overflowed
            of_values = of_normed.mul_(scale).addcmul_(wide, along, value=-1).to(values.dtype)
        return of_values, of_weight, None


class _SwiGLU(torch.autograd.Function):
    """silu(gate) * up (arXiv:2002.05202)."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return nn.functional.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        of_gate = torch.ops.aten.silu_backward(grad * up, gate)
        return of_gate, nn.functional.silu(gate).mul_(grad)


def kept_by_layer(config: Any, is_efficient: bool) -> int:
    """Numbers that a layer beside its attention keeps of one token for the backward pass.

    Two norms keep their inputs, and the projections behind them their own. SwiGLU keeps gate and
    up, and the projection behind it their product. `is_efficient`: the layers are those of this
    module; transformers' own keep copies in float32.
    """
    hidden, inner = int(config.hidden_size), inner_size(config)
    return 4 * hidden + 3 * inner if is_efficient else 8 * hidden + 4 * inner


def passing_through_layer(config: Any) -> int:
    """Numbers of one token that the backward pass of a layer holds beside those that were kept:
    gradients of gate and up, of the layer's output, and of the inputs of both projections.
    """
    return 3 * int(config.hidden_size) + 2 * inner_size(config)


def inner_size(config: Any) -> int:
    """The MLP's inner size: the largest where layers differ, and of a mixture all experts that one
    token goes through, shared ones too.
    """
    inner = _first(config, ("intermediate_size",)) or 4 * config.hidden_size
    experts = _first(config, ("num_experts_per_tok",))
    if not experts:
        return inner
    each = _first(config, ("moe_intermediate_size",)) or inner
    shared = _first(config, SHARED_SIZES) or each * _first(config, SHARED_EXPERTS)
    return experts * each + shared


def _first(config: Any, names: Sequence[str]) -> int:
    """The first of these that a configuration has, its largest where layers differ; 0 without."""
    for name in names:
        if value := getattr(config, name, None):
            return int(value if isinstance(value, int) else max(value))
    return 0


def use_efficient_layers(model: nn.Module) -> None:
    """Replace the norms and MLPs of FAMILIES in `model`, in place; others stay."""
    norms, mlps = ({family + kind for family in FAMILIES} for kind in ("RMSNorm", "MLP"))
    for module in model.modules():
        if type(module).__name__ in norms:
            module.__class__ = EfficientRMSNorm
        elif type(module).__name__ in mlps and type(module.act_fn).__name__ in SILU:
            module.__class__ = EfficientMLP
