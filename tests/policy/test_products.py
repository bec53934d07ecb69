"""Products by oneDNN are those of torch, to rounding, whatever the shapes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from assay.config.sections import LoraSettings
from assay.policy import products
from assay.policy.products import Linear, by_onednn, packed, product, spare
from tests.policies import tiny_policy

ONEDNN = pytest.mark.skipif(
    not by_onednn(), reason="torch's own products are taken on this processor"
)


def near(one: Tensor | None, other: Tensor | None) -> bool:
    assert one is not None
    assert other is not None
    return torch.allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 5, 64, 300])
@pytest.mark.parametrize("biased", [False, True])
def test_a_product_is_that_of_torch_with_its_matrix_as_it_is_and_packed(
    rows: int, biased: bool
) -> None:
    torch.manual_seed(0)
    given, matrix, bias = (
        torch.randn(2, rows, 48),
        torch.randn(70, 48),
        torch.randn(70) if biased else None,
    )
    expected = nn.functional.linear(given, matrix, bias)
    assert near(product(given, matrix, bias), expected)
    assert near(product(given.transpose(0, 1), matrix, bias), expected.transpose(0, 1))
    if rows:
        assert near(product(given, packed(matrix), bias), expected)


@pytest.mark.parametrize("shape", [(7, 48), (2, 9, 48)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_both_gradients_are_those_of_torch(
    shape: tuple[int, ...], biased: bool, frozen: bool
) -> None:
    torch.manual_seed(0)
    theirs = nn.Linear(48, 70, bias=biased).requires_grad_(not frozen)
    ours = copy.deepcopy(theirs)
    ours.__class__ = Linear
    inputs = [torch.randn(shape).requires_grad_()]
    inputs.append(inputs[0].detach().clone().requires_grad_())
    factor = torch.randn(*shape[:-1], 70)
    for layer, given in zip((theirs, ours), inputs, strict=True):
        (layer(given) * factor).sum().backward()
    assert near(inputs[1].grad, inputs[0].grad)
    if frozen:
        assert ours.weight.grad is None
    else:
        assert near(ours.weight.grad, theirs.weight.grad)
    if biased and not frozen:
        assert near(ours.bias.grad, theirs.bias.grad)


def test_under_autocast_and_in_other_precisions_torch_multiplies() -> None:
    layer = nn.Linear(8, 3)
    layer.__class__ = Linear
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(torch.ones(2, 8)).dtype == torch.bfloat16
    assert layer.double()(torch.ones(2, 8, dtype=torch.float64)).dtype == torch.float64


@ONEDNN
def test_batches_come_in_few_sizes() -> None:
    cpu = torch.device("cpu")
    assert [rows + spare(rows, cpu) for rows in (0, 7, 128, 129, 256, 300)] == [
        0,
        7,
        128,
        256,
        256,
        384,
    ]
    assert spare(300, torch.device("cuda")) == 0


@ONEDNN
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
def test_a_policy_multiplies_by_onednn_and_so_does_its_copy(
    tmp_path: Path, lora: LoraSettings | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(tmp_path, lora=lora)
    assert not [module for module in policy.model.modules() if type(module) is nn.Linear]
    asked: list[tuple[int, ...]] = []

    def counting(given: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
        asked.append(tuple(matrix.shape))
        return product(given, matrix, bias)

    monkeypatch.setattr(products, "product", counting)
    copy.deepcopy(policy.model)(torch.tensor([[3, 4]]))
    assert len(asked) == 2 * 7 * (1 if lora is None else 3) + 1, (
        "seven layers in each of two blocks, and the head"
    )
