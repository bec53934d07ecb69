"""On a GPU: decoding with CUDA graphs, packed sequences, and a run from SFT to GRPO."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.config.sections import PolicySettings
from assay.engines.torch.cache_probe import choose_cache, errors_of
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import next_logits
from assay.policy.blocks import computing_on
from assay.policy.forward import Layout, forward, layout_of, tried_layouts, use_layouts
from assay.policy.load_model import enable_gradient_checkpointing, load_policy
from assay.policy.packed import pack
from assay.types import Batch
from tests.end_to_end.nursery import finish
from tests.policies import checkpoint

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

TEXTS = [(5, 9, 7), (11,), (5, 9, 7), (8, 4, 6, 2, 3), (8, 4, 6, 2, 3)]


def model_of(folder: Path, kind: str, dtype: str) -> Any:
    settings = PolicySettings(model=str(checkpoint(folder, kind)), device="cuda", dtype=dtype)
    return load_policy(settings).model.eval()


def expected(model: Any, texts: list[tuple[int, ...]]) -> Tensor:
    rows = []
    for text in texts:
        tokens = torch.tensor([text], device=model.device)
        positions = torch.arange(len(text), device=model.device).unsqueeze(0)
        rows.append(next_logits(model, tokens, torch.ones_like(tokens), positions, None)[0])
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@torch.inference_mode()
def test_captured_decode_steps_give_the_logits_of_a_full_pass(tmp_path: Path, kind: str) -> None:
    model = model_of(tmp_path, kind, "float32")
    cache, texts = KVCache(model, short=4), list(TEXTS)
    assert torch.allclose(cache.add(texts, 5, 40), expected(model, texts), atol=1e-3)
    for token in range(10, 40):
        texts = [(*text, token + row) for row, text in enumerate(texts)]
        logits = cache.step(torch.arange(token, token + len(texts), device=model.device))
        assert torch.allclose(logits, expected(model, texts), atol=1e-3)
    assert cache.graphs
    assert len(cache.graphs.captured) == 1, "thirty steps of one shape"


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_bfloat16_decoding_is_as_exact_as_the_model_itself(tmp_path: Path, kind: str) -> None:
    model = model_of(tmp_path, kind, "bfloat16")
    assert choose_cache(model) == "kv_cache"
    error, own = errors_of(model, lambda: KVCache(model, short=4))
    assert own is not None
    assert error < 2 * own


def batch_of(device: str) -> Batch:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 250, (6, 40), generator=draw)
    tokens[1:4, :20] = tokens[0, :20]
    position = torch.arange(40)
    attention = position < torch.tensor([[40], [33], [25], [40], [38], [12]])
    mask = attention & (position >= torch.tensor([[20], [20], [20], [20], [7], [3]]))
    zeros = torch.zeros(6, 40)
    weights, groups = torch.ones(6, 1), torch.zeros(6, dtype=torch.int64)
    parts = tokens, attention, mask, zeros, zeros, weights, groups
    return Batch(*(part.to(device) for part in parts))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_packed_sequences_give_the_numbers_and_gradients_of_padded_ones(
    tmp_path: Path, kind: str
) -> None:
    model, batch = model_of(tmp_path, kind, "bfloat16"), batch_of("cuda")
    assert layout_of(model, 40) == "packed"
    assert len(pack(batch.tokens, batch.mask).segments) == 2, "a shared prompt"
    tried, numbers, gradients = tried_layouts(model), {}, {}
    layouts: tuple[Layout, ...] = "packed", "padded"
    for layout in layouts:
        use_layouts(model, {torch.bfloat16: replace(tried[torch.bfloat16], fastest=layout)})
        model.zero_grad()
        logprobs = forward(model, batch).logprobs
        logprobs.sum().backward()  # type: ignore[no-untyped-call]
        numbers[layout] = logprobs.detach()
        gradients[layout] = torch.cat([p.grad.flatten().float() for p in model.parameters()])
    assert float((numbers["packed"] - numbers["padded"]).abs().max()) < 0.1
    off = gradients["packed"] - gradients["padded"]
    assert float(off.norm() / gradients["padded"].norm()) < 0.05


def test_a_run_on_a_gpu_goes_from_sft_to_grpo(tmp_path: Path) -> None:
    """With the GPU chosen by itself, in bfloat16, and the engine's log-probabilities those of the
    learner.
    """
    options = ["--stages.sft.epochs", "2", "--stages.grpo.steps", "6"]
    code, said = finish(tmp_path, "train", "demo", "--policy.dtype", "bfloat16", *options)
    assert code == 0, said
    assert "in bfloat16 on cuda" in said
    (run,) = (tmp_path / "runs").iterdir()
    lines = (run / "grpo" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    kls = [row["learn/kl_engine"] for row in rows if "learn/kl_engine" in row]
    assert kls
    assert max(kls) < 3e-3


@torch.no_grad()
def test_a_model_in_host_memory_computes_on_the_gpu_what_one_there_does(tmp_path: Path) -> None:
    model = model_of(tmp_path, "qwen2", "float32")
    tokens = torch.arange(2, 42, device="cuda").reshape(2, 20)
    there = model(input_ids=tokens, use_cache=False).logits
    model.to("cpu")
    with computing_on(torch.device("cuda"), model):
        assert torch.equal(model(input_ids=tokens, use_cache=False).logits, there)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_offloaded_checkpoints_take_less_memory_and_give_the_same_gradients(
    tmp_path: Path, dtype: str
) -> None:
    tokens = torch.randint(2, 250, (1, 4096), device="cuda")
    held, gradients = [], []
    for how in (True, "offload"):
        model = model_of(tmp_path, "qwen2", dtype)
        enable_gradient_checkpointing(model, offload=how == "offload")
        before = torch.cuda.memory_allocated()
        hidden = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        held.append(torch.cuda.memory_allocated() - before)
        hidden.float().square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert held[1] < held[0]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
