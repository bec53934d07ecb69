"""Replies of which nobody can tell what they call: the environments run nothing of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.engines.base import Sampling
from assay.extract.call_formats import call_formats
from assay.types import ToolCall
from tests.environments.repositories import repository
from tests.policy.test_call_formats import FORMATS
from tests.policy.test_tool_templates import chat_of
from tests.rollout.talks import RIGHT, talk

TAGGED = ("qwen3_coder", "glm4_6", "minimax_m2", "deepseek_v3_2", "seed_oss", "minicpm5")
QUOTED = ("qwen2_5", "minimax_m1")
OTHERS = (*TAGGED[1:], *QUOTED)
BODY = "\x00"


def written(name: str, tool: str, argument: str, text: str) -> str:
    return call_formats[FORMATS[name]].block(ToolCall(tool, {argument: text}))


def left_over(name: str, tool: str, argument: str, text: str) -> str:
    """A call whose end may stand in its text, because its closing tags stand there twice."""
    call = written(name, tool, argument, text)
    return call + call.partition(text)[2]


def goes_on(name: str, tool: str, argument: str, text: str) -> str:
    """A call behind whose end code goes on, and the rest of the call behind that."""
    call = written(name, tool, argument, text)
    return f'{call}")\n{text}\n{call.partition(text)[2]}'


def inside_a_text(name: str, tool: str, argument: str, text: str) -> str:
    """A call that holds a whole one, whose text is not quoted."""
    inner = written(name, tool, argument, text)
    return written(name, tool, argument, BODY).replace(BODY, inner).replace("\\u0000", inner)


def cut_off(name: str, tool: str, argument: str, text: str) -> str:
    """A call whose end is missing."""
    return written(name, tool, argument, text).partition(text)[0] + text


def doubtful(name: str, *call: str) -> list[str]:
    """Replies in the template's format of which nobody can tell what they call."""
    ways = (left_over, goes_on, cut_off) if name in TAGGED else (inside_a_text, cut_off)
    return [way(name, *call) for way in ways]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


@pytest.mark.parametrize("name", [*TAGGED, *QUOTED])
def test_python_tool_runs_nothing_of_a_doubtful_reply_and_tells_the_model_why(
    folder: Path, name: str
) -> None:
    probe = written(name, "python", "code", "print('ran' in globals())")
    lines = [
        line for reply in doubtful(name, "python", "code", "ran = 1") for line in (reply, probe)
    ]
    ends = "So.</think>\n\n" if name == "minimax_m2" else ""  # its prompt opens a thought
    rollout, _ = talk(
        *lines, f"{ends}```python\n{RIGHT}```", chat=chat_of(folder, name), sampling=Sampling(2000),
        environment={"name": "python_tool", "tool_calls": "template", "turns": len(lines) + 1},
    )  # fmt: skip
    assert len(rollout.turns) == len(lines) + 1
    for wrong, following in zip(rollout.turns[:-1:2], rollout.turns[1::2], strict=True):
        assert all(call.status != "ok" for call in wrong.calls)
        assert wrong.results == tuple(f"<output>\n{call.detail}\n</output>" for call in wrong.calls)
        assert following.results == ("<output>\nFalse\n</output>",)
    assert rollout.passed


@pytest.mark.parametrize(
    "name", ["qwen3_coder", *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]
)
def test_shell_runs_nothing_of_a_doubtful_reply_and_tells_the_model_why(
    folder: Path, tmp_path: Path, name: str
) -> None:
    probe = written(name, "bash", "command", "ls")
    whole = written(name, "bash", "command", "touch other")
    replies = [*doubtful(name, "bash", "command", "touch ran")]
    if name in QUOTED:
        replies.append(f"{whole}\n{replies[-1]}")
    lines = [line for reply in replies for line in (reply, probe)]
    rollout, _ = talk(
        *lines, task=repository(tmp_path), chat=chat_of(folder, name), sampling=Sampling(2000),
        environment={"name": "shell", "turns": len(lines)},
    )  # fmt: skip
    assert len(rollout.turns) == len(lines)
    for wrong, following in zip(rollout.turns[::2], rollout.turns[1::2], strict=True):
        assert any(call.status != "ok" for call in wrong.calls)
        assert not wrong.results
        assert next(call.detail for call in wrong.calls if call.detail) in wrong.observation
        assert following.results == (
            "<returncode>0</returncode>\n<output>\ncalc.py\ntests\n</output>",
        )
