"""The in-process engine while it generates: weight updates, late and cancelled requests, and its
end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from assay.config.generation import EngineSettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.open_engine import open_engine
from assay.engines.torch import TorchEngine, decode_loop
from assay.engines.torch import engine as engine_file
from assay.engines.torch.decode_loop import Outbox
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import TransformersCache
from assay.errors import SettingsError
from assay.policy.forward import forward
from assay.policy.load_model import Policy, _compute_head_in_float32, enable_gradient_checkpointing
from assay.train.batch import to_batch
from assay.types import Completion, Sample
from tests.policies import seven_tokens

PROMPTS = [(1, 2, 3), (4, 5), (6, 5, 4, 3, 2)]
SHORT, LONG = Sampling(10), Sampling(150)


@pytest.fixture
def policy() -> Policy:
    return seven_tokens()


@pytest.fixture(autouse=True)
def hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completions are returned the moment they end."""
    monkeypatch.setattr(decode_loop, "HOLD", 0.0)


@pytest.fixture(
    params=[
        "fused",
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("kv_cache", "transformers")),
    ]
)
def cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(engine_file, "choose_cache", lambda model: request.param)
    return str(request.param)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the number of rows of each decode step."""
    found: list[int] = []
    for kind in (KVCache, TransformersCache):

        def counting(self: Any, tokens: torch.Tensor, step: Any = kind.step) -> Any:
            found.append(len(tokens))
            return step(self, tokens)

        monkeypatch.setattr(kind, "step", counting)
    return found


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run `test`, which leaves no thread behind."""

    async def timed() -> None:
        async with asyncio.timeout(60):
            await test

    before = set(threading.enumerate())
    asyncio.run(timed())
    assert set(threading.enumerate()) <= before


def asked(count: int = 1, first: int = 0) -> list[GenerationRequest]:
    return [
        GenerationRequest(prompt, 100 * place + n)
        for place, prompt in enumerate(PROMPTS)
        for n in range(first, count)
    ]


def learned(
    policy: Policy, request: GenerationRequest, completion: Completion, temperature: float = 1.0
) -> torch.Tensor:
    tokens = request.prompt + completion.tokens
    mask = (False,) * len(request.prompt) + (True,) * len(completion.tokens)
    batch = to_batch([Sample(tokens, mask)], 0, policy.device)
    return forward(policy.model, batch, temperature).logprobs[batch.mask].detach()


def changed(policy: Policy) -> Policy:
    """A policy with other weights."""
    other = replace(policy, model=deepcopy(policy.model))
    torch.manual_seed(1)
    for parameter in other.model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.02)
    return other


def copy_into(policy: Policy, other: Policy) -> None:
    policy.model.load_state_dict(other.model.state_dict())


async def begun(
    engine: TorchEngine, requests: list[GenerationRequest]
) -> list[asyncio.Task[Completion]]:
    """Long completions of which about ten tokens are generated, and most are not."""
    long = [asyncio.create_task(engine.generate(request, LONG)) for request in requests]
    await engine.generate(GenerationRequest((3, 3), 7), SHORT)
    assert not any(one.done() for one in long)
    return long


def test_completions_wait_until_more_wait_than_run_or_the_oldest_has_waited_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr("assay.engines.torch.decode_loop.time.monotonic", lambda: clock[0])
    ended = Completion("", (1,), (0.0,), "length", (0,))
    delivered: list[Completion] = []
    outbox = Outbox(lambda row, completion: delivered.append(completion), 10.0)
    for _ in range(2):
        row: Any = None
        outbox.add(row, ended)
        clock[0] += 6.0
    assert outbox.is_due(running=2), "the first has waited for 12 seconds"
    clock[0] -= 3.0
    assert not outbox.is_due(running=2)
    assert outbox.is_due(running=1)
    assert not delivered
    outbox.flush()
    outbox.flush()
    assert delivered == [ended, ended]


def test_when_decoding_fails_completions_that_wait_for_others_are_returned(
    policy: Policy, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_loop, "HOLD", 1e9)
    for kind in (KVCache, TransformersCache):

        def failing(self: Any, tokens: torch.Tensor) -> torch.Tensor:
            raise ValueError("broken")

        monkeypatch.setattr(kind, "step", failing)

    async def test() -> None:
        engine = TorchEngine(policy)
        await engine.load(policy, 0)
        short, *long = await asyncio.gather(
            *(
                engine.generate(GenerationRequest((1, 2), seed), sampling)
                for seed, sampling in enumerate((Sampling(1), LONG, LONG))
            ),
            return_exceptions=True,
        )
        assert isinstance(short, Completion)
        assert [str(one) for one in long] == ["broken", "broken"]

    run(test())


