"""What an empty model takes over from the leader's, and when it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from assay.distributed.empty import describe
from assay.errors import ModelError
from assay.policy.load_model import Policy
from tests.policies import tiny_policy


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Policy]:
    """The leader's policy, in a job of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield tiny_policy(tmp_path)
    dist.destroy_process_group()


def empty_like(whole: Policy) -> Policy:
    with torch.device("meta"):
        return replace(whole, model=type(whole.model)(whole.model.config).eval())


def test_what_is_frozen_and_its_type_come_from_the_leader(whole: Policy) -> None:
    whole.model.to(torch.bfloat16).get_input_embeddings().weight.requires_grad_(False)
    describe(policy := empty_like(whole), whole)
    taken = policy.model.get_input_embeddings().weight
    assert (taken.requires_grad, taken.dtype) == (False, torch.bfloat16)
    assert all(one.requires_grad for one in policy.model.parameters() if one is not taken)


def test_a_model_that_keeps_a_tensor_beside_its_weights_is_refused(whole: Policy) -> None:
    policy = empty_like(whole)
    policy.model.scale = torch.ones(2, device="meta")
    with pytest.raises(ModelError, match=r"as scale; train it in one process"):
        describe(policy, whole)


def test_a_model_with_other_weights_than_its_configuration_says_is_refused(whole: Policy) -> None:
    policy = empty_like(whole)
    policy.model.register_parameter("extra", torch.nn.Parameter(torch.ones(2, device="meta")))
    with pytest.raises(ModelError, match="as extra;"):
        describe(policy, whole)
