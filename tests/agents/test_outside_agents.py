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
    in_characters,
    play,
)
from tests.rollout.talks import RIGHT

pytestmark = pytest.mark.agents


def test_mini() -> None:
    texts = [f"I look.\n{MINI.call('ls -la')}", MINI.call(WRITE), MINI.call(SUBMIT)]
    played = play(MINI.command(), *map(in_characters, texts), answer=MINI.answer)
    played.require_all_learned()
    assert played.rollout.passed
    assert len(played.samples) == 1