def test_a_halt_returns_the_completions_that_wait_for_others(
    policy: Policy, cache: str, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_loop, "HOLD", 1e9)

    async def test() -> None:
        engine = TorchEngine(policy)
        await engine.load(policy, 0)
        requests = [GenerationRequest((1, 2), seed) for seed in range(3)]
        short, *long = (
            asyncio.create_task(engine.generate(request, sampling))
            for request, sampling in zip(requests, (Sampling(1), LONG, LONG), strict=True)
        )
        while len(steps) < 5:
            await asyncio.sleep(0.001)
        assert not short.done()
        await engine.halt()
        assert len((await short).tokens) == 1
        assert not any(one.done() for one in long)
        await engine.load(policy, 1)
        await asyncio.gather(*long)

    run(test())


@pytest.mark.parametrize("separate_copy", [False, True])
def test_tokens_so_far_stay_and_each_has_the_log_probability_of_its_own_weights(
    policy: Policy, cache: str, separate_copy: bool
) -> None:
    before = replace(policy, model=deepcopy(policy.model))
    after = changed(policy)

    async def test() -> None:
        engine = TorchEngine(policy, separate_copy=separate_copy)
        await engine.load(policy, 3)
        long = await begun(engine, asked(4))
        await engine.halt()
        copy_into(policy, after)
        await engine.load(policy, 4)
        for request, one in zip(asked(4), long, strict=True):
            completion = await one
            assert len(completion.tokens) == len(completion.versions) == 150
            switch = completion.versions.index(4)
            assert 8 <= switch < 150
            assert completion.versions == (3,) * switch + (4,) * (150 - switch)
            assert completion.version == 3
            found = torch.tensor(completion.logprobs)
            old, new = (learned(weights, request, completion) for weights in (before, after))
            assert torch.allclose(found[:switch], old[:switch], atol=1e-4)
            assert torch.allclose(found[switch:], new[switch:], atol=1e-4)
            assert not torch.allclose(old, new, atol=0.05)

    run(test())


def test_a_load_of_the_same_weights_changes_no_token(policy: Policy, cache: str) -> None:
    async def test() -> None:
        engine = TorchEngine(policy)
        undisturbed = await asyncio.gather(
            *(engine.generate(request, LONG) for request in asked(3))
        )
        long = await begun(engine, asked(3))
        for version in (1, 2, 3):
            await engine.load(policy, version)
        again = [await one for one in long]
        assert [one.tokens for one in again] == [one.tokens for one in undisturbed]
        assert {one.versions[0] for one in again} == {0}
        assert {one.versions[-1] for one in again} == {3}

    run(test())


@pytest.mark.parametrize("patch", [None, _compute_head_in_float32, enable_gradient_checkpointing])
def test_a_separate_copy_changes_only_when_weights_are_loaded(
    policy: Policy, patch: Callable[[Any], None] | None
) -> None:
    if patch:
        patch(policy.model)
    after = changed(policy)

    async def test() -> None:
        engine = TorchEngine(policy, separate_copy=True)
        await engine.load(policy, 0)
        (request, *_) = asked()
        first = await engine.generate(request, SHORT)
        before = replace(policy, model=deepcopy(policy.model))
        copy_into(policy, after)
        same = await engine.generate(request, LONG)
        assert same.tokens[:10] == first.tokens
        assert torch.allclose(
            learned(before, request, same), torch.tensor(same.logprobs), atol=1e-4
        )
        await engine.load(policy, 1)
        new = await engine.generate(request, LONG)
        assert torch.allclose(learned(after, request, new), torch.tensor(new.logprobs), atol=1e-4)
        assert not torch.allclose(
            learned(before, request, new), torch.tensor(new.logprobs), atol=0.05
        )

    run(test())


def test_a_cancelled_completion_frees_its_place(
    policy: Policy, cache: str, steps: list[int]
) -> None:
    async def test() -> None:
        engine = TorchEngine(policy, EngineSettings(kv_cache_tokens=1))
        endless = asyncio.create_task(engine.generate(asked()[0], Sampling(3000)))
        waiting = asyncio.create_task(engine.generate(asked()[1], SHORT))
        while len(steps) < 10:
            await asyncio.sleep(0.001)
        assert not waiting.done()
        endless.cancel()
        written = await waiting
        assert len(steps) < 2900
        assert torch.allclose(
            learned(policy, asked()[1], written), torch.tensor(written.logprobs), atol=1e-4
        )

    run(test())


