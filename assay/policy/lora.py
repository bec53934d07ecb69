"""LoRA layers that keep their input for the backward pass once, in the model's data type, where
peft's copy it to float32 for each layer, and that add to the frozen layer's output in place.
"""

from typing import Any

import torch
from peft.tuners.lora.layer import Linear
from torch import Tensor, nn

from assay.policy.onednn import fast_linear, is_plain_linear, weight_gradient


class EfficientLora(Linear):  # type: ignore[misc]  # peft has no types
    """Takes the place of peft's layer, whose attributes it has."""

    def forward(self, values: Tensor, *arguments: Any, **keywords: Any) -> Tensor:
        """[..., I] -> [..., O]."""
        (name, *others) = self.active_adapters or [""]
        base, down, up = self.base_layer, self.lora_A, self.lora_B
        is_usual = not (arguments or keywords or others or self.disable_adapters or self.merged)
        if not (is_usual and name in down and self._is_vanilla(name, values)):
            return super().forward(values, *arguments, **keywords)  # type: ignore[no-any-return]
        weights = down[name].weight, up[name].weight
        return _Lora.apply(values, base.weight, base.bias, *weights, self.scaling[name])  # type: ignore[no-any-return, no-untyped-call]

    def _is_vanilla(self, name: str, values: Tensor) -> bool:
        base, dropout = self.base_layer, self.lora_dropout[name]
        return (
            is_plain_linear(base)
            and not any(parameter.requires_grad for parameter in base.parameters())
            and base.weight.dtype == values.dtype
            and name not in self.lora_variant
            and self.lora_B[name].bias is None
            and (isinstance(dropout, nn.Identity) or not self.training)
        )


class _Lora(torch.autograd.Function):
    """y = W x + b + s B h with h = A x (arXiv:2106.09685). With dh = s B' dy: dx = W' dy + A' dh,
    dA = dh x' and dB = s dy h'. Products are in the data type of x.
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        down: Tensor,
        up: Tensor,
        scale: float,
    ) -> Tensor:
        hidden = fast_linear(values, down.to(values.dtype))
        ctx.save_for_backward(values, weight, down, up, hidden)
        ctx.scale = scale
        output = fast_linear(values, weight, bias)
        rows = output.view(-1, len(weight))
        rows.addmm_(hidden.flatten(0, -2), up.to(values.dtype).T, alpha=scale)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, down, up, hidden = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        of_hidden = fast_linear(rows, up.to(grad.dtype).T).mul_(ctx.scale)
        of_values = None
        if ctx.needs_input_grad[0]:
            of_values = fast_linear(rows, weight.T).addmm_(of_hidden, down.to(grad.dtype))
            of_values = of_values.view_as(values)
        of_down = weight_gradient(of_hidden, values.flatten(0, -2))
        of_up = weight_gradient(rows, hidden.flatten(0, -2)).mul_(ctx.scale)
        return of_values, None, None, of_down, of_up, None


def use_efficient_lora(model: Any) -> Any:
    """The model with peft's LoRA layers of linear layers replaced, in place; others stay."""
    for module in model.modules():
        if type(module) is Linear:
            module.__class__ = EfficientLora
    return model
