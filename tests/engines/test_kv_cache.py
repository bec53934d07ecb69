"""The KV cache, and the probe that chooses how a model is decoded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.config.sections import PolicySettings
from assay.engines.torch import kv_cache as kv_cache_file
from assay.engines.torch.cache_probe import choose_cache
from assay.engines.torch.cuda_graphs import Capture, DecodeStep, bucket, wide_bucket
from assay.engines.torch.kv_cache import ATTENTION, KVCache
from assay.engines.torch.layer_cache import LayerCache
from assay.engines.torch.prefill import TransformersCache, next_logits
from assay.errors import ModelError
from assay.policy.load_model import load_policy
from tests.policies import checkpoint, tiny_policy

TEXTS = [(5, 9, 7), (11,), (5, 9, 7), (8, 4, 6, 2, 3)]


def expected(model: Any, texts: list[tuple[int, ...]]) -> Tensor:
    rows = []
    for text in texts:
        tokens = torch.tensor([text])
        positions = torch.arange(len(text)).unsqueeze(0)
        rows.append(next_logits(model, tokens, torch.ones_like(tokens), positions, None)[0])
    return torch.stack(rows)


@torch.inference_mode()
def test_the_head_gets_contiguous_hidden_states_of_prefilled_rows(tmp_path: Path) -> None:
    """From a view torch multiplies each row with a copy of the head's weights."""
    model, contiguous = tiny_policy(tmp_path).model, list[bool]()
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: contiguous.append(inputs[0].is_contiguous()))
    KVCache(model).add(TEXTS, 5, 8)
    assert contiguous == [True]


