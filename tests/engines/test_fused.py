"""The fused decoder gives the logits of transformers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config.sections import LoraSettings, PolicySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.engines.torch.fused import FusedDecoder, is_fusible
from assay.engines.torch.kv_cache import KVCache
from assay.policy.load_model import Policy, load_policy
from tests.policies import checkpoint, tiny_policy

TEXTS = [(5, 9, 7), (11,), (5, 9, 7), (8, 4, 6, 2, 3)] * 3
"""Twelve rows, which are padded to sixteen."""
LORA = LoraSettings(rank=4)


def changed(policy: Policy) -> Any:
    """Its model with noise on all weights, also on biases and adapters that start as zeros."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return policy.model


def logits(model: Any, cache: KVCache) -> list[torch.Tensor]:
    found = [cache.add(TEXTS, 5, 8), *(cache.step(torch.arange(12) + token) for token in (10, 20))]
    cache.drop({1: (), 4: ()}, None)
    return [*found, cache.step(torch.arange(10) + 4)]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("lora", "dtype", "error"),
    [
        (None, "float32", 1e-4),
        (LORA, "float32", 1e-4),
        (None, "bfloat16", 0.1),
        (LORA, "bfloat16", 0.3),
    ],
)
@torch.inference_mode()
def test_the_fused_decoder_gives_the_logits_of_the_model(
    tmp_path: Path, kind: str, lora: LoraSettings | None, dtype: str, error: float
) -> None:
    given = {"model": str(checkpoint(tmp_path, kind)), "lora": lora, "device": "cpu"}
    model = changed(load_policy(PolicySettings.model_validate(given | {"dtype": dtype})))
    assert is_fusible(model)
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    fused, prefills = logits(model, KVCache(model, FusedDecoder(model), short=2)), len(calls)
    for ours, theirs in zip(fused, logits(model, KVCache(model)), strict=True):
        assert torch.allclose(ours, theirs, atol=error)
    assert (prefills, len(calls) - prefills) == (1, 4), "the model itself only prefills"


def test_unknown_and_patched_models_are_not_fused(tmp_path: Path) -> None:
    kinds = {kind: load_policy(PolicySettings(model=str(checkpoint(tmp_path, kind)),
    device="cpu")).model
             for kind in ("gpt2", "gemma2")}  # fmt: skip
    kinds["float32 head"] = tiny_policy(tmp_path, dtype="bfloat16", float32_lm_head=True).model
    assert [name for name, model in kinds.items() if is_fusible(model)] == []


def test_a_load_rebuilds_the_fused_decoder_with_the_new_weights(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)

    async def generate(engine: TorchEngine, version: int) -> tuple[int, ...]:
        await engine.load(policy, version)
        return (await engine.generate(GenerationRequest((5, 6, 7), 3), Sampling(12, 0.0))).tokens

    async def before_and_after() -> list[tuple[int, ...]]:
        engine = TorchEngine(policy)
        before = await generate(engine, 0)
        changed(policy)
        return [before, await generate(engine, 1), await generate(TorchEngine(policy), 0)]

    before, after, fresh = asyncio.run(before_and_after())
    assert before != after
    assert after == fresh
