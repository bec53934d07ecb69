"""Every layout of sequences is an identity: the loss and the gradients of the plain padded pass, to
1e-5.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from assay.policy import forward as forward_module
from assay.policy import head, packed
from assay.policy.forward import forward, layout_of
from assay.policy.onednn import use_fast_linear, uses_onednn
from assay.policy.packed import _VarlenAttention, pack
from assay.train.batch import to_batch
from assay.types import Batch, Sample

SHAPE = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SHAPE, "intermediate_size": 48, "num_key_value_heads": 2, "initializer_range": 0.2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", LLAMA),
    "tied": ("Llama", {**LLAMA, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", LLAMA),
    "gemma2": ("Gemma2", {**LLAMA, "head_dim": 8, "final_logit_softcapping": 5.0}),
    "cohere": ("Cohere", {**LLAMA, "bos_token_id": 1, "eos_token_id": 2}),
    "granite": ("Granite", {**LLAMA, "logits_scaling": 8.0}),
    "windowed": ("Mistral", {**LLAMA, "sliding_window": 6}),
    "falcon": ("Falcon", {**SHAPE, "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 2}),
    "mamba": ("Mamba", {**SHAPE, "pad_token_id": 0}),
    "mixed": ("Olmo3", {**LLAMA, "sliding_window": 6, "pad_token_id": 0, "eos_token_id": 2}),
    "eager": ("Llama", {**LLAMA, "attn_implementation": "eager"}),
    "gpt2": ("GPT2", {**SHAPE, "n_positions": 32, "initializer_range": 0.2}),
}


def make(kind: str, lora: str = "", **changes: Any) -> Any:
    """A random model; `lora` is a comma-separated list of the modules that get adapters, the others
    being frozen.
    """
    name, shape = MODELS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**shape | changes)
    model = getattr(transformers, name + ("LMHeadModel" if name == "GPT2" else "ForCausalLM"))(
        config
    )
    if lora:
        from peft import LoraConfig, get_peft_model

        targets = "all-linear" if lora == "all" else lora.split(",")
        model = get_peft_model(
            model, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM")
        )
        for parameter in model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.2)
    use_fast_linear(model)
    return model.eval()


def batch_of(*rows: tuple[list[int], list[int]]) -> Batch:
    """Prompts and completions, all of them trained on."""
    samples = [Sample((*p, *c), (False,) * len(p) + (True,) * len(c)) for p, c in rows]
    return to_batch(samples, 0, torch.device("cpu"))


def some(count: int, seed: int) -> list[int]:
    return torch.randint(1, 97, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


A, B, C = some(9, 1), some(4, 2), some(7, 3)
BATCH = batch_of(
    (A, some(6, 4)),
    (B, some(3, 5)),
    (A, some(1, 6)),
    (C, some(8, 7)),
    (B, some(9, 8)),
    (A, some(6, 9)),
)
"""Three completions of one prompt, one of them a single token; two of another; one alone; not in
order."""


def plain(model: Any, batch: Batch, temperature: float) -> list[Tensor]:
    """Log-probabilities and entropies [B, T] from the logits of every position of every padded
    row.
    """
    logits = (
        model(input_ids=batch.tokens, attention_mask=batch.attention.long()).logits[:, :-1]
        / temperature
    )
    logprobs = torch.log_softmax(logits, -1)
    chosen = logprobs.gather(-1, batch.tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    pad = torch.nn.functional.pad
    return [pad(one, (1, 0)).masked_fill(~batch.mask, 0.0) for one in (chosen, entropy)]


def slopes(model: Any, logprobs: Tensor, entropy: Tensor | None = None) -> dict[str, Tensor]:
    """Gradients of a sum with another weight for each token, and of the entropies' if given."""
    model.zero_grad()
    weights = torch.cos(torch.arange(logprobs.numel())).view(logprobs.shape)
    loss = (
        (weights * logprobs).sum()
        if entropy is None
        else (weights * logprobs + weights.flip(0) * entropy).sum()
    )
    torch.autograd.backward(loss)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    size = max(slope.abs().max().item() for slope in theirs.values())
    for name, slope in theirs.items():
        assert torch.allclose(ours[name], slope, rtol=1e-5, atol=1e-5 * size), name


FULL = [(kind, "") for kind in ("llama", "tied", "qwen2", "gpt2")]
CASES = [*FULL, ("llama", "all"), ("llama", "q_proj,lm_head"), ("qwen2", "all"), ("gpt2", "all")]


TILES = [(97, True), (97 * 5, False), (1 << 22, True)]
"""Tokens of the head at once, and whether the entropy has a gradient."""
MORE_TILES = [(tile, not entropy) for tile, entropy in TILES]


