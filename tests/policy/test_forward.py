"""Every layout of sequences is an identity: the loss and the gradients of the plain padded pass, to 1e-5."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from assay.policy import head
from assay.policy.forward import forward, layout_of
from assay.policy.packed import pack
from assay.types import Batch

SHAPE = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SHAPE, "intermediate_size": 48, "num_key_value_heads": 2, "initializer_range": 0.2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", LLAMA),
    "tied": ("Llama", {**LLAMA, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", LLAMA),
    "gpt2": ("GPT2", {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "initializer_range": 0.2}),
}


def make(kind: str, lora: str = "", **changes: Any) -> Any:
    """A random model; `lora` is a comma-separated list of the modules that get adapters, the others being frozen."""
    name, shape = MODELS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**shape | changes)
    model = getattr(transformers, name + ("LMHeadModel" if name == "GPT2" else "ForCausalLM"))(config)
    if lora:
        from peft import LoraConfig, get_peft_model

        targets = "all-linear" if lora == "all" else lora.split(",")
        model = get_peft_model(model, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
        for parameter in model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def batch_of(*rows: tuple[list[int], list[int]]) -> Batch:
    """Prompts and completions, all of them trained on."""
    width = max(len(prompt) + len(completion) for prompt, completion in rows)
    tokens = torch.tensor([[*p, *c, *[0] * (width - len(p) - len(c))] for p, c in rows])
    place = torch.arange(width)
    attention = place < torch.tensor([[len(p) + len(c)] for p, c in rows])
    mask = attention & (place >= torch.tensor([[len(p)] for p, _ in rows]))
    return Batch(tokens, attention, mask, torch.zeros(tokens.shape), torch.zeros(tokens.shape))


def some(count: int, seed: int) -> list[int]:
    return torch.randint(1, 97, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


A, B, C = some(9, 1), some(4, 2), some(7, 3)
BATCH = batch_of((A, some(6, 4)), (B, some(3, 5)), (A, some(1, 6)), (C, some(8, 7)), (B, some(9, 8)), (A, some(6, 9)))
"""Three completions of one prompt, one of them a single token; two of another; one alone; not in order."""


def plain(model: Any, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies [B, T] from the logits of every position of every padded row."""
    logits = model(input_ids=batch.tokens, attention_mask=batch.attention.long()).logits[:, :-1] / temperature
    logprobs = torch.log_softmax(logits, -1)
    chosen = logprobs.gather(-1, batch.tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    pad = torch.nn.functional.pad
    return (pad(one, (1, 0)).masked_fill(~batch.mask, 0.0) for one in (chosen, entropy))  # type: ignore[return-value]


def slopes(model: Any, logprobs: Tensor, entropy: Tensor | None = None) -> dict[str, Tensor]:
    """Gradients of a sum with another weight for each token, and of the entropies' if given."""
    model.zero_grad()
    weights = torch.cos(torch.arange(logprobs.numel())).view(logprobs.shape)
    loss = (weights * logprobs).sum() if entropy is None else (weights * logprobs + weights.flip(0) * entropy).sum()
    torch.autograd.backward(loss)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    size = max(slope.abs().max().item() for slope in theirs.values())
    for name, slope in theirs.items():
        assert torch.allclose(ours[name], slope, rtol=1e-5, atol=1e-5 * size), name


CASES = [("llama", ""), ("llama", "all"), ("llama", "q_proj,lm_head"), ("tied", ""), ("qwen2", ""), ("qwen2", "all"), ("gpt2", ""), ("gpt2", "all")]  # fmt: skip


@pytest.mark.parametrize(("kind", "lora"), CASES)
@pytest.mark.parametrize("entropy_gradient", [False, True])
@pytest.mark.parametrize("tile", [97, 97 * 5, 1 << 22])
def test_packed_sequences_give_the_numbers_and_gradients_of_padded_ones(
    kind: str, lora: str, entropy_gradient: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(head.TILE, "cpu", tile)
    model = make(kind, lora)
    assert layout_of(model) == "packed"
    seen = forward(model, BATCH, 0.7, entropy_gradient=entropy_gradient)
    ours = slopes(model, seen.logprobs, seen.entropy if entropy_gradient else None)
    logprobs, entropy = plain(model, BATCH, 0.7)
    theirs = slopes(model, logprobs, entropy if entropy_gradient else None)
    assert torch.allclose(seen.logprobs, logprobs, atol=1e-5)
    assert torch.allclose(seen.entropy, entropy, atol=1e-5)
    assert seen.entropy.requires_grad == entropy_gradient
    assert_same(ours, theirs)
