"""Linear layers through oneDNN, on processors where it is faster than torch's MKL.

On AMD, where MKL does not use AVX-512, all matrix products are about twice as fast (`python -m
bench.products`). Decoding multiplies with copies of the weights in a faster layout. The choice
depends on the processor alone, never on a measurement, so a resumed run rounds as it did before.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

BLOCK = 128
"""Batches of more rows than this are padded to a multiple of it."""
SMALL = 1 << 20
"""Gradients of weights with fewer elements are those of a convolution: with two threads up to a
quarter faster, and with few inputs, as LoRA's B, three times; larger ones would be slower."""
TRANSPOSED = 1 << 19
"""Where MKL uses AVX-512, weights of up to so many elements are laid out for it, larger ones for
oneDNN, whose calls take 20 µs longer (`python -m bench.products`)."""
ROWS = 64
"""Hint for `prepack`: the number of rows that a weight is multiplied with at once."""


@cache
def has_onednn() -> bool:
    """Whether oneDNN runs AVX-512 kernels on this processor."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and torch.backends.cpu.get_cpu_capability() == "AVX512"


@cache
def uses_onednn() -> bool:
    """Whether float32 linear layers run through oneDNN on this processor."""
    file = Path("/proc/cpuinfo")
    return has_onednn() and file.is_file() and "AuthenticAMD" in file.read_text()


@cache
def has_bfloat16() -> bool:
    """Whether this processor has instructions for bfloat16; others are slow at it."""
    file = Path("/proc/cpuinfo")
    text = file.read_text() if file.is_file() else ""
    return not text or "avx512_bf16" in text or "amx_bf16" in text


def padding_rows(rows: int, device: torch.device) -> int:
    """How many padding rows `rows` rows need. oneDNN caches a kernel for every size it has met, so
    there should be few sizes.
    """
    return -rows % BLOCK if rows > BLOCK and uses_onednn() and device.type == "cpu" else 0


def pad_rows(values: Tensor, more: int) -> Tensor:
    """`values` [R, ...] followed by `more` rows of zeros."""
    return nn.functional.pad(values, (0, 0) * (values.dim() - 1) + (0, more)) if more else values


def fast_linear(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As torch's `linear`, without autograd: `values` [..., I] times `weight` [O, I] transposed,
    plus `bias` [O], gives [..., O].
    """
    if not (weight.is_mkldnn or _is_supported(values, weight)):
        return nn.functional.linear(values, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(values, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def prepack(weight: Tensor) -> Tensor:
    """A copy of `weight` [O, I] in the layout that `fast_linear` reads fastest with few rows:
    oneDNN's own, or transposed. `weight` itself on GPUs and on processors without AVX-512, in
    bfloat16 without instructions for it, and in other data types.
    """
    is_fast = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_bfloat16())
    if not (is_fast and has_onednn() and weight.device.type == "cpu"):
        return weight
    if weight.dtype == torch.float32 and weight.numel() <= TRANSPOSED and not uses_onednn():
        return weight.detach().T.clone(memory_format=torch.contiguous_format).T
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)  # type: ignore[no-any-return]


def _is_supported(values: Tensor, weight: Tensor) -> bool:
    is_float32 = values.dtype == weight.dtype == torch.float32
    return uses_onednn() and is_float32 and weight.device.type == "cpu" and values.numel() > 0


class FastLinear(nn.Linear):
    """A linear layer whose output and both gradients are computed by `fast_linear`."""

    def forward(self, values: Tensor) -> Tensor:
        """[..., I] -> [..., O]."""
        if not _is_supported(values, self.weight):
            return super().forward(values)
        if not torch.is_grad_enabled():
            return fast_linear(values, self.weight, self.bias)
        return _FastLinear.apply(values, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]


def is_plain_linear(module: nn.Module) -> bool:
    """Whether `module` is a linear layer that nothing has adapted or patched."""
    return type(module) in (nn.Linear, FastLinear) and "forward" not in vars(module)


class _FastLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(values, weight)
        return fast_linear(values, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, weight = ctx.saved_tensors
        needs_values, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            fast_linear(grad, weight.T) if needs_values else None,
            weight_gradient(rows, values.flatten(0, -2)) if needs_weight else None,
            rows.sum(0) if needs_bias else None,
        )


def weight_gradient(grad: Tensor, values: Tensor) -> Tensor:
    """[O, I], of `grad` [N, O] and `values` [N, I]: a product of their transposes, of which oneDNN
    copies one. That of a small weight is taken from a convolution with a kernel of 1 x 1, which
    reads both as they lie; with one thread torch gives that to MKL, at half the speed.
    """
    outputs, inputs = grad.shape[1], values.shape[1]
    usual = outputs * inputs >= SMALL or not len(grad) or not _is_supported(grad, values)
    if usual or torch.get_num_threads() == 1:
        return fast_linear(grad.T, values.T)
    image, grads = (rows[None, :, None].permute(0, 3, 1, 2) for rows in (values, grad))
    kernel = grad.new_empty(outputs, inputs, 1, 1)
    shape, outputs_needed = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1), [False, True, False]
    gradients = torch.ops.aten.convolution_backward(grads, image, kernel, *shape, outputs_needed)
    return gradients[1].view(outputs, inputs)  # type: ignore[no-any-return]


def use_fast_linear(model: nn.Module) -> None:
    """Replace the plain `nn.Linear` layers of `model` by `FastLinear`, in place; others stay."""
    for module in model.modules() if uses_onednn() else ():
        if type(module) is nn.Linear:
            module.__class__ = FastLinear