@pytest.mark.parametrize(("kind", "lora"), CASES)
@pytest.mark.parametrize(
    ("tile", "entropy_gradient"),
    [*TILES, *(pytest.param(*one, marks=pytest.mark.long) for one in MORE_TILES)],
)
def test_packed_sequences_give_the_numbers_and_gradients_of_padded_ones(
    kind: str, lora: str, entropy_gradient: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(head.TILE, "cpu", tile)
    monkeypatch.setattr(head, "LEAST_ROWS", 1)
    model = make(kind, lora)
    assert layout_of(model, 12) == "packed"
    seen = forward(model, BATCH, 0.7, entropy_gradient=entropy_gradient)
    ours = slopes(model, seen.logprobs, seen.entropy if entropy_gradient else None)
    logprobs, entropy = plain(model, BATCH, 0.7)
    theirs = slopes(model, logprobs, entropy if entropy_gradient else None)
    assert torch.allclose(seen.logprobs, logprobs, atol=1e-5)
    assert torch.allclose(seen.entropy, entropy, atol=1e-5)
    assert seen.entropy.requires_grad == entropy_gradient
    assert_same(ours, theirs)


@pytest.mark.parametrize("lora", ["", "all"])
def test_a_row_that_is_filled_up_gives_the_same_numbers_and_gradients(lora: str) -> None:
    model, batch = make("llama", lora), batch_of(*((A, some(20, seed)) for seed in range(9)))
    assert len(pack(batch.tokens, batch.mask).tokens) == (256 if uses_onednn() else 9 + 9 * 19)
    seen = forward(model, batch, 0.7, entropy_gradient=True)
    ours = slopes(model, seen.logprobs, seen.entropy)
    logprobs, entropy = plain(model, batch, 0.7)
    theirs = slopes(model, logprobs, entropy)
    assert torch.allclose(seen.logprobs, logprobs, atol=1e-5)
    assert torch.allclose(seen.entropy, entropy, atol=1e-5)
    assert_same(ours, theirs)


def test_log_probabilities_are_those_of_the_plain_forward_pass_and_zero_elsewhere() -> None:
    model = make("llama")
    batch = batch_of(([5, 6], [7, 8]), ([9], [10]))
    seen = forward(model, batch, 0.7)
    long = torch.log_softmax(model(batch.tokens[:1]).logits[0] / 0.7, -1)
    short = torch.log_softmax(model(batch.tokens[1:, :1]).logits[0] / 0.7, -1)
    assert seen.logprobs[0].tolist() == pytest.approx(
        [0, 0, long[1, 7].item(), long[2, 8].item()], abs=1e-5
    )
    assert seen.logprobs[1].tolist() == pytest.approx([0, short[0, 10].item(), 0, 0], abs=1e-5)
    assert seen.entropy[0, 2].item() == pytest.approx(
        -(long[1].exp() * long[1]).sum().item(), abs=1e-4
    )
    assert seen.entropy[0, 1].item() == 0
    assert seen.values is None


def test_a_prompt_is_laid_down_once_for_all_that_continue_it() -> None:
    batch = batch_of(([1, 2], [3, 4, 5]), ([6], [7, 8]), ([1, 2], [9, 9]), ([1, 2], [8]))
    row = pack(batch.tokens, batch.mask)
    assert row.tokens.tolist() == [1, 2, 3, 4, 9, 6, 7], (
        "no prediction depends on a row's last token"
    )
    assert row.positions.tolist() == [0, 1, 2, 3, 2, 0, 1]
    assert row.predictors.tolist() == [1, 2, 3, 5, 6, 1, 4, 1]
    own, shared = row.segments
    assert own.query_lengths == own.key_lengths == (2, 2, 1, 2)
    assert (shared.query_lengths, shared.key_lengths, shared.start) == ((3,), (2,), 2)


def test_a_trained_token_within_a_prompt_that_differs_keeps_rows_apart() -> None:
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]])
    row = pack(tokens, torch.tensor([[False, True, False, True], [False, False, False, True]]))
    assert row.tokens.tolist() == [1, 2, 3, 1, 2, 3]
    assert row.predictors.tolist() == [0, 2, 5]


def test_completions_in_one_row_do_not_see_one_another() -> None:
    model = make("llama")
    assert layout_of(model, 12) == "packed"
    other = replace(BATCH, tokens=BATCH.tokens.clone())
    other.tokens[4, 6] = 96
    before, after = (forward(model, batch).logprobs for batch in (BATCH, other))
    assert not torch.equal(before[4], after[4])
    keep = [0, 1, 2, 3, 5]
    assert torch.equal(before[keep], after[keep])


