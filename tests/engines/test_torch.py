"""The in-process engine: its log-probabilities are the learner's, and it is reproducible."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config.generation import EngineSettings
from assay.config.sections import LoraSettings, PolicySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.engines.torch import kv_cache as kv_cache_file
from assay.engines.torch import prefill as prefill_file
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import prefill
from assay.errors import MachineError
from assay.maths.seeds import derive
from assay.policy.forward import forward
from assay.policy.load_model import Policy, load_policy
from assay.rollout.prompter import Prompter
from assay.train.batch import to_batch
from assay.types import Completion, Sample
from tests.policies import TASKS, checkpoint, seven_tokens, tiny_policy

Asked = tuple[tuple[int, ...], int]
"""A prompt, and how many completions it gets."""


@dataclass(frozen=True)
class Written:
    """A completion, the number of its prompt and its own among that prompt's."""

    request: int
    member: int
    completion: Completion


def generate(
    policy: Policy, requests: Sequence[Asked], sampling: Sampling, seed: int = 1,
    settings: EngineSettings | None = None, engine: TorchEngine | None = None, stop: tuple[str,
    ...] = (),
    seeds: list[int] | None = None,
) -> list[Written]:  # fmt: skip
    """In the order they end; request n has the seed `seeds[n]`, or one of its own."""
    found: list[Written] = []

    async def all_of_it() -> None:
        writer = engine or TorchEngine(policy, settings)
        await writer.load(policy, 7)

        async def one(place: int, member: int) -> None:
            own = derive(seed, seeds[place] if seeds else f"#{place}", member)
            completion = await writer.generate(
                GenerationRequest(requests[place][0], own, stop), sampling
            )
            found.append(Written(place, member, completion))

        await asyncio.gather(
            *(one(n, member) for n, (_, count) in enumerate(requests) for member in range(count))
        )

    asyncio.run(all_of_it())
    return found


def requests_for(policy: Policy, count: int) -> list[Asked]:
    return [(Prompter(policy.chat).prompt(task), count) for task in TASKS[:4]] + [((5,), count)]


def policy_of(folder: Path, kind: str) -> Policy:
    """A policy to compare on: adapters are made to count."""
    if kind == "tiny":
        return tiny_policy(folder)
    lora = LoraSettings(rank=4) if kind.endswith("lora") else None
    made = checkpoint(folder, kind.removesuffix("+lora"))
    policy = load_policy(PolicySettings(model=str(made), lora=lora, device="cpu"))
    torch.manual_seed(1)
    for parameter in policy.trainable.values():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    return policy


def learned(
    policy: Policy, prompt: tuple[int, ...], written: tuple[int, ...], temperature: float = 1.0
) -> torch.Tensor:
    """The learner's log-probabilities of the generated tokens."""
    batch = to_batch(
        [Sample(prompt + written, (False,) * len(prompt) + (True,) * len(written))],
        0,
        policy.device,
    )
    return forward(policy.model, batch, temperature).logprobs[batch.mask].detach()


KINDS = ("tiny", "qwen2", "llama+lora", "qwen2+lora", "gpt2", "gemma2")
EQUAL = [("tiny", 0.6), ("tiny", 0.0), *((kind, 1.0) for kind in KINDS)]
MORE = [(kind, temperature) for kind in KINDS[1:] for temperature in (0.6, 0.0)]


@pytest.mark.parametrize(
    ("kind", "temperature"),
    [*EQUAL, *(pytest.param(*one, marks=pytest.mark.long) for one in MORE)],
)
def test_log_probabilities_equal_the_learners(
    tmp_path: Path, kind: str, temperature: float
) -> None:
    policy = policy_of(tmp_path, kind)
    requests = requests_for(policy, 6)
    few_at_once = EngineSettings(
        kv_cache_tokens=16 * (24 + max(len(prompt) for prompt, _ in requests))
    )
    for written in generate(policy, requests, Sampling(24, temperature), settings=few_at_once):
        prompt, completion = requests[written.request][0], written.completion
        expected = learned(policy, prompt, completion.tokens, temperature or 1.0)
        assert torch.allclose(expected, torch.tensor(completion.logprobs), atol=1e-4)


