"""Environments from settings: what is refused, what is listed, what an own one looks like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay import environments
from assay.cli import app
from assay.errors import DataError, SettingsError
from assay.evaluate import evaluate_model
from assay.registry import load_plugins
from assay.tasks import task_from_dict
from assay.types import Check, Task, Verdict
from tests.rollout.talks import ADD, RIGHT, WRONG, talk

PAGE = (Path(__file__).parent.parent.parent / "docs" / "environments.md").read_text()


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"name": "repairs"}, "unknown environment 'repairs'; did you mean 'repair'?"),
        (
            {"name": "repair", "turnss": 3},
            r"environment\.turnss.*did you mean 'environment\.turns'",
        ),
        ({"name": "repair", "turns": "three"}, r"environment\.turns.*whole number"),
        ({"name": "single_turn", "turns": 3}, r"environment\.turns"),
        ({"name": "python_tool", "turns": 1}, r"environment\.turns.*greater than or equal to 2"),
        ({"turns": 3}, r"`environment\.name` is missing"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_hint(table: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        environments.build(table)


SERVICES = ("http://judge:8080",)
MINE = """
{future}
from assay import environments
from assay.environments import Conversation, LocalConversation, environment
class Mine(LocalConversation): pass
@environment
async def {name}(conversation: {asks}, *, turns: int = 2) -> None:
    "Mine."
"""


@pytest.mark.parametrize("name", [*environments.environments])
def test_an_environment_that_runs_programs_is_refused_where_services_judge(name: str) -> None:
    environments.build({"name": name})
    if name in ("python_tool", "shell", "program_with_box"):
        with pytest.raises(SettingsError, match=rf"{name}.*judge\.servers"):
            environments.build({"name": name}, SERVICES)
    else:
        environments.build({"name": name}, SERVICES)


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
@pytest.mark.parametrize(
    ("asks", "refused"),
    [("Conversation", False), ("LocalConversation", True), ("Mine", True), ("object", False)],
)
def test_an_own_environment_says_by_a_type_that_it_runs_programs(
    asks: str, refused: bool, future: str, tmp_path: Path
) -> None:
    name = f"runs_{asks}_{bool(future)}".lower()
    (tmp_path / "mine.py").write_text(MINE.format(future=future, name=name, asks=asks))
    load_plugins(["mine.py"], tmp_path)
    built = environments.build({"name": name, "turns": 3})
    assert built.runs_programs is refused
    assert built.turns == 3


TABLES = """
steps = 2
[policy]
model = "tiny"
[tasks]
train = ["drills"]
[algorithm]
name = "grpo"
[environment]
name = "python_tool"
[judge]
servers = ["http://127.0.0.1:9"]
"""


@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_command_refuses_it_in_one_line_before_it_asks_a_service(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text(TABLES)
    words = [command, str(tmp_path / "run.toml"), "--folder", str(tmp_path / "runs")]
    with pytest.raises(SettingsError, match=r"python_tool.*judge\.servers") as refused:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_repair_needs_one_task_with_a_visible_check() -> None:
    hidden = Task("t", "", (Check("assert f() == 1"),), "f")
    repair = environments.build({"name": "repair"})
    environments.require_fit(repair, [hidden, ADD], "mine.jsonl")
    environments.require_fit(environments.build({"name": "single_turn"}), [hidden], "mine.jsonl")
    with pytest.raises(
        DataError, match=r"'repair' needs a visible check, and no task of 'mine\.jsonl' has one"
    ):
        environments.require_fit(repair, [hidden, hidden], "mine.jsonl")


REPORTED = task_from_dict({
    "format": "assay", "id": "words/0", "prompt": "Say cat backwards.\n", "entry_point": "",
    "checks": [{"task_data": "tac"}],
})  # fmt: skip


@pytest.mark.parametrize("others", [[], [ADD]])
@pytest.mark.parametrize("name", ["single_turn", "repair", "python_tool", "patch"])
def test_tasks_of_which_an_agent_reports_the_reward_need_an_environment_that_takes_it(
    name: str, others: list[Task]
) -> None:
    built = environments.build({"name": name})
    with pytest.raises(DataError, match=r"'words/0' of 'mine\.jsonl'.*takes no report") as refused:
        environments.require_fit(built, [*others, REPORTED], "mine.jsonl")
    assert "\n" not in str(refused.value)
    program = environments.build({"name": "program", "command": ["true"]})
    environments.require_fit(program, [*others, REPORTED], "mine.jsonl")


def test_a_single_turn_is_one_reply_under_all_checks() -> None:
    rollout, asked = talk(WRONG, environment={"name": "single_turn"})
    assert len(asked) == 1
    assert rollout.execution
    assert (rollout.execution.verdict, rollout.execution.total) == (Verdict.WRONG, 2)
    assert rollout.score
    assert rollout.score.total == 0.0


def test_the_list_shows_environments_with_their_first_line() -> None:
    shown = CliRunner().invoke(app, ["list", "environments"]).output
    assert "repair" in shown
    assert "Show how a visible check fails" in shown
    assert "grpo" not in shown


def test_the_environment_on_the_page_is_a_file_that_works(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        re.findall(r"```python think_first.py\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    )
    load_plugins(("own.py",), tmp_path)
    rollout, asked = talk("Plus.", RIGHT, environment={"name": "think_first"})
    assert [turn.observation for turn in rollout.turns] == ["Now the program, please.", ""]
    assert asked[0].stop == ("\n\n",)
    assert rollout.passed


def test_the_page_has_a_row_for_every_environment() -> None:
    every = environments.environments
    own = [name for name in every if every[name].run.__module__.startswith("assay.")]
    assert re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE) == sorted(
        own,
        key=[
            "single_turn",
            "repair",
            "python_tool",
            "shell",
            "patch",
            "program",
            "program_with_box",
        ].index,
    )


def test_an_evaluation_refuses_it_before_anything_is_loaded() -> None:
    changes = {"environment.name": "shell", "judge.servers": SERVICES}
    with pytest.raises(SettingsError, match=r"shell.*judge\.servers"):
        evaluate_model("HuggingFaceTB/SmolLM2-135M", "drills", changes)