def test_a_batch_of_which_nothing_is_trained_on_has_no_numbers_and_no_gradient() -> None:
    model = make("llama")
    seen = forward(model, replace(BATCH, mask=torch.zeros_like(BATCH.mask)))
    assert not seen.logprobs.any()
    assert not any(slope.any() for slope in slopes(model, seen.logprobs).values())


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_a_critic_gets_the_hidden_states_that_predict_each_token_and_leads_back_to_them(
    kind: str,
) -> None:
    model, critic = make(kind), torch.nn.Sequential(torch.nn.Linear(32, 1), torch.nn.Flatten(0))
    ours = forward(model, BATCH, critic=critic).values
    assert ours is not None
    hidden = model(
        BATCH.tokens, attention_mask=BATCH.attention.long(), output_hidden_states=True
    ).hidden_states[-1]
    theirs = torch.nn.functional.pad(critic(hidden[:, :-1].flatten(0, 1)).view(6, -1), (1, 0))
    assert torch.allclose(ours, theirs.masked_fill(~BATCH.mask, 0.0), atol=1e-5)
    assert_same(slopes(model, ours), slopes(model, theirs.masked_fill(~BATCH.mask, 0.0)))


def test_checkpointed_layers_are_computed_again_with_the_same_attention() -> None:
    model = make("llama")
    expected = slopes(model, forward(model, BATCH).logprobs)
    model.gradient_checkpointing_enable()
    assert_same(slopes(model.train(), forward(model, BATCH).logprobs), expected)


def test_bfloat16_stays_near_float32_and_numbers_come_in_float32() -> None:
    exact_model, model = make("llama"), make("llama").bfloat16()
    exact = forward(exact_model, BATCH)
    assert layout_of(model, 12) == "packed"
    found = forward(model, BATCH)
    assert found.logprobs.dtype == found.entropy.dtype == torch.float32
    assert torch.allclose(found.logprobs, exact.logprobs, atol=0.1)
    ours, theirs = slopes(model, found.logprobs), slopes(exact_model, exact.logprobs)
    size = max(slope.abs().max().item() for slope in theirs.values())
    assert all(torch.allclose(ours[n].float(), theirs[n], atol=0.1 * size) for n in theirs)


def test_attention_of_bfloat16_runs_in_float32_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, dtypes = packed._flash_cpu_backward, set[torch.dtype]()

    def observed(grad: Tensor, saved: Any, *more: Any) -> list[Tensor]:
        dtypes.update(one.dtype for one in (grad, *saved))
        return usual(grad, saved, *more)

    monkeypatch.setattr(packed, "_flash_cpu_backward", observed)
    model = make("llama").bfloat16()
    found = slopes(model, forward(model, BATCH).logprobs)
    assert dtypes == {torch.float32}
    assert {slope.dtype for slope in found.values()} == {torch.bfloat16}


def test_a_layout_that_lets_tokens_see_what_they_may_not_is_refused_however_little_it_shows() -> (
    None
):
    model = make("falcon", initializer_range=0.02).bfloat16()
    assert layout_of(model, 12) == "padded"


FALLBACKS = [
    ("gemma2", "plain", "changes its logits after the head"),
    ("cohere", "plain", "changes its logits after the head"),
    ("granite", "plain", "changes its logits after the head"),
    ("windowed", "padded", "its attention window is 6 tokens"),
    ("falcon", "padded", "would change tokens before it"),
    ("mamba", "padded", "layers other than attention: linear_attention"),
    ("eager", "padded", "its attention is 'eager'"),
    ("mixed", "padded", "its attention window is 6 tokens"),
]


