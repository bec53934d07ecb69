"""Hybrid and state-space models, and adapters that the fused decoder does not know: they decode
with the model's own log-probabilities, or are refused before anything starts.
"""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
import transformers

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.open_engine import open_engine
from assay.engines.torch import TorchEngine, fused
from assay.engines.torch.cache_probe import choose_cache
from assay.errors import ModelError
from assay.policy.load_model import Policy

SHAPE = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": 0,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "head_dim": 16,
}  # fmt: skip
MAMBA = {"mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
HYBRID: dict[str, dict[str, Any]] = {
    "Qwen3_5": LINEAR,
    "Qwen3Next": LINEAR | EXPERTS | {"shared_expert_intermediate_size": 32},
    "Jamba": MAMBA | {"num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1},
    "Mamba": {"state_size": 8, "time_step_rank": 4},
    "Mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 1},
    "OlmoHybrid": LINEAR | {"layer_types": ["linear_attention"] * 3 + ["full_attention"]},
    "Lfm2": {"layer_types": ["conv", "full_attention"] * 2},
}
ADAPTERS: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "lora_bias": {"lora_bias": True, "target_modules": ["q_proj", "v_proj"]},
    "modules_to_save": {"modules_to_save": ["lm_head"], "target_modules": ["q_proj"]},
}


def policy_of(model: Any) -> Policy:
    chat: Any = SimpleNamespace(stop_tokens=frozenset(), text=lambda tokens: "")
    return Policy(model.eval(), chat, torch.device("cpu"), 0)


def make(name: str, **shape: Any) -> Any:
    """A random model of an architecture of transformers."""
    config = f"{name}TextConfig" if name == "Qwen3_5" else f"{name}Config"
    torch.manual_seed(0)
    settings = getattr(transformers, config)(**SHAPE | shape)
    return getattr(transformers, f"{name}ForCausalLM")(settings)


def worst_difference(policy: Policy) -> float:
    """Of a log-probability between decoding and the model's own full forward pass."""
    prompts = [(1, 2, 3, 4, 5, 6, 7, 8, 9), (4, 5), (6,)]
    requests = [
        GenerationRequest(prompt, 10 * n + member)
        for n, prompt in enumerate(prompts)
        for member in range(3)
    ]

    async def generate() -> float:
        engine = TorchEngine(policy)
        completions = await asyncio.gather(
            *(engine.generate(one, Sampling(20 if one.seed % 2 else 8)) for one in requests)
        )
        differences: list[float] = []
        for request, completion in zip(requests, completions, strict=True):
            tokens = torch.tensor([request.prompt + completion.tokens])
            with torch.no_grad():
                logits = policy.model(tokens, use_cache=False).logits[0, len(request.prompt) - 1 :]
            logprobs = logits.float().log_softmax(-1)[:-1]
            expected = logprobs.gather(-1, torch.tensor(completion.tokens)[:, None])[:, 0]
            differences.append((expected - torch.tensor(completion.logprobs)).abs().max().item())
        return max(differences)

    return asyncio.run(generate())


@pytest.mark.long
@pytest.mark.parametrize("name", HYBRID)
def test_hybrid_and_state_space_models_decode_with_their_own_log_probabilities(name: str) -> None:
    model = make(name, **HYBRID[name])
    assert choose_cache(model) == "transformers"
    assert worst_difference(policy_of(model)) < 1e-4


@pytest.mark.parametrize("generates", [True, False])
def test_a_model_that_cannot_be_decoded_is_refused_when_the_engine_opens(generates: bool) -> None:
    policy = policy_of(make("RecurrentGemma", lru_width=64, attention_window_size=16))

    async def open_it() -> None:
        async with open_engine(policy, EngineSettings(), generates=generates):
            pass

    if generates:
        with pytest.raises(ModelError, match=r"RecurrentGemma.* use engine\.name = 'vllm'"):
            asyncio.run(open_it())
    else:
        asyncio.run(open_it())


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_that_the_fused_decoder_does_not_know_decode_without_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"r": 4, "target_modules": "all-linear", "init_lora_weights": False} | ADAPTERS[name]
    model = peft.get_peft_model(make("Qwen2"), peft.LoraConfig(**settings)).eval()
    with caplog.at_level(logging.INFO):
        assert choose_cache(model) == "kv_cache"
    assert "does not decode with the cache 'fused': " in caplog.text
    assert worst_difference(policy_of(model)) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_probe_sees_what_a_new_adapter_will_do_and_leaves_its_weights_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """LoRA's B is zero at first, so a decoder that ignores adapters is right until they learn."""
    lora = peft.LoraConfig(r=4, target_modules="all-linear")
    model = peft.get_peft_model(make("Llama").to(dtype), lora)
    before = {name: value.clone() for name, value in model.eval().state_dict().items()}
    assert choose_cache(model) == "fused"
    adapter = fused._adapter
    monkeypatch.setattr(
        fused, "_adapter", lambda linear: adapter(getattr(linear, "base_layer", linear))
    )
    assert choose_cache(model) == "kv_cache"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