@pytest.mark.parametrize("kind", ["tiny", "qwen2+lora"])
def test_with_top_p_log_probabilities_are_the_learners_renormalised_over_the_nucleus(
    tmp_path: Path, kind: str
) -> None:
    policy = policy_of(tmp_path, kind)
    requests = requests_for(policy, 6)
    for written in generate(policy, requests, Sampling(16, 0.8, top_p=0.6)):
        prompt, completion = requests[written.request][0], written.completion
        with torch.no_grad():
            logits = policy.model(torch.tensor([prompt + completion.tokens])).logits[
                0, len(prompt) - 1 : -1
            ]
        for row, token, found in zip(
            logits / 0.8, completion.tokens, completion.logprobs, strict=True
        ):
            probabilities = row.softmax(-1)
            likelier = probabilities[probabilities > probabilities[token]].sum().item()
            assert likelier < 0.6 + 1e-4, "it lies in the nucleus"
            ordered = probabilities.sort(descending=True).values
            size = int((ordered.cumsum(0) - ordered < 0.6).sum())
            expected = probabilities[token] / ordered[:size].sum()
            assert found == pytest.approx(expected.log().item(), abs=2e-3)


def test_every_request_gets_its_completions_with_version_and_end(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    found = generate(policy, requests_for(policy, 3), Sampling(5))
    assert sorted((w.request, w.member) for w in found) == [
        (r, m) for r in range(5) for m in range(3)
    ]
    for written in found:
        completion = written.completion
        ended_by_token = completion.tokens[-1] in policy.chat.stop_tokens
        assert completion.versions == (7,) * len(completion.tokens)
        assert completion.ended == ("stop" if ended_by_token else "length")
        assert len(completion.tokens) == 5 or ended_by_token
        assert len(completion.logprobs) == len(completion.tokens)


def test_equal_seeds_generate_the_same_and_other_seeds_something_else(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    first, same, other = (
        generate(policy, requests_for(policy, 4), Sampling(12), seed) for seed in (1, 1, 2)
    )
    assert first == same
    assert {w.completion.tokens for w in first} != {w.completion.tokens for w in other}


def test_a_seeded_request_gets_the_same_tokens_alone_and_in_any_batch(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    prompt = Prompter(policy.chat).prompt(TASKS[0])
    company = requests_for(policy, 5)

    def of(place: int, found: list[Written]) -> dict[int, tuple[int, ...]]:
        return {w.member: w.completion.tokens for w in found if w.request == place}

    alone = of(0, generate(policy, [(prompt, 3)], Sampling(60), seeds=[9]))
    beside = of(
        5, generate(policy, [*company, (prompt, 3)], Sampling(60), seeds=[0, 1, 2, 3, 4, 9])
    )
    both = [company[0], (prompt, 3)]
    one_by_one = of(
        1,
        generate(
            policy, both, Sampling(60), settings=EngineSettings(kv_cache_tokens=1), seeds=[0, 9]
        ),
    )
    assert alone == beside == one_by_one
    assert of(0, generate(policy, [(prompt, 3)], Sampling(60), seeds=[8])) != alone
    assert len(set(alone.values())) == 3


def test_each_distinct_prompt_is_prefilled_once_however_its_group_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(tmp_path)
    engine = TorchEngine(policy, EngineSettings(kv_cache_tokens=60))
    generate(policy, [((5,), 1)], Sampling(1), engine=engine)
    asked: list[tuple[int, ...]] = []

    def counting(model: Any, prompts: Any) -> Any:
        asked.extend(prompts)
        return prefill(model, prompts)

    monkeypatch.setattr(kv_cache_file, "prefill", counting)
    requests = [((5, n), 7) for n in range(3, 7)]
    assert len(generate(policy, requests, Sampling(10), engine=engine)) == 28, "5 at once"
    assert asked == [(5, 3), (5, 4), (5, 5), (5, 6)]


def test_completions_are_returned_in_the_order_they_end(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    found = generate(policy, [((5,), 300)], Sampling(40))
    lengths = [len(w.completion.tokens) for w in found]
    assert lengths == sorted(lengths)
    assert lengths[0] < 40, "some end early"


def test_a_bfloat16_copy_generates_and_follows_the_policy(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    engine = TorchEngine(policy, EngineSettings(dtype="bfloat16"))
    requests = requests_for(policy, 2)
    before = generate(policy, requests, Sampling(8), engine=engine)
    for parameter in policy.trainable.values():
        parameter.data.mul_(1.5)
    differences = []
    for written in (after := generate(policy, requests, Sampling(8), engine=engine)):
        prompt, completion = requests[written.request][0], written.completion
        differences.append(
            (learned(policy, prompt, completion.tokens) - torch.tensor(completion.logprobs))
            .abs()
            .max()
        )
    assert 1e-4 < max(map(float, differences)) < 0.1
    assert after != before
    rounded = {one.dtype for one in engine._model().parameters()}
    frequencies = {one.dtype for one in engine._model().buffers()}
    assert (rounded, frequencies) == ({torch.bfloat16}, {torch.float32})
    assert next(iter(policy.trainable.values())).dtype == torch.float32


def rows_held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the number of rows after each prefill."""
    held: list[int] = []
    add = KVCache.add

    def counting(self: KVCache, *given: Any) -> Any:
        found = add(self, *given)
        held.append(len(self.rows))
        return found

    monkeypatch.setattr(KVCache, "add", counting)
    return held


def test_the_kv_cache_never_holds_more_tokens_than_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(tmp_path)
    requests = [((5,) * 6, 7), ((5,), 6)]
    engine = TorchEngine(policy, EngineSettings(kv_cache_tokens=59))
    held = rows_held(monkeypatch)
    found = generate(policy, requests, Sampling(4), engine=engine)
    assert held[:2] == [4, 2], "the probe's"
    assert held[2] == 5, "59 tokens are 5 rows of 6 + 4, across the groups"
    assert max(held) == 5
    assert sorted((w.request, w.member) for w in found) == [(0, m) for m in range(7)] + [
        (1, m) for m in range(6)
    ]
    held.clear()
    assert (
        len(generate(policy, requests, Sampling(4), settings=EngineSettings(kv_cache_tokens=1)))
        == 13
    )
    assert held[2:] == [1] * 13, "at least one row at a time"
    held.clear()
    generate(policy, [((5,), 520)], Sampling(1))
    assert held[2:] == [512, 8]


def test_when_memory_runs_out_the_setting_to_lower_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(tmp_path)

    def full(*given: object, **named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(policy.model, "forward", full)
    with pytest.raises(
        MachineError,
        match=r"cpu has no memory for 9 completions .* 11 tokens.*lower engine\.kv_cache_tokens",
    ):
        generate(policy, [((5,), 20)], Sampling(10), settings=EngineSettings(kv_cache_tokens=100))


def test_greedy_decoding_takes_the_likeliest_token_each_time(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    prompt = Prompter(policy.chat).prompt(TASKS[0])
    (written,) = generate(policy, [(prompt, 1)], Sampling(6, temperature=0.0))
    tokens = list(prompt)
    for token in written.completion.tokens:
        assert token == policy.model(torch.tensor([tokens])).logits[0, -1].argmax().item()
        tokens.append(token)


def test_a_stop_string_ends_a_completion_and_is_cut_from_its_text(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    plain = generate(policy, requests_for(policy, 4), Sampling(30))
    text = "".join(w.completion.text for w in plain)
    word = next(
        text[n : n + 2]
        for n in range(20, len(text))
        if text[n : n + 2].isascii() and text[n : n + 2].isalnum()
    )
    stopped = generate(policy, requests_for(policy, 4), Sampling(30), stop=(word,))
    assert all(word not in w.completion.text for w in stopped)
    hit = [w for w in stopped if word in policy.chat.text(w.completion.tokens)]
    assert hit
    assert all(word not in policy.chat.text(w.completion.tokens[:-1]) for w in hit), "at once"
    assert all(w.completion.ended == "stop" for w in hit)


def test_a_stop_string_of_many_tokens_is_found(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    prompt = Prompter(policy.chat).prompt(TASKS[0])
    plain = generate(policy, [(prompt, 8)], Sampling(60), seeds=[1])
    longest = max(plain, key=lambda w: len(w.completion.tokens)).completion
    word = policy.chat.text(longest.tokens[10:45])
    stopped = generate(policy, [(prompt, 8)], Sampling(60), stop=(word,), seeds=[1])
    (cut,) = [w.completion for w in stopped if w.completion.tokens == longest.tokens[:45]]
    assert cut.ended == "stop"
    assert cut.text == policy.chat.text(longest.tokens[:10])


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(2),
        Sampling(2, 0.7, top_p=0.9),
        Sampling(2, 1.3, top_k=4),
        Sampling(2, top_k=5, top_p=0.95, min_p=0.1),
    ],
)
def test_pairs_of_tokens_are_as_frequent_as_those_of_transformers(sampling: Sampling) -> None:
    policy = seven_tokens()
    model: Any = policy.model
    prompt = (1, 2, 3)
    ours = [w.completion.tokens for w in generate(policy, [(prompt, 4000)], sampling)]
    torch.manual_seed(5)
    theirs = model.generate(
        input_ids=torch.tensor([prompt] * 4000), attention_mask=torch.ones((4000, 3),
        dtype=torch.int64),
        max_new_tokens=2, do_sample=True, temperature=sampling.temperature, top_k=sampling.top_k,
        top_p=sampling.top_p, min_p=sampling.min_p, pad_token_id=0,
    )[:, 3:]  # fmt: skip
    here, there = (
        torch.bincount(torch.tensor(them) @ torch.tensor([7, 1]), minlength=49)
        for them in (ours, theirs.tolist())
    )
    both = here + there
    statistic = ((here - there) ** 2 / both.clamp(min=1)).sum().item()
    degrees = int((both > 0).sum()) - 1
    assert degrees > 5
    assert statistic < degrees + 3.1 * (2 * degrees) ** 0.5 + 4, (
        "the 99.9 % point of chi-square, or a little more"
    )
    assert ((here > 20) <= (there > 0)).all()
    assert ((there > 20) <= (here > 0)).all(), "the same tokens are left out"


def test_sampled_frequencies_follow_the_policy(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    prompt = Prompter(policy.chat).prompt(TASKS[0])
    found = generate(policy, [(prompt, 2000)], Sampling(1))
    with torch.no_grad():
        probabilities = torch.softmax(policy.model(torch.tensor([prompt])).logits[0, -1], -1)
    counts = torch.bincount(
        torch.tensor([w.completion.tokens[0] for w in found]), minlength=len(probabilities)
    )
    top = probabilities.topk(20).indices
    expected = probabilities[top] * 2000
    assert ((counts[top] - expected).abs() < 5 * expected.sqrt() + 1).all()


def test_a_failure_in_the_decoding_thread_reaches_the_caller(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    with pytest.raises(IndexError):
        generate(policy, [((10**6,), 1)], Sampling(4))


def test_decoding_begins_when_the_first_prompts_are_prefilled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(tmp_path)
    requests = [((5, 6, 7, 8 + n), 2) for n in range(6)]
    at_once = generate(policy, requests, Sampling(12))
    monkeypatch.setitem(prefill_file.PREFILL_TOKENS, "cpu", 8)
    calls: list[str] = []
    add, step = KVCache.add, KVCache.step

    def adding(self: KVCache, prompts: Any, *given: Any) -> Any:
        calls.append(f"add {len(prompts)}")
        return add(self, prompts, *given)

    def stepping(self: KVCache, tokens: Any) -> Any:
        calls.append("step")
        return step(self, tokens)

    monkeypatch.setattr(KVCache, "add", adding)
    monkeypatch.setattr(KVCache, "step", stepping)
    engine = TorchEngine(policy)
    engine._cache_kind = policy.model, "kv_cache"
    in_pieces = generate(policy, requests, Sampling(12), engine=engine)
    assert calls[:5] == ["add 4", "step", "add 4", "step", "add 4"], "two prompts of four tokens"
    tokens = [sorted((w.request, w.completion.tokens) for w in one) for one in (at_once, in_pieces)]
    assert tokens[0] == tokens[1]
    assert engine.tokens_generated == sum(len(one) for _, one in tokens[0])
