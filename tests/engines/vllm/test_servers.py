"""A real vLLM server generates with the policy's log-probabilities after every weight update,
whatever requests are running.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import MambaConfig

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.vllm.client import Client
from assay.engines.vllm.engine import open_vllm
from assay.engines.vllm.transports.files import Files
from assay.errors import MachineError, SettingsError
from assay.rollout.prompter import Prompter
from assay.types import Completion
from tests.engines.vllm.conftest import SETTINGS, Desk
from tests.policies import TASKS, tiny_policy

pytestmark = pytest.mark.vllm


def prompts_of(desk: Desk, count: int) -> list[tuple[int, ...]]:
    """Prompts of 150 tokens and more, of which several completions share a cached block."""
    chat = desk.policy.chat
    told = [
        Prompter(chat).prompt(TASKS[n]) + Prompter(chat).prompt(TASKS[n + 1])
        for n in range(0, 6, 2)
    ]
    longer = [((prompt * 20)[:150]) for prompt in told]
    return [longer[n % 3] for n in range(count)]


def test_log_probabilities_are_the_policys_after_each_of_twenty_loads(desk: Desk) -> None:
    prompts = prompts_of(desk, 6)
    for _ in range(20):
        desk.run(desk.move())
        written = desk.run(desk.generate(prompts, Sampling(12, 0.8)))
        for prompt, completion in zip(prompts, written, strict=True):
            assert desk.off(prompt, completion, 0.8).max() < 1e-4
            assert set(completion.versions) == {desk.version}
        assert desk.engine.metrics["engine/probe_difference"] < 1e-4


def test_running_requests_continue_on_new_weights_and_each_token_is_exact_under_its_version(
    desk: Desk,
) -> None:
    prompts = prompts_of(desk, 240)
    desk.run(desk.move())
    weights = {
        desk.version: [parameter.detach().clone() for parameter in desk.policy.trainable.values()]
    }

    async def load_meanwhile(wait: float) -> list[Completion]:
        work = asyncio.create_task(desk.generate(prompts, Sampling(100)))
        while not (await asyncio.wait([work], timeout=wait))[0]:
            kept = await desk.move()
            weights[desk.version] = kept
            wait *= 2
        return await work

    def is_split(completion: Completion) -> bool:
        return len(set(completion.versions)) > 1

    # On any machine, some wait ends while requests have tokens already.
    for attempt in range(8):
        written = desk.run(load_meanwhile(0.02 * 2**attempt))
        if any(map(is_split, written)):
            break
    seen: set[int] = set()
    for version, kept in weights.items():
        with torch.no_grad():
            for parameter, then in zip(desk.policy.trainable.values(), kept, strict=True):
                parameter.copy_(then)
        for prompt, completion in zip(prompts, written, strict=True):
            assert list(completion.versions) == sorted(completion.versions)
            own = torch.tensor(completion.versions) == version
            assert not own.any() or desk.off(prompt, completion)[own].max() < 1e-4
            seen |= set(completion.versions)
            assert (
                len(completion.tokens) == 100
                or completion.tokens[-1] in desk.policy.chat.stop_tokens
            )
    assert len(seen) > 1
    assert any(map(is_split, written))


def test_a_server_that_keeps_its_old_weights_is_noticed(
    full: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*given: object) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(Files, "send", nothing)
        with pytest.raises(MachineError, match="still generates with other weights"):
            full.run(full.move())
    full.engine._fleet.servers[0].failure = None
    full.run(full.move())
    with monkeypatch.context() as patched:
        patched.setattr(Files, "send", nothing)
        with pytest.raises(MachineError, match=r"the policy.s log-probabilities changed"):
            full.run(full.move(1e-5))
    full.engine._fleet.servers[0].failure = None
    full.run(full.move())


def test_a_server_that_keeps_the_prefix_cache_of_its_old_weights_is_noticed(
    full: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Client.call

    async def all_but_the_cache(self: Client, path: str, *given: object, **named: object) -> object:
        if path == "/reset_prefix_cache":
            return {"success": True}
        kept = path.replace("mode=abort", "mode=abort&clear_cache=false")
        return await call(self, kept, *given, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Client, "call", all_but_the_cache)
        with pytest.raises(MachineError, match="still generates with other weights"):
            full.run(full.move(0.05))
    full.engine._fleet.servers[0].failure = None
    full.run(full.move())


@pytest.mark.parametrize(
    "sampling", [Sampling(16, 0.7, top_p=0.6), Sampling(16, 1.2, top_k=5), Sampling(16, min_p=0.5)]
)
def test_log_probabilities_are_renormalised_over_the_tokens_that_may_be_sampled(
    full: Desk, sampling: Sampling
) -> None:
    prompts = prompts_of(full, 6)
    for prompt, completion in zip(prompts, full.run(full.generate(prompts, sampling)), strict=True):
        with torch.no_grad():
            logits = full.policy.model(torch.tensor([prompt + completion.tokens])).logits[
                0, len(prompt) - 1 : -1
            ]
        for row, token, found in zip(
            logits / sampling.temperature, completion.tokens, completion.logprobs, strict=True
        ):
            ordered, order = row.softmax(-1).sort(descending=True)
            allowed = torch.ones_like(ordered, dtype=torch.bool)
            if sampling.top_p < 1:
                allowed = ordered.cumsum(0) - ordered < sampling.top_p
            if sampling.top_k:
                allowed = torch.arange(len(ordered)) < sampling.top_k
            if sampling.min_p:
                allowed = ordered >= sampling.min_p * ordered[0]
            assert allowed[(order == token).nonzero()].item(), "it may be sampled"
            assert found == pytest.approx(
                (row.softmax(-1)[token] / ordered[allowed].sum()).log().item(), abs=2e-3
            )


def test_greedy_decoding_takes_the_likeliest_token_each_time(full: Desk) -> None:
    (prompt,) = prompts_of(full, 1)
    (completion,) = full.run(full.generate([prompt], Sampling(6, temperature=0.0)))
    tokens = list(prompt)
    for token in completion.tokens:
        assert token == full.policy.model(torch.tensor([tokens])).logits[0, -1].argmax().item()
        tokens.append(token)
    assert full.off(prompt, completion).max() < 1e-4


def test_stop_tokens_and_the_limit_end_a_completion(full: Desk) -> None:
    prompts = prompts_of(full, 60)
    written = full.run(full.generate(prompts, Sampling(80)))
    assert {completion.ended for completion in written} == {"stop", "length"}
    for completion in written:
        ended_by_token = completion.tokens[-1] in full.policy.chat.stop_tokens
        assert completion.ended == ("stop" if ended_by_token else "length")
        assert len(completion.tokens) == 80 or ended_by_token
        assert not full.policy.chat.stop_tokens & set(completion.tokens[:-1])
        assert completion.text == full.policy.chat.text(completion.tokens)


def test_a_stop_string_ends_a_completion_and_is_cut_from_its_text(full: Desk) -> None:
    chat = full.policy.chat
    prompts = prompts_of(full, 40)
    plain = "".join(
        completion.text for completion in full.run(full.generate(prompts, Sampling(60)))
    )
    ascii = [plain[n : n + 2] for n in range(len(plain)) if plain[n : n + 2].isascii()]
    word = max(sorted(set(ascii)), key=ascii.count)
    written = full.run(full.generate(prompts, Sampling(60), (word,)))
    hit = [completion for completion in written if word in chat.text(completion.tokens)]
    assert hit
    assert all(completion.ended == "stop" for completion in hit)
    assert all(word not in completion.text for completion in written)
    assert all(word not in chat.text(completion.tokens[:-1]) for completion in hit), "at once"
    assert all(len(c.tokens) == len(c.logprobs) == len(c.versions) for c in written)


def test_a_cancelled_completion_is_aborted_on_the_server_too(full: Desk) -> None:
    async def cancel() -> None:
        prompts = prompts_of(full, 20)
        work = asyncio.create_task(full.generate(prompts, Sampling(100, min_p=1e-9)))
        await asyncio.sleep(0.3)
        work.cancel()
        await asyncio.wait([work])
        http = full.engine._fleet.servers[0].client._http
        for _ in range(100):
            told = (await http.get("/metrics")).text.split("\n")
            busy = [
                float(line.split()[-1])
                for line in told
                if line.startswith("vllm:num_requests_running{")
            ]
            if busy == [0.0]:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(busy)

    full.run(cancel())


def test_a_prompt_that_does_not_fit_is_refused_with_what_the_server_says(full: Desk) -> None:
    with pytest.raises(SettingsError, match=r"refuses .* with 400.*256"):
        full.run(full.engine.generate(GenerationRequest((5,) * 300, 0), Sampling(5)))


def test_what_vllm_cannot_serve_is_refused_before_anything_starts(tmp_path: Path) -> None:
    async def open_it(settings: EngineSettings, kind: str) -> None:
        policy = tiny_policy(tmp_path)
        if kind == "narrow":
            policy.model.config.head_dim = 16
        if kind == "mamba":
            policy.model.config = MambaConfig()
        async with open_vllm(policy, settings, tmp_path, 0):
            pass

    with pytest.raises(SettingsError, match="no attention for heads of 16"):
        asyncio.run(open_it(SETTINGS, "narrow"))
    with pytest.raises(SettingsError, match=r"for 'mamba', which has no attention heads"):
        asyncio.run(open_it(SETTINGS, "mamba"))
    with pytest.raises(SettingsError, match=r"'/nowhere/python' has no vLLM: .*engine\.python"):
        asyncio.run(open_it(SETTINGS.model_copy(update={"python": "/nowhere/python"}), "tiny"))
    assert not list(tmp_path.glob("*.log"))


def test_a_server_that_does_not_start_is_reported_with_the_last_line_of_its_log(
    tmp_path: Path,
) -> None:
    async def open_it() -> None:
        settings = SETTINGS.model_copy(update={"arguments": ("--no-such-argument",)})
        policy = tiny_policy(tmp_path)
        async with open_vllm(policy, settings, tmp_path, 0) as engine:
            await engine.load(policy, 0)

    with pytest.raises(
        MachineError, match=r"vllm\.log is: .*unrecognized arguments: --no-such-argument"
    ):
        asyncio.run(open_it())
