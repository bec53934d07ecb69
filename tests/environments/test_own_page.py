"""The plug-ins on docs/own.md do what the page says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.callbacks import StageHistory, callbacks
from assay.errors import SettingsError
from assay.registry import load_plugins
from tests.rollout.talks import RIGHT, talk

PAGE = (Path(__file__).parents[2] / "docs" / "own.md").read_text()


def block(name: str, folder: Path) -> Path:
    """A file of the page, written to a folder."""
    (source,) = re.findall(
        rf"^```python {re.escape(name)}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
    )
    (folder / name).write_text(source)
    return folder / name


def test_a_tool_of_ones_own_is_called_and_its_result_shown(tmp_path: Path) -> None:
    load_plugins([block("glossary.py", tmp_path)])
    rollout, asked = talk(
        "<look_up>triple</look_up>", "<look_up>quarter</look_up>", RIGHT,
        environment={"name": "glossary", "unknown": "ask again"},
    )  # fmt: skip
    first, second, last = rollout.turns
    assert [call.arguments for call in first.calls] == [{"word": "triple"}]
    assert "three times a number" in first.observation
    assert "ask again" in second.observation
    assert last.program == RIGHT
    assert rollout.score
    assert rollout.score.total == 1
    assert [one.stop[0] for one in asked[:2]] == ["</look_up>"] * 2
    with pytest.raises(SettingsError, match=r"environment.*turns"):
        talk(RIGHT, environment={"name": "glossary", "turns": 1})


def test_a_stage_whose_replies_are_long_is_ended(tmp_path: Path) -> None:
    load_plugins([block("too_long.py", tmp_path)])
    history = StageHistory("grpo", tmp_path, 10)
    rollout, _ = talk(RIGHT, environment={"name": "single_turn"})
    history.add(1, {"rollout/length": 200.0}, [[rollout]])
    assert callbacks["too_long"](history) == ""
    assert (tmp_path / "longest.txt").read_text().strip() == RIGHT.strip()
    history.add(2, {"rollout/length": 201.0})
    assert callbacks["too_long"](history) == "replies have 201 tokens"
