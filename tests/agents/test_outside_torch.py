"""Real agents before the torch engine with a model that knows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.config.sections import PolicySettings
from assay.engines.base import Sampling
from assay.engines.torch import TorchEngine
from assay.policy.chat import Chat
from assay.policy.load_model import Policy, load_policy
from tests.agents.outside import LANGGRAPH, MINI, OPENAI_AGENTS, SMOLAGENTS, OutsideAgent, play
from tests.policies import checkpoint
from tests.policy.test_chat_templates import tokenizer_of

pytestmark = pytest.mark.agents


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("model")
    made = checkpoint(folder, "qwen2", tokenizer=tokenizer_of(folder, "qwen2_5"))
    return load_policy(PolicySettings(model=str(made), device="cpu"))


@pytest.mark.parametrize(
    ("agent", "words"),
    [(MINI, ()), (SMOLAGENTS, ()), (SMOLAGENTS, ("code",)), (OPENAI_AGENTS, ()), (LANGGRAPH, ())],
)
def test_torch(agent: OutsideAgent, words: Any, policy: Policy) -> None:
    def engine(texts: Sequence[Any], chat: Chat) -> TorchEngine:
        return TorchEngine(policy)

    played = play(
        agent.command(*words),
        engine=engine,
        using=policy.chat,
        answer=agent.answer,
        sampling=Sampling(40, temperature=0.7),
    )
    print(
        len(played.sampled),
        len(played.samples),
        played.balance,
        [each.text for each in played.sampled][:2],
        played.rollout.score,
    )
    played.require_all_learned()
