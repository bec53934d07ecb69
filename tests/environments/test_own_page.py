"""The plug-ins on docs/own.md do what the page says of them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_run_that_has_stalled_gets_sigterm(tmp_path: Path) -> None:
    program = block("stop_early.py", tmp_path)
    rows = ['{"step": 1, "reward/pass_rate": 0.5}\n'] * 30
    (tmp_path / "metrics.jsonl").write_text("".join(rows))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as run:
        subprocess.run([sys.executable, program, tmp_path, str(run.pid)], check=True, timeout=120)
        assert run.wait(timeout=60) == -signal.SIGTERM
