"""Real agents of others: what they leave is judged, and the learner gets what was sampled."""

from __future__ import annotations

import pytest

from tests.agents.outside import (
    LANGGRAPH,
    MINI,
    OPENAI_AGENTS,
    SMOLAGENTS,
    SUBMIT,
    WRITE,
    OutsideAgent,
    in_characters,
    play,
)
from tests.agents.served import chat
from tests.rollout.talks import RIGHT

pytestmark = pytest.mark.agents
FENCED = f"```python\n{RIGHT}```"
HELLO = "print('hello')"


@pytest.mark.parametrize(
    "options", [(), ("--model-class", "litellm_response")], ids=["chat", "responses"]
)
@pytest.mark.parametrize("template", ["qwen2_5", "qwen3"])
def test_mini(template: str, options: tuple[str, ...]) -> None:
    thought = "<think>\nHm.\n</think>\n\n" if template == "qwen3" else ""
    texts = [
        f"{thought}I look.\n{MINI.call('ls -la')}\n{MINI.call('pwd')}",
        MINI.call(WRITE),
        MINI.call(SUBMIT),
    ]
    using = chat(template)
    played = play(
        MINI.command(*options),
        *(in_characters(text, using) for text in texts),
        answer=MINI.answer,
        using=using,
    )
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 1


@pytest.mark.parametrize(
    "words", [("responses",), ("chat",), ("responses", "stream"), ("chat", "stream")], ids="-".join
)
@pytest.mark.parametrize("agent", [OPENAI_AGENTS, LANGGRAPH], ids=lambda agent: agent.package)
@pytest.mark.parametrize("template", ["qwen2_5", "qwen3"])
def test_others(agent: OutsideAgent, words: tuple[str, ...], template: str) -> None:
    using = chat(template)
    thought = "<think>\nHm.\n</think>\n\n" if template == "qwen3" else ""
    texts = [
        f"{thought}I look.\n{agent.call(HELLO)}\n{agent.call(HELLO)}",
        agent.call(HELLO),
        FENCED,
    ]
    played = play(
        agent.command(*words),
        *(in_characters(text, using) for text in texts),
        answer=agent.answer,
        using=using,
    )
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 1


def test_smol_tools() -> None:
    agent = SMOLAGENTS
    texts = [
        agent.call(HELLO),
        agent.call(HELLO) + agent.call(HELLO),
        agent.call(RIGHT, "final_answer"),
    ]
    played = play(agent.command(), *map(in_characters, texts))
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 3


def test_smol_code() -> None:
    agent = SMOLAGENTS
    texts = [
        "I look.\n<code>\nprint(run_python('print(3)'))\n</code>",
        f"<code>\nfinal_answer({RIGHT!r})\n</code>",
    ]
    played = play(agent.command("code"), *map(in_characters, texts))
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 2
