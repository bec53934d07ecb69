"""An agent's calls, as the page and `assay show` get them: the tree, and sums that add up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import SettingsError
from assay.rollout.samples import token_balance
from assay.trackers.rollouts import write_rollouts
from assay.types import AgentCalls, Cause, Rollout
from assay.viewer.folders import RunsFolder
from assay.viewer.questions import ViewerAnswers
from assay.viewer.single_page import export_page
from tests.viewer.made import HOSTILE, RIGHT, made_agent, made_chain, made_rollout, make_run
from tests.viewer.made import write_agents as write

FIRST = len(RIGHT)


def tree_of(runs: Path, group: int = 0, kind: str = "rollouts", step: int = 4) -> Any:
    answers = ViewerAnswers(RunsFolder(runs))
    asked = {"run": "made", "stage": "grpo", "kind": kind, "index": "0"}
    return answers.rollout(asked | {"step": str(step), "group": str(group)})["call_tree"]


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    return make_run(tmp_path / "made") / "grpo"


def test_calls_stand_below_those_they_continue_with_what_became_of_them(
    stage: Path, tmp_path: Path
) -> None:
    write(stage, 4, made_agent("set/agent"))
    tree = tree_of(tmp_path)
    assert [(call["number"], call["level"], call["outcome"]) for call in tree["calls"]] == [
        (0, 1, "learned"), (4, 2, "machine"), (5, 2, "learned"), (1, 1, "auxiliary"),
        (2, 1, "foreign_root"), (3, 2, "foreign_root"),
    ]  # fmt: skip
    assert [call["turn"] for call in tree["calls"]] == [0, None, 1, None, None, None]
    assert [call["sample"] for call in tree["calls"]] == [0, None, 1, None, None, None]
    assert (tree["calls"][0]["retries"], tree["calls"][0]["seconds"]) == (1, 1.5)


def test_the_sums_of_the_calls_are_the_balance_of_the_rollout(stage: Path, tmp_path: Path) -> None:
    rollout = made_agent("set/agent")
    write(stage, 4, rollout)
    tree = tree_of(tmp_path)
    counts = token_balance([[rollout]], [[rollout]])
    assert dict(tree["sums"]) == {
        name.removeprefix("tokens/"): count for name, count in counts.items() if count
    }
    assert tree["sums"][0] == ("learned", 2 * FIRST)
    assert tree["total"] == tree["recorded"] == sum(counts.values())
    assert tree["count"] == 6


@pytest.mark.parametrize(
    ("change", "outcome"),
    [({"cause": Cause.MACHINE}, "machine"), ({"cause": Cause.TASK}, "unjudged"), ({}, "unused")],
)
def test_turns_of_a_rollout_that_is_lost_or_unused_are_not_learned(
    stage: Path, tmp_path: Path, change: dict[str, Any], outcome: str
) -> None:
    rollout = made_agent("set/agent")
    if change:
        rollout = replace(rollout, score=None, failure="lost", **change)
    write_rollouts(stage / "rollouts" / "step_000004.parquet", 4, [[rollout]])
    tree = tree_of(tmp_path)
    assert tree["calls"][0]["outcome"] == outcome
    assert dict(tree["sums"])[outcome] == 2 * FIRST + 4 * (outcome == "machine")
    assert "learned" not in dict(tree["sums"])


def test_calls_that_are_not_listed_are_in_the_sum(stage: Path, tmp_path: Path) -> None:
    rollout = made_agent("set/agent")
    listed = AgentCalls(rollout.agent_calls.calls[:2], 6)
    write(stage, 4, replace(rollout, agent_calls=listed))
    tree = tree_of(tmp_path)
    assert (len(tree["calls"]), tree["count"]) == (2, 6)
    assert (tree["total"], tree["recorded"]) == (2 * FIRST + 48, FIRST + 9)


def test_a_long_conversation_needs_no_deep_recursion(stage: Path, tmp_path: Path) -> None:
    write(stage, 4, made_chain("set/chain", 1000))
    assert [call["level"] for call in tree_of(tmp_path)["calls"]] == [1, *range(1, 1000)]


def rewrite(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the rows of a file, as another program would write it."""
    table = parquet.read_table(file)
    rows = table.to_pylist()
    for row in rows:
        change(row)
    parquet.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)


def spoil(calls: Any) -> Callable[[dict[str, Any]], object]:
    def change(row: dict[str, Any]) -> None:
        if row["agent_calls"]:
            row["agent_calls"] = calls(row["agent_calls"])

    return change


