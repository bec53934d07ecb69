"""Rollouts come back from their Parquet file as they were tracked."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyarrow import parquet
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from assay.policy.tokenizer import encode, vocabulary
from assay.rollout.samples import to_samples
from assay.tools import ToolCall
from assay.trackers.rollouts import VOCABULARY, RolloutTracker, schema, write_vocabulary
from assay.types import (
    Check,
    Completion,
    Execution,
    Rollout,
    Score,
    Task,
    TestOutcome,
    Turn,
    Verdict,
)


def task(name: str) -> Task:
    return Task(
        id=name, prompt=f"write {name}", checks=(Check("assert f(1) == 2"),), entry_point="f"
    )


def turn(text: str, verdict: Verdict, *, output: str = "") -> Turn:
    written = Completion(text, (7, 8, 9), (-0.5, -0.25, -1.0), "stop", versions=(3, 3, 4))
    execution = Execution(
        verdict, passed=1, total=2, detail="check 2", output=output, cpu_seconds=0.125
    )
    return Turn(
        prompt_tokens=(1, 2), completion=written, program="def f(x): ...", execution=execution
    )


def judged(name: str, reward: float, *turns: Turn) -> Rollout:
    score = Score(reward, {"tests": reward - 0.25, "length": 0.25})
    return Rollout(task=task(name), turns=turns, score=score, seconds=2.5)


def test_a_rollout_comes_back_with_its_text_numbers_verdict_and_parts(tmp_path: Path) -> None:
    tracker = RolloutTracker(tmp_path, start_step=0)
    tracker.rollouts(12, [[judged("a", 0.75, turn("answer", Verdict.WRONG, output="é\n"))]])
    [row] = parquet.read_table(tmp_path / "rollouts" / "step_000012.parquet").to_pylist()
    assert row == {
        "step": 12,
        "task_id": "a",
        "group": 0,
        "index": 0,
        "turn": 0,
        "seconds": 2.5,
        "prompt": "write a",
        "completion": "answer",
        "program": "def f(x): ...",
        "verdict": "wrong",
        "passed": 1,
        "total": 2,
        "detail": "check 2",
        "output": "é\n",
        "observation": "",
        "reward": 0.75,
        "parts": [("tests", 0.5), ("length", 0.25)],
        "tokens": [7, 8, 9],
        "logprobs": [-0.5, -0.25, -1.0],
        "ended": "stop",
        "version": 3,
        "cpu_seconds": 0.125,
        "failure": None,
        "held_out": None,
        "stderr": "",
        "forgeable": False,
        "length": 3,
        "prompt_tokens": [1, 2],
        "checks": [{"input": "assert f(1) == 2", "expected": "2", "hidden": True}],
        "tags": [("language", "python")],
        "tests": [],
        "calls": [],
        "advantages": None,
        "cause": "program",
        "agent_calls": None,
        "agent_call_count": None,
        "unlearned": None,
    }


def test_the_prompt_and_the_checks_of_a_group_are_kept_once(tmp_path: Path) -> None:
    wrong, right = turn("first", Verdict.WRONG), turn("second", Verdict.PASS)
    groups = [[judged("a", 1.0, wrong, right), judged("a", 0.5, wrong, right)]]
    RolloutTracker(tmp_path, start_step=0).rollouts(1, groups)
    rows = parquet.read_table(tmp_path / "rollouts" / "step_000001.parquet").to_pylist()
    assert [row["prompt_tokens"] for row in rows] == [[1, 2], [1, 2], None, [1, 2]]
    assert [bool(row["checks"]) for row in rows] == [True, False, False, False]


def test_tests_calls_and_tags_are_kept(tmp_path: Path) -> None:
    tests = (
        TestOutcome("t.py::a", "passed", 0.5, is_fix=False),
        TestOutcome("t.py::b", "failed", 0.25, is_fix=True, detail="E  assert \udc80"),
    )
    execution = Execution(Verdict.WRONG, passed=1, total=2, tests=tests)
    calls = (
        ToolCall("bash", {"command": "ls \ud800"}), ToolCall("", detail="no JSON"),
        ToolCall("find", {"é": ["é", None], "most": 5}),
    )  # fmt: skip
    one = replace(turn("x", Verdict.WRONG), execution=execution, calls=calls, results=("a.py",))
    rollout = judged("a", 0.5, one)
    rollout = replace(rollout, task=replace(rollout.task, tags={"difficulty": "hard"}))
    RolloutTracker(tmp_path, start_step=0).rollouts(1, [[rollout]])
    [row] = parquet.read_table(tmp_path / "rollouts" / "step_000001.parquet").to_pylist()
    assert [(one["name"], one["is_fix"], one["detail"]) for one in row["tests"]] == [
        ("t.py::b", True, "E  assert ?"), ("t.py::a", False, ""),
    ]  # fmt: skip
    assert row["calls"] == [
        {"name": "bash", "arguments": [("command", "ls ?")], "detail": "", "result": "a.py"},
        {"name": "", "arguments": [], "detail": "no JSON", "result": ""},
        {"name": "find", "arguments": [("é", '["é", null]'), ("most", "5")], "detail": "",
         "result": ""},
    ]  # fmt: skip
    assert row["tags"] == [("language", "python"), ("difficulty", "hard")]


def test_a_check_that_nests_too_deep_to_be_shown_in_parts_is_kept_whole(tmp_path: Path) -> None:
    source = f"assert f(1) == {'1 + ' * 900}1"
    rollout = judged("a", 1.0, turn("x", Verdict.PASS))
    rollout = replace(rollout, task=replace(rollout.task, checks=(Check(source),)))
    RolloutTracker(tmp_path, start_step=0).rollouts(1, [[rollout]])
    [row] = parquet.read_table(tmp_path / "rollouts" / "step_000001.parquet").to_pylist()
    assert row["checks"] == [{"input": source, "expected": "", "hidden": True}]


def test_the_advantages_are_those_of_the_learner_turn_by_turn(tmp_path: Path) -> None:
    wrong, right = turn("first", Verdict.WRONG), turn("second", Verdict.PASS)
    later = replace(right, prompt_tokens=(1, 2, 7, 8, 9, 5))
    lost = Rollout(task("a"), (), None, failure="the judge died")
    groups = [
        [judged("z", 1.0, wrong)] * 2,
        [
            lost,
            judged("a", 1.0, wrong, later),
            judged("a", 0.0, wrong, right),
            judged("a", 0.5, right),
        ],
    ]
    samples = to_samples([[], groups[1]])
    assert [one.place for one in samples] == [(1, 1, 0), (1, 2, 0), (1, 2, 1), (1, 3, 0)]
    joined = [0.0, 0.0, 2.0, 2.0, 2.0, 0.0, 4.0, 4.0, 5.0]
    made = [joined, *([0.0, 0.0] + [value] * 3 for value in (-1.0, -2.0, 0.0))]
    samples = [replace(s, advantages=a) for s, a in zip(samples, made, strict=True)]
    RolloutTracker(tmp_path, start_step=0).rollouts(1, groups, samples[::-1])
    rows = parquet.read_table(tmp_path / "rollouts" / "step_000001.parquet").to_pylist()
    assert [row["advantages"] for row in rows] == [
        None, None, None, [2.0], [4.0, 4.0, 5.0], [-1.0], [-2.0], [0.0],
    ]  # fmt: skip


def test_the_vocabulary_gives_back_texts_that_tokens_cut_inside_a_character(tmp_path: Path) -> None:
    tokenizer = byte_level_tokenizer()
    write_vocabulary(tmp_path, vocabulary(tokenizer))
    pieces = parquet.read_table(tmp_path / VOCABULARY)["bytes"].to_pylist()
    text = "def f():\n    return 'é→😀'  # two spaces"
    assert b"".join(pieces[token] for token in encode(tokenizer, text)).decode() == text
    assert pieces[tokenizer.eos_token_id] == b"<end>"


def byte_level_tokenizer() -> Any:
    alphabet = ByteLevel.alphabet()
    model = Tokenizer(BPE({one: n for n, one in enumerate(sorted(alphabet))}, []))
    model.pre_tokenizer, model.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    return PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<end>")


def test_rollouts_are_numbered_by_group_place_and_turn(tmp_path: Path) -> None:
    wrong, right = turn("first", Verdict.WRONG), turn("second", Verdict.PASS)
    groups = [
        [judged("a", 1.0, wrong, right), judged("a", 0.5, wrong)],
        [judged("b", 0.5, wrong)],
        [judged("a", 0.0, wrong)],
    ]
    RolloutTracker(tmp_path, start_step=0).rollouts(1, groups)
    rows = parquet.read_table(tmp_path / "rollouts" / "step_000001.parquet").to_pylist()
    assert [
        (row["task_id"], row["group"], row["index"], row["turn"], row["prompt"]) for row in rows
    ] == [
        ("a", 0, 0, 0, "write a"),
        ("a", 0, 0, 1, None),
        ("a", 0, 1, 0, "write a"),
        ("b", 1, 0, 0, "write b"),
        ("a", 2, 0, 0, "write a"),
    ]


def test_a_rollout_lost_to_the_machine_is_one_row_without_a_reward(tmp_path: Path) -> None:
    lost = Rollout(task=task("a"), turns=(), score=None, failure="the judge died")
    RolloutTracker(tmp_path, start_step=0).rollouts(1, [[lost]])
    [row] = parquet.read_table(tmp_path / "rollouts" / "step_000001.parquet").to_pylist()
    assert (row["failure"], row["reward"], row["parts"], row["verdict"]) == (
        "the judge died",
        None,
        None,
        None,
    )


def test_output_that_is_not_unicode_loses_one_character_and_not_the_file(tmp_path: Path) -> None:
    RolloutTracker(tmp_path, start_step=0).rollouts(
        1, [[judged("a", 1.0, turn("x", Verdict.PASS, output="a\ud800b"))]]
    )
    [row] = parquet.read_table(tmp_path / "rollouts" / "step_000001.parquet").to_pylist()
    assert row["output"] == "a?b"


def test_a_resumed_run_keeps_the_steps_up_to_its_checkpoint(tmp_path: Path) -> None:
    first = RolloutTracker(tmp_path, start_step=0)
    for step in (1, 2, 3):
        first.rollouts(step, [[judged("a", 1.0, turn("x", Verdict.PASS))]])
    (tmp_path / "rollouts" / ".step_000004.parquet.0badcafe.partial").write_bytes(b"half")
    RolloutTracker(tmp_path, start_step=2)
    names = sorted(file.name for file in (tmp_path / "rollouts").iterdir())
    assert names == ["step_000001.parquet", "step_000002.parquet"]


def test_files_with_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    for name in ("step_old.parquet", "step_000002.parquet", "step_000001.parquet"):
        (tmp_path / "rollouts" / name).touch()
    RolloutTracker(tmp_path, start_step=1)
    names = sorted(file.name for file in (tmp_path / "rollouts").iterdir())
    assert names == ["step_000001.parquet", "step_old.parquet"]


def test_the_page_of_the_viewer_has_every_column_of_the_files_with_its_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "viewer.md").read_text()
    table = page[page.index("### Columns of the rollouts") :].partition("\n\nA group's")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    shown = [(name, kind) for names, kind, _ in rows for name in re.findall(r"`(\w+)`", names)]
    kinds = {field.name: str(field.type).replace("<item: ", "<") for field in schema()}
    assert dict(shown) == kinds
    assert len(shown) == len(kinds)
