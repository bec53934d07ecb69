"""The memory of decoding, and the probe that says which a model takes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.config.sections import PolicySettings
from assay.engines.torch import slots as slots_file
from assay.engines.torch.graphs import bucket, wide_bucket
from assay.engines.torch.probe import takes_slots
from assay.engines.torch.prompts import Plain, forward
from assay.engines.torch.slots import ATTENTION, Layer, Slots, Step
from assay.errors import ModelError
from assay.policy.load import load_policy
from tests.policies import checkpoint, tiny_policy

TEXTS = [(5, 9, 7), (11,), (5, 9, 7), (8, 4, 6, 2, 3)]


def expected(model: Any, texts: list[tuple[int, ...]]) -> Tensor:
    rows = []
    for text in texts:
        tokens = torch.tensor([text])
        rows.append(
            forward(
                model, tokens, torch.ones_like(tokens), torch.arange(len(text)).unsqueeze(0), None
            )[0]
        )
    return torch.stack(rows)


@pytest.mark.parametrize("padded", [False, True])
@torch.inference_mode()
def test_rows_come_and_go_and_each_sees_its_own_text(tmp_path: Path, padded: bool) -> None:
    model = tiny_policy(tmp_path).model
    slots = Slots(model)
    if padded:
        slots.size, slots.width = bucket, wide_bucket
    texts = list(TEXTS)
    assert torch.allclose(slots.add(texts, 5, 8), expected(model, texts), atol=1e-4)
    assert len(slots.prompts) == 3
    for token in (10, 20):
        texts = [(*text, token + row) for row, text in enumerate(texts)]
        logits = slots.step(torch.tensor([token + row for row in range(len(texts))]))
        assert torch.allclose(logits, expected(model, texts), atol=1e-4)
    assert slots.layout
    assert [tuple(part.shape) for part in slots.layout] == [(4,), (4 if padded else 3, 2), (4,)]
    order = slots.drop([0, 2], None)
    assert order == [3, 1], "the last row takes the hole"
    texts = [texts[row] for row in order]
    assert len(slots.prompts) == 2
    logits = slots.add([(8, 4, 6, 2, 3), (12, 13)], 5, 8)
    texts += [(8, 4, 6, 2, 3), (12, 13)]
    assert torch.allclose(logits, expected(model, texts)[2:], atol=1e-4)
    for token in (30, 40):
        texts = [(*text, token + row) for row, text in enumerate(texts)]
        logits = slots.step(torch.tensor([token + row for row in range(len(texts))]))
        assert torch.allclose(logits, expected(model, texts), atol=1e-4)


def test_shapes_are_padded_to_few_sizes() -> None:
    assert [bucket(n) for n in (1, 2, 3, 33, 64, 65, 128, 500)] == [1, 2, 4, 64, 64, 128, 128, 512]
    assert [wide_bucket(n) for n in (1, 128, 129)] == [128, 128, 256]


def test_a_prompt_that_is_awaited_stays(tmp_path: Path) -> None:
    slots = Slots(tiny_policy(tmp_path).model)
    slots.add([(5, 6), (7,)], 2, 4)
    slots.step(torch.tensor([1, 1]))
    assert slots.drop([0, 1], (7,)) == []
    assert slots.prompts == [(7,)]


def test_the_plain_memory_takes_rows_only_when_all_have_gone(tmp_path: Path) -> None:
    plain = Plain(tiny_policy(tmp_path).model)
    takes = [plain.takes_more]
    plain.add([(5, 6), (7,)], 2, 4)
    takes.append(plain.takes_more)
    for left in ([1], []):
        assert plain.drop([0], None) == left
        takes.append(plain.takes_more)
    assert takes == [True, False, False, True]


def test_the_model_attends_as_before_afterwards(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path).model
    assert takes_slots(model)
    assert model.config._attn_implementation not in (None, ATTENTION)


@pytest.mark.parametrize(
    ("kind", "takes"),
    [("llama", True), ("qwen2", True), ("gpt2", True), ("gemma2", False), ("mistral", False)],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_models_with_sliding_windows_write_through_their_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, takes: bool, dtype: Any
) -> None:
    monkeypatch.setattr(slots_file, "UNKNOWN", ())
    policy = load_policy(
        PolicySettings(model=str(checkpoint(tmp_path, kind)), device="cpu", dtype=dtype)
    )
    assert takes_slots(policy.model) is takes


def test_a_model_that_slots_get_wrong_writes_through_its_own_cache_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_policy(tmp_path).model
    attend = Layer.attend

    def wrong(self: Layer, query: Tensor, scaling: float, step: Step, bias: Tensor) -> Tensor:
        return attend(self, query, scaling, step, bias) * 1.1

    monkeypatch.setattr(Layer, "attend", wrong)
    with caplog.at_level(logging.WARNING):
        assert not takes_slots(model)
    assert "logits differ by" in caplog.text
    assert "its own cache, which is slower" in caplog.text


def test_a_model_that_is_wrong_with_any_cache_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_policy(tmp_path).model

    def broken(self: Slots | Plain, tokens: Tensor) -> Tensor:
        return torch.full((len(tokens), 300), torch.nan)

    monkeypatch.setattr(Slots, "step", broken)
    monkeypatch.setattr(Plain, "step", broken)
    with pytest.raises(
        ModelError, match="LlamaForCausalLM cannot be decoded with its cache: logits differ by nan"
    ):
        takes_slots(model)
