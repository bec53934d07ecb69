"""Real agents before the torch engine: what it sampled is what the learner gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config.sections import PolicySettings
from assay.engines.base import Sampling
from assay.engines.torch import TorchEngine
from assay.policy.load_model import Policy, load_policy
from assay.types import Sample
from tests.agents.outside import (
    LANGGRAPH,
    MINI,
    OPENAI_AGENTS,
    SMOLAGENTS,
    OutsideAgent,
    play,
    talk_of,
)
from tests.policies import checkpoint
from tests.policy.test_chat_templates import tokenizer_of

pytestmark = pytest.mark.agents
SHORT = ("-c", "agent.instance_template={{task}}")
"""mini-swe-agent's prompt without its advice, which a small model would have to read."""


def random_policy(folder: Path) -> Policy:
    """A model that knows nothing, with a chat template that takes tools."""
    made = checkpoint(folder, "qwen2", tokenizer=tokenizer_of(folder, "qwen2_5"))
    return load_policy(PolicySettings(model=str(made), device="cpu"))


def teach(policy: Policy, sample: Sample) -> None:
    """Train until the policy says by itself what the sample says."""
    tokens = torch.tensor([sample.tokens])
    mask = torch.tensor(sample.mask[1:], dtype=torch.bool)
    optimizer = torch.optim.Adam(policy.model.parameters(), 3e-3)
    policy.model.train()
    for _ in range(600):
        logits = policy.model(tokens).logits[0, :-1][mask]
        loss = torch.nn.functional.cross_entropy(logits, tokens[0, 1:][mask])
        if loss < 0.004:
            break
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    assert loss < 0.004
    policy.model.eval()


@pytest.mark.parametrize(
    ("agent", "words"),
    [(MINI, ()), (SMOLAGENTS, ()), (SMOLAGENTS, ("code",)), (OPENAI_AGENTS, ()), (LANGGRAPH, ())],
    ids=["mini-swe-agent", "smolagents", "smolagents code", "openai-agents", "langgraph"],
)  # fmt: skip
def test_what_a_model_that_knows_nothing_says_is_learned_as_it_was_sampled(
    agent: OutsideAgent, words: Any, tmp_path: Path
) -> None:
    policy = random_policy(tmp_path)
    played = play(
        agent.command(*words), engine=lambda texts, chat: TorchEngine(policy), using=policy.chat,
        answer=agent.answer, sampling=Sampling(40, temperature=0.7),
    )  # fmt: skip
    played.require_all_learned()
    assert played.rollout.score
    assert not played.rollout.passed


@pytest.mark.parametrize(
    ("agent", "words"), [(MINI, SHORT), (LANGGRAPH, ())], ids=["mini-swe-agent", "langgraph"]
)  # fmt: skip
def test_a_model_that_learned_a_rollout_plays_it_by_itself_in_one_sample(
    agent: OutsideAgent, words: Any, tmp_path: Path
) -> None:
    policy = random_policy(tmp_path)
    command = agent.command(*words)
    scripted = play(command, *talk_of(agent), using=policy.chat, answer=agent.answer)
    (sample,) = scripted.samples
    teach(policy, sample)
    played = play(
        command, engine=lambda texts, chat: TorchEngine(policy), using=policy.chat,
        answer=agent.answer, sampling=Sampling(400, temperature=0.2),
    )  # fmt: skip
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.sampled) == 3
    assert len(played.samples) == 1
