"""A model in host memory computes elsewhere, with one block there at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.policy.blocks import blocks_of, computing_on
from tests.policies import tiny_policy

ELSEWHERE = torch.device("meta")
"""It has shapes and no numbers, which is enough to see where weights are."""


def row() -> dict[str, Any]:
    """What the model reads; nobody looks for numbers in a mask of four dimensions."""
    tokens = torch.zeros((1, 5), dtype=torch.int64, device=ELSEWHERE)
    mask = torch.ones((1, 1, 5, 5), dtype=torch.bool, device=ELSEWHERE)
    return {"input_ids": tokens, "position_ids": tokens, "attention_mask": mask}


def there(model: Any) -> set[str]:
    return {name for name, tensor in model.named_parameters() if tensor.is_meta}


def test_one_block_is_there_at_a_time_beside_what_is_no_block(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path).model
    before = {name: tensor.data_ptr() for name, tensor in model.named_parameters()}
    seen: list[set[str]] = []
    for block in blocks_of(model):
        block.get_submodule("input_layernorm").register_forward_hook(
            lambda *call: seen.append(there(model))
        )
    with torch.no_grad(), computing_on(ELSEWHERE, model):
        logits = model(**row(), use_cache=False).logits
        between = there(model)
    assert logits.is_meta
    others = {name for name in before if ".layers." not in name}
    assert between == others
    blocks = [{name for name in before if f".layers.{n}." in name} for n in range(len(seen))]
    assert len(blocks_of(model)) == len(seen) > 1
    assert seen == [others | block for block in blocks]
    assert {name: tensor.data_ptr() for name, tensor in model.named_parameters()} == before


def test_the_weights_are_back_after_a_pass_that_fails(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path).model
    blocks_of(model)[1].get_submodule("self_attn").register_forward_pre_hook(lambda *call: 1 / 0)
    with pytest.raises(ZeroDivisionError), computing_on(ELSEWHERE, model):
        model(**row(), use_cache=False)
    assert not there(model)
    assert not any(buffer.is_meta for buffer in model.buffers())


def test_a_model_that_is_there_already_stays_as_it_is(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    places = [tensor.data_ptr() for tensor in policy.model.parameters()]
    with computing_on(policy.device, policy.model):
        assert [tensor.data_ptr() for tensor in policy.model.parameters()] == places
