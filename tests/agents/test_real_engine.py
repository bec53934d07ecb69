"""Agents before the torch engine: its ids, log-probabilities and versions are the learner's."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from assay.agents.server import PolicyServer
from assay.agents.session import CallSession, ServedPolicy
from assay.agents.tree import balance
from assay.config.sections import PolicySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.engines.torch import TorchEngine
from assay.environments import CallLimits
from assay.policy.load_model import Policy, load_policy
from assay.rollout.samples import to_samples
from assay.types import Completion, Rollout, Score, Task
from tests.agents.served import USER, url_of
from tests.agents.test_endpoint import in_loop
from tests.integrations.test_serve_policy import MARKS, TEMPLATE
from tests.policies import checkpoint, seven_tokens


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = checkpoint(tmp_path_factory.mktemp("model"), "llama", TEMPLATE, special=MARKS)
    return load_policy(PolicySettings(model=str(folder), device="cpu"))


class Recorded:
    """A torch engine that notes what it sampled."""

    def __init__(self, policy: Policy) -> None:
        self.engine = TorchEngine(policy)
        self.completions: list[Completion] = []

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        self.completions.append(await self.engine.generate(request, sampling))
        return self.completions[-1]


def test_the_learner_gets_what_the_engine_sampled_over_a_change_of_the_weights(
    policy: Policy,
) -> None:
    @in_loop
    async def work() -> None:
        recorded, server = Recorded(policy), PolicyServer()
        served = ServedPolicy(recorded.generate, policy.chat, Sampling(16, temperature=0.7), 2048)
        session = CallSession(served, 3, CallLimits(10, 600.0))
        async with server.open(session) as address, httpx2.AsyncClient(timeout=60) as http:
            talk: list[Any] = [USER]
            for version in range(3):
                await recorded.engine.load(policy, version)
                body = {"messages": talk, "temperature": 0}
                answer = await http.post(f"{url_of(address)}/chat/completions", json=body)
                talk += [answer.json()["choices"][0]["message"], USER]
        await recorded.engine.halt()
        turns = session.tree.turns()
        (sample,) = to_samples([[Rollout(Task("t", "", (), ""), turns, Score(1.0))]])
        expected = [pair for each in recorded.completions
                    for pair in zip(each.tokens, each.logprobs, strict=True)]  # fmt: skip
        learned = [(token, logprob) for token, logprob, on in
                   zip(sample.tokens, sample.logprobs, sample.mask, strict=True) if on]  # fmt: skip
        assert [token for token, _ in learned] == [token for token, _ in expected]
        assert [n for _, n in learned] == pytest.approx([n for _, n in expected], rel=1e-6)
        assert [{*turn.completion.versions} for turn in turns] == [{0}, {1}, {2}]
        assert sum(balance(session.tree).values()) == len(expected)

    work()


def test_the_tokens_of_a_call_that_is_cancelled_are_counted() -> None:
    @in_loop
    async def work() -> None:
        engine, lost = TorchEngine(seven_tokens()), list[int]()
        request = GenerationRequest((1, 2, 3), 0, lose=lost.append)
        work = asyncio.create_task(engine.generate(request, Sampling(1900)))
        while not engine.tokens_generated:
            await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert len(lost) == 1
        assert 0 < lost[0] < 1900
        await engine.halt()

    work()
