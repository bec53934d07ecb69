"""Linear layers through oneDNN give what torch gives, to rounding, for every shape."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import assay.policy.lora
from assay.config.sections import LoraSettings
from assay.policy import onednn
from assay.policy.onednn import (
    FastLinear,
    fast_linear,
    has_bfloat16,
    has_onednn,
    padding_rows,
    prepack,
    uses_onednn,
)
from tests.policies import tiny_policy

ONEDNN = pytest.mark.skipif(
    not uses_onednn(), reason="this processor uses torch's own linear layers"
)


def near(one: Tensor | None, other: Tensor | None) -> bool:
    assert one is not None
    assert other is not None
    return torch.allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 5, 64, 300])
@pytest.mark.parametrize("biased", [False, True])
def test_the_output_is_that_of_torch_with_the_weight_plain_and_prepacked(
    rows: int, biased: bool
) -> None:
    torch.manual_seed(0)
    values, weight, bias = (
        torch.randn(2, rows, 48),
        torch.randn(70, 48),
        torch.randn(70) if biased else None,
    )
    expected = nn.functional.linear(values, weight, bias)
    assert near(fast_linear(values, weight, bias), expected)
    assert near(fast_linear(values.transpose(0, 1), weight, bias), expected.transpose(0, 1))
    if rows:
        assert near(fast_linear(values, prepack(weight), bias), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_weight_in_either_layout_for_few_rows_gives_the_output_of_torch(
    rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    values, weight = torch.randn(rows, 48, dtype=dtype), torch.randn(70, 48, dtype=dtype)
    bias = torch.randn(70, dtype=dtype)
    expected = nn.functional.linear(values.double(), weight.double(), bias.double())
    for most in (0, weight.numel()):
        monkeypatch.setattr(onednn, "TRANSPOSED", most)
        prepacked = prepack(weight)
        found = fast_linear(values, prepacked, bias)
        assert found.dtype == dtype
        error = 1e-5 if dtype == torch.float32 else 0.02
        assert torch.allclose(found.double(), expected, rtol=error, atol=error)
        if dtype == torch.bfloat16:
            assert prepacked.is_mkldnn == (has_onednn() and has_bfloat16())
        elif has_onednn() and not uses_onednn():
            assert prepacked.is_mkldnn == (most == 0)
            assert prepacked.is_mkldnn or prepacked.stride() == (1, 70)


@pytest.mark.parametrize("shape", [(0, 48), (1, 48), (7, 48), (2, 9, 48), (40, 48)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("small", [onednn.SMALL, 0])
def test_both_gradients_are_those_of_torch(
    shape: tuple[int, ...], biased: bool, frozen: bool, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "SMALL", small)
    torch.manual_seed(0)
    theirs = nn.Linear(48, 70, bias=biased).requires_grad_(not frozen)
    ours = copy.deepcopy(theirs)
    ours.__class__ = FastLinear
    inputs = [torch.randn(shape).requires_grad_()]
    inputs.append(inputs[0].detach().clone().requires_grad_())
    factor = torch.randn(*shape[:-1], 70)
    for layer, values in zip((theirs, ours), inputs, strict=True):
        (layer(values) * factor).sum().backward()
    assert near(inputs[1].grad, inputs[0].grad)
    if frozen:
        assert ours.weight.grad is None
    else:
        assert near(ours.weight.grad, theirs.weight.grad)
    if biased and not frozen:
        assert near(ours.bias.grad, theirs.bias.grad)


def test_in_other_dtypes_torch_computes_the_layer() -> None:
    layer = nn.Linear(8, 3)
    layer.__class__ = FastLinear
    assert layer.double()(torch.ones(2, 8, dtype=torch.float64)).dtype == torch.float64


@ONEDNN
def test_batches_are_padded_to_few_sizes() -> None:
    cpu = torch.device("cpu")
    sizes = (0, 7, 128, 129, 256, 300)
    padded = [rows + padding_rows(rows, cpu) for rows in sizes]
    assert padded == [0, 7, 128, 256, 256, 384]
    assert padding_rows(300, torch.device("cuda")) == 0


@ONEDNN
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
def test_a_policy_and_its_copy_run_through_onednn(
    tmp_path: Path, lora: LoraSettings | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(tmp_path, lora=lora)
    assert not [module for module in policy.model.modules() if type(module) is nn.Linear]
    shapes: list[tuple[int, ...]] = []

    def counting(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(tuple(weight.shape))
        return fast_linear(values, weight, bias)

    for module in (onednn, assay.policy.lora):
        monkeypatch.setattr(module, "fast_linear", counting)
    copy.deepcopy(policy.model)(torch.tensor([[3, 4]]))
    assert len(shapes) == 2 * 7 * (1 if lora is None else 2) + 1, (
        "seven layers in each of two blocks, with LoRA's A, and the head"
    )
