"""The in-process engine over several turns: it prefills only what a rollout's last turn has not."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.engines.torch.cache_probe import choose_cache
from assay.engines.torch.kv_cache import KVCache
from assay.engines.torch.prefill import FinishedRows, Prefix
from assay.judge import Judge
from assay.rollout.attempt import make_prompts
from assay.rollout.group import group
from assay.types import Completion
from assay.types import Rollout as RolloutRecord
from tests.engines.test_torch import learned, policy_of
from tests.judge.opened import with_judge
from tests.policies import tiny_policy
from tests.rollout.talks import ADD, context

PROMPTS = [tuple(range(5, 5 + length)) for length in (3, 70, 9, 40)]
SHOWN = [(7, 8, 9), (20,) * 12, (31, 5)]
"""What the environment shows after each turn."""


class Rollout:
    """Stands for one."""


async def turns(
    engine: TorchEngine, prompt: tuple[int, ...], seed: int, sampling: Sampling, keeps: bool = True
) -> list[tuple[tuple[int, ...], Completion]]:
    """The prompt and the completion of each turn of one rollout."""
    rollout, done = Rollout(), []
    for turn, shown in enumerate(SHOWN):
        request = GenerationRequest(prompt, 10 * seed + turn, (), rollout, keeps and turn < 2)
        completion = await engine.generate(request, sampling)
        done.append((prompt, completion))
        prompt = prompt + completion.tokens + shown
    return done


async def all_turns(
    engine: TorchEngine, sampling: Sampling, keeps: bool = True
) -> list[tuple[tuple[int, ...], Completion]]:
    """Those of two rollouts of each prompt."""
    every = (
        turns(engine, prompt, seed, sampling, keeps) for prompt in PROMPTS for seed in range(2)
    )
    return [turn for rollout in await asyncio.gather(*every) for turn in rollout]


def counted(model: Any) -> list[tuple[int, int]]:
    """Filled with the shape of what each forward pass of the model computes: rows and tokens."""
    shapes: list[Any] = []
    model.register_forward_pre_hook(
        lambda module, args, named: shapes.append(tuple(named["input_ids"].shape)),
        with_kwargs=True,
    )
    return shapes


@pytest.mark.parametrize("sampling", [Sampling(12), Sampling(12, 0.0)], ids=["sampled", "greedy"])
@pytest.mark.parametrize(
    "kind",
    [
        "tiny",
        "llama+lora",
        *[pytest.param(k, marks=pytest.mark.long) for k in ("qwen2+lora", "gpt2")],
        "gemma2",
    ],
)
def test_turns_are_the_same_whether_or_not_earlier_ones_are_prefilled_again(
    tmp_path: Path, kind: str, sampling: Sampling
) -> None:
    policy = policy_of(tmp_path, kind)
    kept = asyncio.run(all_turns(TorchEngine(policy), sampling))
    again = asyncio.run(all_turns(TorchEngine(policy), sampling, keeps=False))
    for (prompt, completion), (_, other) in zip(kept, again, strict=True):
        assert completion.tokens == other.tokens
        found = torch.tensor(completion.logprobs)
        assert torch.allclose(found, torch.tensor(other.logprobs), atol=1e-4)
        expected = learned(policy, prompt, completion.tokens)
        assert torch.allclose(expected, found, atol=1e-4)


def test_a_further_turn_prefills_the_last_sampled_token_and_what_is_shown_after_it(
    tmp_path: Path,
) -> None:
    policy = tiny_policy(tmp_path)
    engine = TorchEngine(policy)
    engine.check()
    shapes = counted(policy.model)
    asyncio.run(turns(engine, PROMPTS[1], 1, Sampling(12)))
    assert shapes == [(1, 70), (1, 1 + 3), (1, 1 + 12)]
    shapes.clear()
    done = asyncio.run(turns(engine, PROMPTS[1], 1, Sampling(12), keeps=False))
    assert shapes == [(1, len(prompt)) for prompt, _ in done], "no more turns were to follow"


def test_what_is_kept_ends_with_the_last_turn_and_with_the_rollout(tmp_path: Path) -> None:
    engine = TorchEngine(tiny_policy(tmp_path))

    async def sizes() -> list[int]:
        rollout, found = Rollout(), []
        for more_turns in (True, False, True):
            request = GenerationRequest((5, 6, 7), 1, (), rollout, more_turns)
            await engine.generate(request, Sampling(4, 0.0))
            found.append(len(engine._finished.rows))
        del rollout, request
        gc.collect()
        return [*found, len(engine._finished.rows)]

    assert asyncio.run(sizes()) == [1, 0, 1, 0]


def test_new_weights_never_meet_keys_and_values_of_old_ones(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)

    async def second_turn(
        engine: TorchEngine, first: tuple[int, ...], owner: Rollout
    ) -> Completion:
        return await engine.generate(GenerationRequest((*first, 8, 9), 2, (), owner), Sampling(9))

    async def test() -> None:
        engine, rollout = TorchEngine(policy), Rollout()
        await engine.load(policy, 0)
        asked = GenerationRequest(PROMPTS[1], 1, (), rollout, more_turns=True)
        first = await engine.generate(asked, Sampling(9))
        assert len(engine._finished.rows) == 1
        for parameter in policy.trainable.values():
            parameter.data.mul_(1.5)
        await engine.load(policy, 1)
        assert not engine._finished.rows
        text = PROMPTS[1] + first.tokens
        new = await second_turn(engine, text, rollout)
        fresh = await second_turn(TorchEngine(policy), text, rollout)
        assert new.tokens == fresh.tokens
        assert torch.equal(torch.tensor(new.logprobs), torch.tensor(fresh.logprobs))

    asyncio.run(test())


@torch.inference_mode()
def test_kept_rows_use_what_running_ones_leave_and_the_oldest_go_first(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path).model
    rollouts = [Rollout() for _ in range(4)]
    finished = FinishedRows(60)
    for rollout, size in zip(rollouts, (30, 10, 20), strict=False):
        prefix: Prefix = []
        assert finished.make_room(size)
        finished.rows[rollout] = tuple(range(size)), prefix
    assert finished.make_room(1)
    assert list(finished.rows) == rollouts[1:3]
    cache = KVCache(model, finished=finished, short=0)
    cache.add([(5, 6, 7)], 3, 2, rollouts[3:])
    assert cache.capacity.tokens == 3 + 2
    assert list(finished.rows) == rollouts[1:3]
    cache.add([(5, 6, 7, 8, 9)], 20, 10, [None])
    assert list(finished.rows) == [], "two rows of ten tokens, and two prompts of twenty"
    assert not finished.make_room(cache.capacity.tokens + 1)


@torch.inference_mode()
def test_where_an_earlier_turn_is_rewritten_only_what_is_equal_is_used(tmp_path: Path) -> None:
    model, rollout = tiny_policy(tmp_path).model, Rollout()
    cache = KVCache(model)
    cache.add([PROMPTS[1]], 80, 8, [rollout])
    cache.step(torch.tensor([30]))
    cache.drop({0: (*PROMPTS[1], 30, 31)}, None)
    prompt = (*PROMPTS[1][:50], 9, *PROMPTS[1][51:], 30)
    shapes = counted(model)
    logits = cache.add([prompt], 80, 8, [rollout])
    assert shapes == [(1, len(prompt) - 50)]
    assert torch.allclose(logits, KVCache(model).add([prompt], 80, 8), atol=1e-4)


@torch.inference_mode()
def test_rows_with_and_without_a_kept_start_join_at_once(tmp_path: Path) -> None:
    model, rollouts = tiny_policy(tmp_path).model, [Rollout() for _ in range(4)]
    cache = KVCache(model, short=5)
    cache.add(PROMPTS[:3], 90, 8, rollouts[:3])
    cache.step(torch.tensor([30, 31, 32]))
    ended = {row: (*PROMPTS[row], 30 + row, 40) for row in range(3)}
    assert cache.drop({0: ended[0]}, None) == [2, 1]
    cache.drop({0: ended[2], 1: ended[1]}, None)
    prompts = [
        *(text + shown for text, shown in zip(ended.values(), SHOWN, strict=True)),
        PROMPTS[3],
    ]
    shapes = counted(model)
    logits = cache.add(prompts, 90, 8, rollouts)
    assert shapes == [(1, 40), (3, 1 + 12)], "those without a kept start are prefilled first"
    assert torch.allclose(logits, KVCache(model).add(prompts, 90, 8), atol=1e-4)


def test_a_model_that_continues_a_prefix_wrongly_decodes_with_the_cache_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, take = tiny_policy(tmp_path).model, FinishedRows.take

    def wrong(self: FinishedRows, rollout: object, prompt: tuple[int, ...]) -> Prefix:
        return [(keys.flip(1), values) for keys, values in take(self, rollout, prompt)]

    monkeypatch.setattr(FinishedRows, "take", wrong)
    assert choose_cache(model) == "transformers"


@pytest.mark.long
def test_real_rollouts_leave_nothing_behind_and_prefill_no_turn_twice(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    engine = TorchEngine(policy)
    engine.check()
    shapes = counted(policy.model)

    async def run(judge: Judge) -> list[RolloutRecord]:
        using = context(engine, judge, policy.chat, {"name": "repair"}, sampling=Sampling(6))
        (asked,) = make_prompts([ADD], using.prompter, 6, None)
        return await group(asked, 2, using, seed=1)

    rollouts = with_judge(run, stop_early=False)
    assert [len(rollout.turns) for rollout in rollouts] == [3, 3]
    conversations = sum(len(rollout.turns[-1].prompt_tokens) for rollout in rollouts)
    assert sum(rows * columns for rows, columns in shapes) < conversations
    gc.collect()
    assert not engine._finished.rows
