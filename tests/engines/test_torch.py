"""The in-process engine: its log-probabilities are the learner's, and it is reproducible."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config.sections import EngineSettings, LoraSettings, PolicySettings
from assay.engines.base import Request, Sampling, Written
from assay.engines.torch import TorchEngine
from assay.engines.torch.sampling import narrowed
from assay.engines.torch.slots import Slots
from assay.errors import MachineError
from assay.policy.forward import token_logprobs
from assay.policy.load import Policy, load_policy
from tests.policies import TASKS, checkpoint, tiny_policy


def write(
    policy: Policy, requests: list[Request], sampling: Sampling, seed: int = 1, settings: EngineSettings | None = None,
    engine: TorchEngine | None = None,
) -> list[Written]:  # fmt: skip
    async def all_of_it() -> list[Written]:
        writer = engine or TorchEngine(policy, settings)
        await writer.load(policy, 7)
        return [written async for written in writer.generate(requests, sampling, seed)]

    return asyncio.run(all_of_it())


def requests_for(policy: Policy, count: int, stop: tuple[str, ...] = ()) -> list[Request]:
    return [Request(policy.chat.prompt(task), count, stop) for task in TASKS[:4]] + [Request((5,), count, stop)]


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


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("kind", ["tiny", "qwen2", "llama+lora", "qwen2+lora"])
def test_log_probabilities_equal_the_learners(tmp_path: Path, kind: str, temperature: float) -> None:
    policy = policy_of(tmp_path, kind)
    requests = requests_for(policy, 6)
    for written in write(policy, requests, Sampling(24, temperature)):
        prompt, completion = requests[written.request].prompt, written.completion
        tokens = torch.tensor([prompt + completion.tokens])
        mask = torch.zeros_like(tokens, dtype=torch.bool)
        mask[:, len(prompt) :] = True
        expected, _ = token_logprobs(policy.model, tokens, torch.ones_like(mask), mask, temperature or 1.0)
        assert torch.allclose(expected[mask], torch.tensor(completion.logprobs), atol=1e-4)


@pytest.mark.parametrize("kind", ["tiny", "qwen2+lora"])
def test_inside_a_nucleus_log_probabilities_are_the_learners_shared_out_over_it(tmp_path: Path, kind: str) -> None:
    policy = policy_of(tmp_path, kind)
    requests = requests_for(policy, 6)
    for written in write(policy, requests, Sampling(16, 0.8, top_p=0.6)):
        prompt, completion = requests[written.request].prompt, written.completion
        with torch.no_grad():
            logits = policy.model(torch.tensor([prompt + completion.tokens])).logits[0, len(prompt) - 1 : -1]
        for row, token, found in zip(logits / 0.8, completion.tokens, completion.logprobs, strict=True):
            probabilities = row.softmax(-1)
            likelier = probabilities[probabilities > probabilities[token]].sum().item()
            assert likelier < 0.6 + 1e-4, "it lies in the nucleus"
            ordered = probabilities.sort(descending=True).values
            size = int((ordered.cumsum(0) - ordered < 0.6).sum())
            expected = probabilities[token] / ordered[:size].sum()
            assert found == pytest.approx(expected.log().item(), abs=2e-3)


def test_every_request_gets_its_completions_with_version_and_end(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    found = write(policy, requests_for(policy, 3), Sampling(5))
    assert sorted((w.request, w.member) for w in found) == [(r, m) for r in range(5) for m in range(3)]
    for written in found:
        completion = written.completion
        ended_by_token = completion.tokens[-1] in policy.chat.stop_tokens
        assert completion.version == 7
        assert completion.ended == ("stop" if ended_by_token else "length")
        assert len(completion.tokens) == 5 or ended_by_token
        assert len(completion.logprobs) == len(completion.tokens)


def test_equal_seeds_write_the_same_and_other_seeds_something_else(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    first, same, other = (write(policy, requests_for(policy, 4), Sampling(12), seed) for seed in (1, 1, 2))
    assert first == same
    assert {w.completion.tokens for w in first} != {w.completion.tokens for w in other}


def rows_held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the number of rows that each addition makes."""
    held: list[int] = []
    add = Slots.add

    def counting(self: Slots, prompts: Any) -> Any:
        found = add(self, prompts)
        held.append(len(self.homes))
        return found

    monkeypatch.setattr(Slots, "add", counting)
    return held