def record(run: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
    """As a CUDA graph does: replayed, it computes with what its tensors hold by then."""
    result = run().zero_()
    return lambda: result.copy_(run()), result


def record_nothing(run: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
    raise RuntimeError("operation not permitted when stream is capturing")


@pytest.mark.parametrize("short", [0, 4, 64], ids=["shared", "both", "copied"])
@pytest.mark.parametrize("capture", [None, record, record_nothing])
@torch.inference_mode()
def test_rows_are_added_and_dropped_and_each_attends_to_its_own_text(
    tmp_path: Path, capture: Capture | None, short: int
) -> None:
    model = tiny_policy(tmp_path).model
    cache = KVCache(model, short=short, capture=capture)
    texts = list(TEXTS)
    assert torch.allclose(cache.add(texts, 5, 8), expected(model, texts), atol=1e-4)
    assert len(cache.prompts) == 3
    for token in (10, 20):
        texts = [(*text, token + row) for row, text in enumerate(texts)]
        logits = cache.step(torch.tensor([token + row for row in range(len(texts))]))
        assert torch.allclose(logits, expected(model, texts), atol=1e-4)
    assert cache.layout
    assert [tuple(part.shape) for part in cache.layout] == [(4,), (4 if capture else 3, 2), (4,)]
    order = cache.drop({0: (), 2: ()}, None)
    assert order == [3, 1], "the last row fills the gap"
    texts = [texts[row] for row in order]
    assert len(cache.prompts) == 2
    logits = cache.add([(8, 4, 6, 2, 3), (12, 13)], 5, 8)
    texts += [(8, 4, 6, 2, 3), (12, 13)]
    assert torch.allclose(logits, expected(model, texts)[2:], atol=1e-4)
    for token in (30, 40):
        texts = [(*text, token + row) for row, text in enumerate(texts)]
        logits = cache.step(torch.tensor([token + row for row in range(len(texts))]))
        assert torch.allclose(logits, expected(model, texts), atol=1e-4)


def test_the_probe_keeps_logits_that_the_next_captured_step_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache_file, "capture_on", lambda device: record)
    assert choose_cache(tiny_policy(tmp_path, dtype="bfloat16").model) == "fused"
    assert choose_cache(tiny_policy(tmp_path).model) == "fused"


@torch.inference_mode()
def test_prompts_may_be_longer_than_completions(tmp_path: Path) -> None:
    model, text = tiny_policy(tmp_path).model, tuple(range(5, 25))
    cache = KVCache(model, short=4)
    assert torch.allclose(cache.add([text], 20, 3), expected(model, [text]), atol=1e-4)
    logits = cache.step(torch.tensor([30]))
    assert torch.allclose(logits, expected(model, [(*text, 30)]), atol=1e-4)


@torch.inference_mode()
def test_many_short_rows_leave_no_room_for_as_many_long_ones(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path).model
    cache = KVCache(model)
    cache.add([(5, 9, 7)] * 40, 3, 8)
    cache.step(torch.arange(10, 50))
    order = cache.drop(dict.fromkeys(range(1, 40), ()), None)
    logits = cache.add([(8, 4)], 3, 100)
    assert torch.allclose(logits, expected(model, [(8, 4)]), atol=1e-4)
    texts = [(5, 9, 7, 10 + order[0]), (8, 4)]
    for token in range(20, 60):
        texts = [(*text, token + row) for row, text in enumerate(texts)]
        logits = cache.step(torch.tensor([token, token + 1]))
        assert torch.allclose(logits, expected(model, texts), atol=1e-4)
    assert cache.capacity.rows == 2


@torch.inference_mode()
def test_rows_have_room_for_a_few_more_tokens_and_never_for_more_than_they_may_get(
    tmp_path: Path,
) -> None:
    cache = KVCache(tiny_policy(tmp_path).model)
    cache.add([(5, 9, 7)], 3, 200)
    rooms = []
    for _ in range(200):
        cache.step(torch.tensor([10]))
        rooms.append(cache.capacity.completion_width - 3)
    assert rooms[0] == rooms[15] == 16
    assert all(wide - used <= max(16, (used + 3) // 8) for used, wide in enumerate(rooms, 1))
    assert rooms[-1] == 200


@torch.inference_mode()
def test_steps_that_were_captured_are_forgotten_when_the_cache_moves(tmp_path: Path) -> None:
    replays: list[object] = []

    def count(run: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        replay, result = record(run)
        return lambda: replays.append(replay()), result

    cache = KVCache(tiny_policy(tmp_path).model, capture=count)
    cache.add([(5,)], 1, 8)
    for _ in range(3):
        cache.step(torch.tensor([7]))
    assert len(replays) == 2
    cache.add([(5,)] * 3, 1, 8)
    assert cache.drop({1: (), 2: (), 3: ()}, None) == [0]
    cache.step(torch.tensor([7]))
    assert len(replays) == 2


def test_shapes_are_padded_to_few_sizes() -> None:
    assert [bucket(n) for n in (1, 2, 3, 33, 64, 65, 128, 500)] == [1, 2, 4, 64, 64, 128, 128, 512]
    assert [wide_bucket(n) for n in (1, 128, 129)] == [128, 128, 256]


def test_the_prompt_of_the_next_row_stays_cached(tmp_path: Path) -> None:
    cache = KVCache(tiny_policy(tmp_path).model)
    cache.add([(5, 6), (7,)], 2, 4)
    cache.step(torch.tensor([1, 1]))
    assert cache.drop({0: (), 1: ()}, (7,)) == []
    assert cache.prompts == [(7,)]


def test_the_cache_of_transformers_accepts_rows_only_when_none_is_running(tmp_path: Path) -> None:
    cache = TransformersCache(tiny_policy(tmp_path).model)
    accepts = [cache.accepts_rows]
    cache.add([(5, 6), (7,)], 2, 4)
    accepts.append(cache.accepts_rows)
    for left in ([1], []):
        assert cache.drop({0: ()}, None) == left
        accepts.append(cache.accepts_rows)
    assert accepts == [True, False, False, True]


def test_the_probe_restores_the_models_own_attention(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path).model
    choose_cache(model)
    assert model.config._attn_implementation not in (None, ATTENTION)


@pytest.mark.parametrize(
    ("kind", "cache"),
    [
        ("llama", "fused"),
        ("qwen2", "fused"),
        ("gpt2", "kv_cache"),
        ("gemma2", "transformers"),
        ("mistral", "transformers"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_with_sliding_windows_decode_with_the_cache_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, cache: str, dtype: Any
) -> None:
    monkeypatch.setattr(kv_cache_file, "UNSUPPORTED", ())
    policy = load_policy(
        PolicySettings(model=str(checkpoint(tmp_path, kind)), device="cpu", dtype=dtype)
    )
    assert choose_cache(policy.model) == cache


@pytest.mark.parametrize(
    ("dtype", "said"), [("float32", "logits differ by"), ("bfloat16", "log-probabilities are off")]
)
def test_a_model_that_the_kv_cache_gets_wrong_decodes_with_the_cache_of_transformers_and_logs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, dtype: Any,
    said: str,
) -> None:  # fmt: skip
    model = tiny_policy(tmp_path).model.to(getattr(torch, dtype))
    attend = LayerCache.attend

    def wrong(
        self: LayerCache, query: Tensor, scaling: float, step: DecodeStep, bias: Tensor
    ) -> Tensor:
        return attend(self, query, scaling, step, bias) * 1.1

    monkeypatch.setattr(LayerCache, "attend", wrong)
    with caplog.at_level(logging.WARNING):
        assert choose_cache(model) == "transformers"
    assert said in caplog.text
    assert "does not decode with the cache 'kv_cache'" in caplog.text


def test_a_model_that_is_wrong_with_any_cache_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_policy(tmp_path).model

    def broken(self: KVCache | TransformersCache, tokens: Tensor) -> Tensor:
        return torch.full((len(tokens), 300), torch.nan)

    monkeypatch.setattr(KVCache, "step", broken)
    monkeypatch.setattr(TransformersCache, "step", broken)
    with pytest.raises(
        ModelError,
        match=r"LlamaForCausalLM cannot .*use engine\.name = 'vllm' .logits differ by nan",
    ):
        choose_cache(model)
