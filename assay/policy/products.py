"""Products of float32 matrices by oneDNN where torch takes MKL, which does without AVX-512 on AMD's
processors.

Twice as fast there (`python -m bench.products`). The choice depends on the processor alone, never
on a measurement: a run that is resumed has to round as it did before.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

BLOCK = 128
"""Sizes of a batch are multiples of this."""
ROWS = 64
"""A hint for how a matrix is laid out: about as many rows are multiplied with it at once."""


@cache
def by_onednn() -> bool:
    """Whether this processor's products are oneDNN's."""
    file = Path("/proc/cpuinfo")
    is_amd = file.is_file() and "AuthenticAMD" in file.read_text()
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_amd and has_onednn and torch.backends.cpu.get_cpu_capability() == "AVX512"


def spare(rows: int, device: torch.device, block: int = BLOCK) -> int:
    """Rows to be added, above a first `block` of them: oneDNN keeps what it prepares for every size
    that it has met.
    """
    return -rows % block if rows > block and by_onednn() and device.type == "cpu" else 0


def filled(given: Tensor, block: int = BLOCK) -> Tensor:
    """`given` [R, ...] with its `spare` rows behind it, zeros."""
    more = spare(len(given), given.device, block)
    return nn.functional.pad(given, (0, 0) * (given.dim() - 1) + (0, more)) if more else given


def product(given: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., O] `given` [..., I] times the transpose of `matrix` [O, I], plus `bias` [O]. No
    gradient goes through.
    """
    if not _fits(given, matrix):
        return nn.functional.linear(given, matrix, bias)
    return torch.ops.mkldnn._linear_pointwise(given, matrix, bias, "none", [], "")  # type: ignore[no-any-return]


def packed(matrix: Tensor) -> Tensor:
    """`matrix` [O, I] as `product` reads it fastest, where there is such a layout: a copy."""
    if not _fits(matrix, matrix):
        return matrix
    return torch.ops.mkldnn._reorder_linear_weight(matrix.detach(), ROWS)  # type: ignore[no-any-return]


def _fits(given: Tensor, matrix: Tensor) -> bool:
    return (
        by_onednn() and given.dtype == matrix.dtype == torch.float32 and matrix.device.type == "cpu"
    )


class Linear(nn.Linear):
    """A linear layer whose three products, of the output and of both gradients, are `product`'s."""

    def forward(self, given: Tensor) -> Tensor:
        """[..., O] of [..., I]."""
        if not _fits(given, self.weight) or torch.is_autocast_enabled("cpu"):
            return super().forward(given)
        if not torch.is_grad_enabled():
            return product(given, self.weight, self.bias)
        return _Product.apply(given, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(given, weight)
        return product(given, weight, bias)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        given, weight = ctx.saved_tensors
        to_given, to_weight, to_bias = ctx.needs_input_grad
        rows = slope.flatten(0, -2)
        return (
            product(slope, weight.T) if to_given else None,
            product(rows.T, given.flatten(0, -2).T) if to_weight else None,
            rows.sum(0) if to_bias else None,
        )


def use_products(model: nn.Module) -> None:
    """Have all linear layers of `model` multiply so, in place; those of other kinds stay."""
    for module in model.modules() if by_onednn() else ():
        if type(module) is nn.Linear:
            module.__class__ = Linear
