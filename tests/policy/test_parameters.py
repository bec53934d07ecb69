"""Gradient checkpointing, the head in float32, and 4-bit weights that are refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from assay.config.sections import LoraSettings, PolicySettings
from assay.errors import ModelError, SettingsError
from assay.policy.load_model import Policy, check_quantize
from tests.policies import tiny_policy

TOKENS = torch.arange(2, 42).reshape(2, 20)


def gradients(policy: Policy) -> list[Tensor]:
    policy.model.eval()
    policy.model(input_ids=TOKENS, use_cache=False).logits.float().logsumexp(-1).sum().backward()
    return [parameter.grad for parameter in policy.trainable.values() if parameter.grad is not None]


@pytest.mark.parametrize("how", [True, "offload"])
@pytest.mark.parametrize("changes", [{}, {"lora": LoraSettings(rank=4)}, {"dtype": "bfloat16"}])
def test_gradient_checkpointing_gives_the_same_gradients_without_training_mode(
    tmp_path: Path, changes: dict[str, Any], how: bool | str
) -> None:
    runs = 0

    def count(*given: object) -> None:
        nonlocal runs
        runs += 1

    found = []
    for again in (False, how):
        torch.manual_seed(0)
        policy = tiny_policy(tmp_path, gradient_checkpointing=again, **changes)
        for name, module in policy.model.named_modules():
            if name.endswith("layers.0.mlp"):
                module.register_forward_pre_hook(count)
        found.append(gradients(policy))
        assert runs == (3 if again else 1), (
            "once in the first model; in the second in the forward and again in the backward pass"
        )
    assert len(found[0]) == len(found[1]) > 0
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    policy.model(input_ids=TOKENS, use_cache=True).logits.float().sum().backward()
    assert runs == 4, "with a KV cache nothing is computed again: it would be written twice"


def test_offload_moves_the_input_of_every_block_and_of_nothing_else(tmp_path: Path) -> None:
    def kept(how: bool | str) -> int:
        """Tensors of the shape of hidden states that stay where they are."""
        model = tiny_policy(tmp_path, gradient_checkpointing=how).model
        shapes: list[torch.Size] = []

        def keep(tensor: Tensor) -> Tensor:
            shapes.append(tensor.shape)
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            model(input_ids=TOKENS, use_cache=False)
        return shapes.count(torch.Size((*TOKENS.shape, model.config.hidden_size)))

    layers = tiny_policy(tmp_path).model.config.num_hidden_layers
    assert kept(True) - kept("offload") == layers
    assert kept("offload") > 0, "the last norm's"


def test_a_model_without_checkpointable_blocks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "transformers.modeling_layers.GradientCheckpointingLayer", torch.nn.Bilinear
    )
    with pytest.raises(
        ModelError,
        match=r"LlamaForCausalLM does not support gradient checkpointing; leave"
        r" policy\.gradient_checkpointing",
    ):
        tiny_policy(tmp_path, gradient_checkpointing=True)


def test_a_head_in_float32_does_not_round_the_logits(tmp_path: Path) -> None:
    rounded = tiny_policy(tmp_path, dtype="bfloat16").model
    exact = tiny_policy(tmp_path, dtype="bfloat16", float32_lm_head=True).model
    hidden = rounded.model(input_ids=TOKENS).last_hidden_state
    expected = hidden.double() @ rounded.lm_head.weight.double().T
    logits = exact(input_ids=TOKENS).logits
    assert (rounded(input_ids=TOKENS).logits.dtype, logits.dtype) == (torch.bfloat16, torch.float32)
    assert (logits - expected).abs().max() < 1e-6
    assert (rounded(input_ids=TOKENS).logits - expected).abs().max() > 1e-4
    logits.sum().backward()
    assert exact.lm_head.weight.grad.dtype is torch.bfloat16


def test_four_bits_without_adapters_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"there is nothing to train; set policy\.lora"):
        check_quantize(PolicySettings(quantize="nf4"), adapted=False)


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_four_bits_without_the_package_say_what_to_install() -> None:
    with pytest.raises(SettingsError, match=r"needs a package: pip install -e '\.\[quant\]'"):
        check_quantize(PolicySettings(quantize="nf4", lora=LoraSettings()), adapted=True)