DAMAGE: dict[str, tuple[Any, list[tuple[int, int]]]] = {
    "a call that is null": (lambda calls: [None, *calls[:1]], [(0, 1)]),
    "a parent that stands nowhere": (lambda calls: [calls[0] | {"parent": 77}], [(0, 1)]),
    "a call below itself": (lambda calls: [calls[0] | {"parent": 0}], [(0, 1)]),
    "two calls below each other": (
        lambda calls: [calls[0] | {"parent": 1}, calls[1] | {"parent": 0}], [(0, 1), (1, 2)]),
    "an id twice": (
        lambda calls: [calls[0], calls[4], calls[0] | {"parent": 4}], [(0, 1), (4, 2)]),
    "no ids": (lambda calls: [call | {"id": None} for call in calls], []),
    "only ids": (
        lambda calls: [dict.fromkeys(calls[0], None) | {"id": 3}], [(3, 1)]),
    "numbers that are none": (
        lambda calls: [calls[0] | {"seconds": float("nan"), "tokens": -5}], [(0, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_rows_that_no_run_writes_are_shown_as_far_as_they_are_calls(
    stage: Path, tmp_path: Path, name: str
) -> None:
    change, expected = DAMAGE[name]
    write(stage, 4, made_agent("set/agent"))
    rewrite(stage / "rollouts" / "step_000004.parquet", spoil(change))
    tree = tree_of(tmp_path)
    assert [(call["id"], call["level"]) for call in tree["calls"]] == expected
    assert tree["total"] == 2 * FIRST + 48 != tree["recorded"]
    assert RunsFolder(tmp_path).runs()["made"].damage() == []


def test_what_another_program_wrote_is_bounded_again(stage: Path, tmp_path: Path) -> None:
    write(stage, 4, made_agent("set/agent"))

    def grow(row: dict[str, Any]) -> None:
        if row["agent_calls"]:
            call = row["agent_calls"][1] | {
                "text": "\u202e" * 10_000_000,
                "reason": "r" * 10_000_000,
            }
            row["agent_calls"] = [
                call,
                *(call | {"id": n, "text": "", "reason": ""} for n in range(9, 2000)),
            ]
            row["unlearned"] = [("r" * 10_000_000, None)]

    rewrite(stage / "rollouts" / "step_000004.parquet", grow)
    tree = tree_of(tmp_path)
    assert (len(tree["calls"]), len(tree["calls"][0]["text"])) == (1000, 2000)
    assert tree["calls"][0]["outcome"] == "r" * 40
    assert len(json.dumps(tree)) < 1_000_000


def test_rollouts_without_calls_and_files_without_the_columns_have_no_tree(
    stage: Path, tmp_path: Path
) -> None:
    write(stage, 4, made_rollout("set/a"), made_agent("set/agent"))
    assert tree_of(tmp_path, 0) is None
    assert tree_of(tmp_path, 1)
    file = stage / "rollouts" / "step_000004.parquet"
    table = parquet.read_table(file)
    parquet.write_table(table.drop_columns(["unlearned", "agent_call_count"]), file)
    tree = tree_of(tmp_path, 1)
    assert (tree["count"], tree["total"]) == (6, 2 * FIRST + 48)
    parquet.write_table(table.drop_columns(["agent_calls", "unlearned", "agent_call_count"]), file)
    assert tree_of(tmp_path, 1) is None


def shown(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["show", str(folder), "--calls", *words], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return re.sub(" +", " ", done.stdout)


def test_show_prints_a_line_for_each_rollout_of_the_newest_step(
    stage: Path, tmp_path: Path
) -> None:
    write(stage, 4, made_agent("set/old"))
    write(stage, 5, made_rollout("set/a"), made_agent("set/\x1b[2J\u202e"))
    text = shown(tmp_path)
    assert "set/old" not in text
    assert not {"\x1b", "\u202e"} & set(text)
    (row,) = json.loads(shown(tmp_path, "--json"))["calls"]
    assert (row["stage"], row["kind"], row["step"], row["group"]) == ("grpo", "rollouts", 5, 1)
    assert row["calls"] == 6
    assert row["tokens"] == {
        "learned": 2 * FIRST, "foreign_root": 35, "auxiliary": 9, "machine": 4,
    }  # fmt: skip
    assert "foreign_root 35, auxiliary 9, machine 4" in " ".join(text.split())


def test_show_says_that_no_agent_called_and_names_a_damaged_file(
    stage: Path, tmp_path: Path
) -> None:
    assert "no agent called" in shown(tmp_path)
    file = stage / "rollouts" / "step_000003.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])
    assert json.loads(shown(tmp_path, "--json"))["damage"]


def test_show_gives_calls_or_a_querys_answer(stage: Path) -> None:
    words = ["show", str(stage.parent), "--calls", "--sql", "select 1"]
    with pytest.raises(SettingsError, match="--calls"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_an_exported_page_has_the_calls(stage: Path, tmp_path: Path) -> None:
    hostile: Rollout = made_agent("set/agent", RIGHT, HOSTILE)
    write(stage, 4, hostile)
    export_page(RunsFolder(tmp_path), tmp_path / "page.html")
    (data,) = re.findall(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text())
    tree = json.loads(data)["rollouts"]["made|grpo|rollouts|4|0|0"]["call_tree"]
    assert tree["calls"][4]["text"] == HOSTILE
