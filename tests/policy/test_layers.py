"""RMSNorm, SwiGLU and LoRA that keep less for the backward pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from assay.policy.layers import FAMILIES, EfficientMLP, EfficientRMSNorm, use_efficient_layers
from assay.policy.lora import use_efficient_lora

SHAPE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.2,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
TOKENS = torch.randint(1, 97, (2, 40), generator=torch.Generator().manual_seed(0))


def make(family: str, dtype: torch.dtype, **changes: Any) -> tuple[Any, Any]:
    """A model of transformers, and its copy with efficient layers."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SHAPE | changes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    efficient = copy.deepcopy(model)
    use_efficient_layers(efficient)
    return model, efficient


def make_lora(dtype: torch.dtype, **changes: Any) -> tuple[Any, Any]:
    """A model with peft's LoRA, and its copy with efficient layers."""
    from peft import LoraConfig, get_peft_model

    base, _ = make("Qwen2", dtype)
    options = {"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | changes
    model = get_peft_model(base, LoraConfig(**options))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2)
    efficient = copy.deepcopy(model)
    use_efficient_lora(efficient)
    return model, efficient


def learn(model: Any) -> tuple[Tensor, Tensor, int]:
    """Logits, the gradients of all parameters, and the bytes that are kept for them."""
    kept: dict[int, tuple[int, Tensor]] = {}
    weights = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes(), tensor  # alive: no address comes twice
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(input_ids=TOKENS, use_cache=False).logits
    (logits.float().log_softmax(-1)[..., 5] ** 2).sum().backward()
    learned = [one.grad for one in model.parameters() if one.grad is not None]
    gradients = torch.cat([grad.float().flatten() for grad in learned])
    return logits.detach(), gradients, sum(size for size, _ in kept.values())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_outputs_are_those_of_transformers_to_the_bit_and_gradients_to_rounding(
    family: str, dtype: torch.dtype, off: float
) -> None:
    model, efficient = make(family, dtype)
    (logits, gradients, kept), (ours, own, less) = learn(model), learn(efficient)
    assert torch.equal(ours, logits)
    assert float((own - gradients).norm() / gradients.norm()) < off
    assert less < 0.8 * kept


def test_frozen_weights_pass_the_gradient_on() -> None:
    model, efficient = make("Qwen2", torch.float32)
    for one in (model, efficient):
        for name, parameter in one.named_parameters():
            parameter.requires_grad = "embed" in name or "q_proj" in name
        one(input_ids=TOKENS).logits.logsumexp(-1).sum().backward()
    for expected, ours in zip(model.parameters(), efficient.parameters(), strict=True):
        assert (ours.grad is None) == (expected.grad is None)
        if expected.grad is not None:
            assert torch.allclose(ours.grad, expected.grad, rtol=1e-4, atol=1e-5)


def test_layers_that_compute_something_else_are_left_alone() -> None:
    _, gelu = make("Llama", torch.float32, hidden_act="gelu")
    assert not any(isinstance(module, EfficientMLP) for module in gelu.modules())
    assert any(isinstance(module, EfficientRMSNorm) for module in gelu.modules())
    _, gemma = make("Gemma2", torch.float32, hidden_activation="silu")
    assert not any(
        isinstance(module, EfficientRMSNorm | EfficientMLP) for module in gemma.modules()
    )


def test_where_a_norm_overflows_its_gradient_says_so_as_that_of_transformers() -> None:
    for model in make("Llama", torch.float32):
        values = torch.full((1, 2, 64), 1e20, requires_grad=True)
        (model.model.norm(values) * torch.linspace(1e19, 1e20, 64)).sum().backward()
        assert values.grad is not None
        assert not values.grad.isfinite().any()


def test_lora_has_the_numbers_and_gradients_of_peft() -> None:
    model, efficient = make_lora(torch.float32)
    (logits, gradients, _), (ours, own, _) = learn(model), learn(efficient)
    assert float((ours - logits).norm() / logits.norm()) < 1e-5
    assert float((own - gradients).norm() / gradients.norm()) < 1e-5


def test_lora_in_bfloat16_keeps_less_than_that_of_peft_and_is_as_exact() -> None:
    model, efficient = make_lora(torch.bfloat16)
    _, exact, _ = learn(copy.deepcopy(model).float())
    (_, gradients, kept), (_, own, less) = learn(model), learn(efficient)
    assert less < 0.7 * kept
    assert float((own - exact).norm()) < 1.2 * float((gradients - exact).norm())


def test_lora_of_another_kind_is_that_of_peft() -> None:
    for changes in ({"use_dora": True}, {"lora_dropout": 0.5}, {"lora_bias": True}):
        model, efficient = make_lora(torch.float32, **changes)
        found = []
        for one in (model.train(), efficient.train()):
            torch.manual_seed(0)
            found.append(one(input_ids=TOKENS).logits)
        assert torch.equal(*found), changes


def test_lora_can_be_switched_off_and_merged() -> None:
    model, efficient = make_lora(torch.float32)
    with efficient.disable_adapter(), model.disable_adapter():
        assert torch.equal(efficient(input_ids=TOKENS).logits, model(input_ids=TOKENS).logits)
    logits = efficient(input_ids=TOKENS).logits
    merged = efficient.merge_and_unload()
    assert torch.allclose(merged(input_ids=TOKENS).logits, logits, rtol=1e-4, atol=1e-4)
