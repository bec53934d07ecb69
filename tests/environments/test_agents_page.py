"""The agent of docs/agents.md works as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from assay.agents.app import build
from assay.agents.tree import Unlearned
from assay.environments import environments
from tests.rollout.talks import RIGHT, talk

PAGE = (Path(__file__).parent.parent.parent / "docs" / "agents.md").read_text()


def test_the_pages_agent_shows_an_error_and_leaves_the_second_program(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python agent.py\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len([line for line in source.splitlines() if line.strip()]) <= 30
    agent = tmp_path / "agent.py"
    agent.write_text(source)
    command = [sys.executable, str(agent)]
    environment = {"name": "program", "command": command, "answer": "answer.py"}
    rollout, requests = talk("def f(:\n", RIGHT, environment=environment)
    assert rollout.passed
    assert len(rollout.turns) == 2
    before = requests[0].prompt + rollout.turns[0].completion.tokens
    assert requests[1].prompt[: len(before)] == before
    assert not rollout.unlearned


def test_the_page_names_every_reason_parameter_and_route() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    assert rows >= set(Unlearned)
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert named >= environments["program_with_box"].parameters.keys()
    assert named >= environments["program"].parameters.keys()
    routes = {route.path for route in build({}).routes if route.path.startswith("/v1")}  # type: ignore[attr-defined]
    assert all(route in PAGE for route in routes)
