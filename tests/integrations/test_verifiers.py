"""assay's tasks in verifiers: its loader, its traces, its scoring."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")

ROWS = """\
{"task_id": "double", "prompt": "Double it.", "tests": ["assert d(1) == 2", "assert d(0) == 0"], \
"entry_point": "d", "reference": "def d(x): return 2 * x"}
{"task_id": "false", "prompt": "Triple it.", "tests": ["assert t(1) == 3"], \
"entry_point": "t", "reference": "def t(x): return 2 * x"}
"""


@pytest.fixture
def taskset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "my_code_tasks.py").write_text(
        "from assay.integrations.verifiers import CodeTaskset\n__all__ = ['CodeTaskset']\n"
    )
    (tmp_path / "rows.jsonl").write_text(ROWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = vf.taskset_config_type("my_code_tasks")(
        id="my_code_tasks", tasks=os.fspath(tmp_path / "rows.jsonl")
    )
    return vf.load_taskset(config)


def scored(task: Any, reply: str) -> Any:
    data = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    trace = vf.Trace(task=data, agent=vf.AgentInfo(config=vf.AgentConfig()))
    trace.nodes.append(vf.MessageNode(message=vf.AssistantMessage(content=reply), sampled=True))
    asyncio.run(task.score(trace))
    return trace


def test_the_tasks_load_without_their_tests(taskset: Any) -> None:
    tasks = list(taskset)
    assert [task.data.id for task in tasks] == ["double", "false"]
    assert "Double it." in tasks[0].data.prompt
    assert "assert" not in tasks[0].data.model_dump_json()


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("```python\ndef d(x): return x + x\n```", 1.0),
        ("```python\ndef d(x): return 0\n```", 0.0),
        ("Never.", 0.0),
    ],
)
def test_a_reply_is_worth_what_its_program_passes(taskset: Any, reply: str, reward: float) -> None:
    trace = scored(next(iter(taskset)), reply)
    assert trace.reward == reward
    assert trace.rewards["tests"].score == reward


def test_shares_of_tests_are_a_setting_of_the_task(taskset: Any) -> None:
    task = next(iter(taskset))
    task = type(task)(task.data, type(task.config)(fraction=True))
    assert scored(task, "```python\ndef d(x): return 0\n```").reward == 0.5


def test_validation_runs_the_reference(taskset: Any) -> None:
    assert [asyncio.run(task.validate(None)) for task in taskset] == [True, False]