def test_a_completion_that_is_cancelled_while_it_waits_is_never_generated(
    policy: Policy, cache: str, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefilled: list[Any] = []
    for kind in (KVCache, TransformersCache):

        def noting(self: Any, prompts: Any, *sizes: int, add: Any = kind.add) -> Any:
            prefilled.extend(prompts)
            return add(self, prompts, *sizes)

        monkeypatch.setattr(kind, "add", noting)

    async def test() -> None:
        engine = TorchEngine(policy, EngineSettings(kv_cache_tokens=1))
        first = asyncio.create_task(engine.generate(asked()[0], Sampling(40)))
        waiting = [asyncio.create_task(engine.generate(one, SHORT)) for one in asked()[1:3]]
        while len(steps) < 10:
            await asyncio.sleep(0.001)
        waiting[0].cancel()
        await asyncio.gather(first, waiting[1])
        assert asked()[1].prompt not in prefilled
        assert asked()[2].prompt in prefilled

    run(test())


def test_late_requests_join_the_batch_and_get_the_tokens_they_get_alone(
    policy: Policy, cache: str
) -> None:
    late = [GenerationRequest((2, 6, 2, 6), 50 + n) for n in range(5)]

    async def test() -> None:
        engine = TorchEngine(policy)
        alone = [await engine.generate(request, SHORT) for request in late]
        long = await begun(engine, asked(2))
        beside = await asyncio.gather(*(engine.generate(request, SHORT) for request in late))
        assert [one.tokens for one in beside] == [one.tokens for one in alone]
        assert all(one.done() for one in long) == (cache == "transformers"), (
            "which accepts rows only when none is running"
        )
        for request, one in zip(
            [*late, *asked(2)], [*beside, *[await one for one in long]], strict=True
        ):
            assert torch.allclose(
                learned(policy, request, one), torch.tensor(one.logprobs), atol=1e-4
            )

    run(test())


def test_the_kv_cache_grows_with_a_longer_prompt_a_longer_completion_and_more_rows(
    policy: Policy, cache: str
) -> None:
    wide = [GenerationRequest(tuple(range(1, 7)) * 20, 60 + n) for n in range(40)]

    async def test() -> None:
        engine = TorchEngine(policy)
        long = await begun(engine, asked(2))
        beside = await asyncio.gather(
            *(engine.generate(request, Sampling(200)) for request in wide)
        )
        for request, one in zip(
            [*wide, *asked(2)], [*beside, *[await one for one in long]], strict=True
        ):
            assert torch.allclose(
                learned(policy, request, one), torch.tensor(one.logprobs), atol=1e-4
            )

    run(test())


def test_requests_with_different_sampling_run_side_by_side(policy: Policy, cache: str) -> None:
    greedy, hot = Sampling(30, 0.0), Sampling(30, 1.7, top_k=5)

    async def test() -> None:
        engine = TorchEngine(policy)
        both = [(request, sampling) for request in asked(4) for sampling in (greedy, hot)]
        alone = [await engine.generate(*one) for one in both]
        together = await asyncio.gather(*(engine.generate(*one) for one in both))
        assert [one.tokens for one in together] == [one.tokens for one in alone]
        for one, (_, sampling), first in zip(together, both, alone, strict=True):
            assert one.logprobs == pytest.approx(first.logprobs, abs=1e-4), sampling

    run(test())


def test_a_closed_engine_stops_decoding_and_leaves_no_thread(
    policy: Policy, steps: list[int]
) -> None:
    async def test() -> None:
        async with open_engine(policy, EngineSettings()) as engine:
            writing = asyncio.create_task(engine.generate(asked()[0], Sampling(3000)))
            while len(steps) < 10:
                await asyncio.sleep(0.001)
        done = len(steps)
        await asyncio.sleep(0.05)
        assert len(steps) == done < 2900
        writing.cancel()

    run(test())


def test_as_many_completions_run_at_once_as_fit_of_the_longest(policy: Policy) -> None:
    async def test() -> None:
        engine = TorchEngine(policy, EngineSettings(kv_cache_tokens=130))
        await engine.generate(GenerationRequest((1, 2, 3), 0), SHORT)
        assert engine.max_concurrent == 10, "130 / (3 + 10)"
        await engine.generate(GenerationRequest((1, 2, 3), 0), Sampling(20))
        assert engine.max_concurrent == 5
        await engine.load(policy, 1)
        await engine.generate(GenerationRequest((1, 2, 3), 0), Sampling(1))
        assert engine.max_concurrent == 32

    run(test())


def test_a_quantized_model_is_not_copied(policy: Policy) -> None:
    policy.model.is_quantized = True
    TorchEngine(policy)
    for settings, separate_copy in (
        (EngineSettings(dtype="bfloat16"), False),
        (EngineSettings(), True),
    ):
        with pytest.raises(
            SettingsError, match=r"engine\.dtype = 'policy' and rollout\.max_staleness = 0"
        ):
            TorchEngine(policy, settings, separate_copy=separate_copy)