def test_no_more_tokens_than_the_settings_allow_are_held_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tiny_policy(tmp_path)
    requests = [Request((5,) * 6, 7), Request((5,), 6)]
    engine = TorchEngine(policy, EngineSettings(tokens=59))
    held = rows_held(monkeypatch)
    found = write(policy, requests, Sampling(4), engine=engine)
    assert held[:2] == [4, 5], "the probe's; then 59 tokens are 5 rows of 6 + 4, across the groups"
    assert max(held) == 5
    assert sorted((w.request, w.member) for w in found) == [(0, m) for m in range(7)] + [(1, m) for m in range(6)]
    held.clear()
    assert len(write(policy, requests, Sampling(4), settings=EngineSettings(tokens=1))) == 13
    assert held[1:] == [1] * 13, "at least one row at a time"
    held.clear()
    write(policy, [Request((5,), 520)], Sampling(1))
    assert held[1:] == [512, 8]


def test_when_memory_runs_out_the_setting_to_lower_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy(tmp_path)

    def full(*given: object, **named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(policy.model, "forward", full)
    with pytest.raises(MachineError, match=r"cpu has no room for 9 completions .* 11 tokens.*lower engine\.tokens"):
        write(policy, [Request((5,), 20)], Sampling(10), settings=EngineSettings(tokens=100))


def test_greedy_decoding_takes_the_likeliest_token_each_time(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    prompt = policy.chat.prompt(TASKS[0])
    (written,) = write(policy, [Request(prompt, 1)], Sampling(6, temperature=0.0))
    tokens = list(prompt)
    for token in written.completion.tokens:
        assert token == policy.model(torch.tensor([tokens])).logits[0, -1].argmax().item()
        tokens.append(token)


def test_a_stop_string_ends_a_completion_and_is_cut_from_its_text(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    plain = write(policy, requests_for(policy, 4), Sampling(30))
    text = "".join(w.completion.text for w in plain)
    word = next(
        text[n : n + 2] for n in range(20, len(text)) if text[n : n + 2].isascii() and text[n : n + 2].isalnum()
    )
    stopped = write(policy, requests_for(policy, 4, (word,)), Sampling(30))
    assert all(word not in w.completion.text for w in stopped)
    hit = [w for w in stopped if word in policy.chat.text(w.completion.tokens)]
    assert hit
    assert all(w.completion.ended == "stop" for w in hit)


def test_sampled_frequencies_follow_the_policy(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    prompt = policy.chat.prompt(TASKS[0])
    found = write(policy, [Request(prompt, 2000)], Sampling(1))
    with torch.no_grad():
        probabilities = torch.softmax(policy.model(torch.tensor([prompt])).logits[0, -1], -1)
    counts = torch.bincount(torch.tensor([w.completion.tokens[0] for w in found]), minlength=len(probabilities))
    top = probabilities.topk(20).indices
    expected = probabilities[top] * 2000
    assert ((counts[top] - expected).abs() < 5 * expected.sqrt() + 1).all()


def test_the_nucleus_is_the_smallest_set_that_reaches_top_p() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]]).log() + 3
    kept = narrowed(logits, Sampling(1, top_p=0.8)).isfinite()
    assert kept.tolist() == [[True, True, False, False], [False, False, True, True]]
    assert narrowed(logits, Sampling(1, top_p=0.81)).isfinite().sum(-1).tolist() == [3, 3]


def test_a_failure_in_the_decoding_thread_reaches_the_caller(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    with pytest.raises(IndexError):
        write(policy, [Request((10**6,), 1)], Sampling(4))