@pytest.mark.parametrize(("kind", "layout", "reason"), FALLBACKS)
def test_a_model_that_cannot_be_packed_says_why_and_gives_the_numbers_of_the_plain_pass(
    kind: str, layout: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(kind)
    with caplog.at_level(logging.WARNING):
        assert layout_of(model, 12) == layout
    assert reason in caplog.text
    seen = forward(model, BATCH, 0.7, entropy_gradient=True)
    ours = slopes(model, seen.logprobs, seen.entropy)
    logprobs, entropy = plain(model, BATCH, 0.7)
    assert torch.allclose(seen.logprobs, logprobs, atol=1e-5)
    assert_same(ours, slopes(model, logprobs, entropy))


def test_keys_that_share_a_large_part_leave_attention_and_its_gradients_exact() -> None:
    """Those of Qwen2.5 do: its scores are in the hundreds, and so are their log-sum-exps."""
    row = pack(BATCH.tokens, BATCH.mask)
    draw = torch.Generator().manual_seed(0)
    query, key, value, weights = torch.randn(4, 1, 2, len(row.tokens), 8, generator=draw)
    found, exact = (
        attention_and_gradients(query, key + shift, value, weights, row.segments)
        for shift in (1000.0, 0.0)
    )
    for ours, expected in zip(found, exact, strict=True):
        assert float((ours - expected).abs().max()) < 1e-4 * float(expected.abs().max())


def attention_and_gradients(
    query: Tensor, key: Tensor, value: Tensor, weights: Tensor, segments: Any
) -> list[Tensor]:
    """Packed attention's output, and gradients of its weighted sum in query, key and value."""
    inputs = [one.requires_grad_() for one in (query.clone(), key.clone(), value.clone())]
    output = _VarlenAttention.apply(*inputs, segments, 0.35)  # type: ignore[no-untyped-call]
    return [output, *torch.autograd.grad((output * weights).sum(), inputs)]


def test_a_deep_model_whose_padding_token_is_embedded_as_zeros_is_packed() -> None:
    shape: dict[str, Any] = {"hidden_size": 256, "num_hidden_layers": 24, "pad_token_id": 0}
    model = make("llama", initializer_range=0.02, **shape)
    assert not model.get_input_embeddings().weight[0].any()
    assert layout_of(model, 12) == "packed"


def test_a_layout_that_ran_out_of_memory_is_not_refused_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*arguments: object) -> object:
        raise torch.OutOfMemoryError("no room")

    model = make("llama")
    with monkeypatch.context() as patched:
        patched.setattr(forward_module, "pack", full)
        with pytest.raises(torch.OutOfMemoryError):
            layout_of(model, 12)
    assert layout_of(model, 12) == "packed"


def test_dropout_in_attention_is_not_lost_to_packing() -> None:
    model = make("llama", attention_dropout=0.5)
    assert layout_of(model, 12) == "packed"
    assert layout_of(model.train(), 12) == "padded"


def test_generation_is_what_it_was_once_a_model_can_be_packed() -> None:
    model = make("llama")
    prompt = torch.tensor([[0, 5, 6, 7], [8, 9, 10, 11]])
    attention = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    given = {
        "attention_mask": attention,
        "max_new_tokens": 8,
        "do_sample": False,
        "pad_token_id": 0,
    }
    before = model.generate(prompt, **given)
    assert layout_of(model, 12) == "packed"
    assert torch.equal(model.generate(prompt, **given), before)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_a_head_in_tiles_has_the_gradients_of_the_whole_one(
    frozen: bool, bias: bool, entropy_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    whole = torch.nn.Linear(8, 50, bias=bias).requires_grad_(not frozen)
    hidden, targets = torch.randn(21, 8, requires_grad=True), torch.randint(0, 50, (21,))
    leaves = [hidden, *(p for p in whole.parameters() if p.requires_grad)]
    logprobs, entropy = head.logprobs_from_logits(whole(hidden) / 1.3, targets, entropy_gradient)
    factors = torch.arange(21.0)
    expected = torch.autograd.grad(
        (logprobs * factors + entropy_gradient * entropy.square()).sum(), leaves
    )
    monkeypatch.setitem(head.TILE, "cpu", 50 * 4)
    monkeypatch.setattr(head, "LEAST_ROWS", 1)
    logprobs, entropy = head.logprobs_from_hidden(whole, hidden, targets, 1.3, entropy_gradient)
    found = torch.autograd.grad(
        (logprobs * factors + entropy_gradient * entropy.square()).sum(), leaves
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-4)


def test_no_more_logits_than_a_tile_are_ever_held(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    sizes: list[int] = []

    class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, what: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = what(*args, **(kwargs or {}))
            sizes.extend(
                one.numel()
                for one in (out if isinstance(out, tuple) else [out])
                if isinstance(one, Tensor)
            )
            return out

    monkeypatch.setitem(head.TILE, "cpu", 1000 * 3)
    monkeypatch.setattr(head, "LEAST_ROWS", 1)
    model = make(
        "llama", vocab_size=1000, hidden_size=2, num_key_value_heads=1, num_attention_heads=1
    )
    layout_of(model, 12)
    with Sizes():  # type: ignore[no-untyped-call]
        slopes(model, forward(model, BATCH).logprobs)
    assert int(BATCH.mask.sum()) == 33
    assert max(sizes) == 3000


def test_a_head_that_has_been_given_another_forward_is_called() -> None:
    model = make("llama")
    usual, calls = model.lm_head.forward, []

    def project(hidden: Tensor) -> Any:
        calls.append(hidden.shape)
        return usual(hidden)

    model.lm_head.forward = project
    assert layout_of(model, 12) == "packed"
    calls.clear()
    assert torch.allclose(
        forward(model, BATCH).logprobs, forward(make("llama"), BATCH).logprobs, atol=1e-5
    )
    assert calls == [(33, 32)]
