"""Real agents when something breaks between them and the policy: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.engines.base import GenerationRequest, Sampling
from assay.errors import MachineError
from assay.policy.chat import Chat
from assay.types import Completion
from tests.agents.outside import (
    LANGGRAPH,
    MINI,
    OPENAI_AGENTS,
    SMOLAGENTS,
    OutsideAgent,
    play,
    talk_of,
)
from tests.agents.served import Speaker

pytestmark = pytest.mark.agents
AGENTS = [MINI, SMOLAGENTS, OPENAI_AGENTS, LANGGRAPH]
SOON = ("-c", "model.model_kwargs.timeout=3")
"""Seconds for which mini-swe-agent waits."""
RELAY = Path(__file__).parent / "relay.py"


def by_package(agent: Any) -> str:
    return str(getattr(agent, "package", agent))


class Patient(Speaker):
    """Answers its first call when a second request has arrived."""

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        session: Any = request.rollout
        while session.received < 2:
            await asyncio.sleep(0.05)
        return await super().generate(request, sampling)


@pytest.mark.parametrize("agent", AGENTS, ids=by_package)
def test_an_engine_that_fails_once_is_called_again_by_the_agents_client(
    agent: OutsideAgent,
) -> None:
    first, *others = talk_of(agent)
    broken = MachineError("the engine is gone")
    played = play(agent.command(), first, broken, *others, answer=agent.answer)
    played.require_all_learned()
    assert played.rollout.passed
    assert (len(played.sampled), played.received) == (3, 4)
    assert len(played.samples) == agent.samples


def behind_relay(agent: OutsideAgent, drop: int, cut: int, piece: int) -> list[str]:
    words = [sys.executable, str(RELAY), *map(str, (drop, cut, piece))]
    return [*words, *agent.command()]


@pytest.mark.parametrize(("cut", "piece"), [(2, 4096), (0, 16)], ids=["cut", "slow"])
@pytest.mark.parametrize("agent", AGENTS, ids=by_package)
def test_an_answer_that_arrives_in_part_or_slowly_is_sampled_once(
    agent: OutsideAgent, cut: int, piece: int
) -> None:
    played = play(behind_relay(agent, 0, cut, piece), *talk_of(agent), answer=agent.answer)
    played.require_all_learned()
    assert played.rollout.passed
    assert (len(played.sampled), played.received) == (3, 3 + cut)
    assert len(played.samples) == agent.samples


@pytest.mark.parametrize("agent", AGENTS, ids=by_package)
def test_a_connection_that_drops_while_the_policy_samples_is_joined_by_the_retry(
    agent: OutsideAgent,
) -> None:
    command = behind_relay(agent, 1, 0, 4096)
    played = play(command, *talk_of(agent), answer=agent.answer, engine=Patient)
    played.require_all_learned()
    assert played.rollout.passed
    assert (len(played.sampled), played.received) == (3, 4)
    assert len(played.samples) == agent.samples


@pytest.mark.parametrize(
    ("agent", "words"),
    [(MINI, SOON), (MINI, ("--model-class", "litellm_response", *SOON))],
    ids=["with a header", "without"],
)  # fmt: skip
def test_a_client_that_gives_up_too_early_joins_its_own_call(
    agent: OutsideAgent, words: tuple[str, ...]
) -> None:
    played = play(agent.command(*words), *talk_of(agent), answer=agent.answer, engine=Patient)
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 1


def flagging(flag: Path) -> Callable[[Sequence[Any], Chat], Speaker]:
    """An engine that makes a file when its second call begins."""

    class Flagging(Speaker):
        async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
            if self.sampled:
                flag.touch()
            return await super().generate(request, sampling)

    return Flagging


def test_an_agent_that_is_killed_in_mid_call_is_judged_by_what_it_left(tmp_path: Path) -> None:
    flag = tmp_path / "second call"
    killer = f"(until test -e '{flag}'; do sleep 0.1; done; kill -9 $PPID) > /dev/null 2>&1 &"
    written = MINI.call(f"{killer}\n{MINI.program}")
    played = play(
        MINI.command(), written, (asyncio.Event(), "never"), answer=MINI.answer,
        engine=flagging(flag),
    )  # fmt: skip
    assert played.rollout.passed
    (completion,) = played.sampled
    assert played.learned == [*zip(completion.tokens, completion.logprobs, strict=True)]
    assert played.balance == {"tokens/learned": completion.length, "tokens/sealed": 7}
