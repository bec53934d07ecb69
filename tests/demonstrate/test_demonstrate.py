"""`assay demonstrate`: rows of conversations that were played and pass, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.cli import explain
from assay.demonstrate.player import converse
from assay.demonstrate.rows import RowFile
from assay.demonstrate.script import Script, ScriptStep, UnfitScriptError, draw_plan
from assay.environments import build
from assay.environments.shell import SUBMIT
from assay.errors import RolloutLostError
from assay.judge import Judge
from assay.judge.patches import unified
from assay.sandbox.box import Box
from assay.sandbox.box_init import BoxSpec
from assay.tasks import load
from tests.demonstrate.shown import commands, demonstrated, ran, row, rows_of, written
from tests.environments.repositories import FIXED, SOURCE, repository
from tests.judge.opened import with_judge


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return written(tmp_path / "tasks.jsonl", row(tmp_path))


def test_a_reference_is_played_in_a_box_and_its_row_is_one_for_sft(
    tasks: Path, tmp_path: Path
) -> None:
    (shown,) = demonstrated(tasks, tmp_path / "out.jsonl")
    first, *others = shown["messages"]
    assert shown["id"] == "calc/0#0.0"
    assert first["content"].startswith("`add` subtracts:")
    assert "To submit, run this command alone" in first["content"]
    assert [message["role"] for message in others] == [
        "assistant", *["tool", "assistant"] * (len(others) // 2)
    ]  # fmt: skip
    assert commands(shown)[-1] == "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    assert all(each["content"].startswith("<returncode>0") for each in others[1::2])
    assert "+    return a + b" in others[-2]["content"], "git diff shows what was written"
    assert shown["tools"][0]["function"]["name"] == "bash"
    (task,) = load(str(tmp_path / "out.jsonl"), judged=False)
    assert task.messages[0].content == first["content"]


def test_the_right_change_is_shown_by_nothing_before_it_is_written(
    tasks: Path, tmp_path: Path
) -> None:
    for shown in demonstrated(tasks, tmp_path / "out.jsonl", "--samples", "6"):
        texts = [json.dumps(message) for message in shown["messages"]]
        first = next(n for n, text in enumerate(texts) if "a + b" in text)
        assert shown["messages"][first]["role"] == "assistant"
        assert first >= 5


def test_scripts_differ_by_the_seed_and_none_is_kept_twice(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    rows = demonstrated(tasks, out, "--samples", "4")
    assert rows == demonstrated(tasks, tmp_path / "again.jsonl", "--samples", "4")
    more = demonstrated(tasks, out, "--samples", "2", "--seed", "1")
    assert more[: len(rows)] == rows
    assert len({tuple(commands(shown)) for shown in rows}) > 1
    replies = {
        json.dumps([m for m in shown["messages"] if m["role"] == "assistant"]) for shown in more
    }
    assert len(replies) == len(more)


def test_equal_tasks_give_one_row(tasks: Path, tmp_path: Path) -> None:
    (task,) = rows_of(tasks)
    written(tasks, task, {**task, "id": "calc/1"})
    plan = "assay.demonstrate.demonstrate.draw_plan"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan, lambda seed, task, number: draw_plan(0, "one", 0))
        result = ran(tasks, tmp_path / "out.jsonl", "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert (summary["kept"], summary["repeated"]) == (1, 1)


def test_a_command_that_was_killed_goes_on_where_it_was(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    rows = demonstrated(tasks, out, "--samples", "3")
    first = out.read_bytes().splitlines(keepends=True)[0]
    out.write_bytes(first + b'{"id": "calc/0#0.1", "mess')
    result = ran(tasks, out, "--samples", "3", "--json")
    assert json.loads(result.stdout)["present"] == 1
    assert json.loads(result.stdout)["kept"] == len(rows) - 1
    assert rows_of(out) == rows
    assert out.read_bytes().startswith(first)


def test_text_calls_are_blocks_and_messages_of_the_user(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    words = ("--tool-calls", "text", "--observations", "json")
    (shown,) = demonstrated(tasks, out, *words)
    first, reply, answer, *_ = shown["messages"]
    assert "tools" not in shown
    assert "```mswea_bash_command" in first["content"]
    assert "```mswea_bash_command\n" in reply["content"]
    assert (answer["role"], json.loads(answer["content"])["returncode"]) == ("user", 0)
    wrong = ran(tasks, out)
    assert refusal(wrong) == (
        2, f"{out} holds rows with --tool-calls text; choose that, or another --out",
    )  # fmt: skip
    assert ran(tasks, out, *words).exit_code == 0


@pytest.mark.parametrize("calls", ["template", "text"])
def test_rows_of_other_observations_are_refused(tasks: Path, tmp_path: Path, calls: str) -> None:
    out = tmp_path / "out.jsonl"
    words = ("--tool-calls", calls, "--observations")
    for form, other in (("xml", "json"), ("json", "xml")):
        shown = demonstrated(tasks, out, *words, form)
        assert refusal(ran(tasks, out, *words, other)) == (
            2, f"{out} holds rows with --observations {form}; choose that, or another --out",
        )  # fmt: skip
        assert demonstrated(tasks, out, *words, form) == shown
        out.unlink()


def test_of_replies_a_file_keeps_digests_alone(tasks: Path, tmp_path: Path) -> None:
    (shown,) = demonstrated(tasks, tmp_path / "out.jsonl")
    with RowFile(tmp_path / "out.jsonl", build({"name": "shell"})) as file:
        assert not file.added({**shown, "id": "another"})
        assert file.added({**shown, "messages": [*shown["messages"], shown["messages"][1]]})
        assert {len(known) for known in vars(file)["_known"]} == {32}


def refusal(result: Any) -> tuple[int, str]:
    """The exit code and line of a command that failed."""
    line, code = explain(result.exception)
    return code, line


def test_tasks_without_a_tree_are_refused_by_one_line_that_says_which_have_a_form(
    tmp_path: Path,
) -> None:
    function = "def one():\n    return 1\n"
    task = {"id": "one", "prompt": "One.", "tests": ["assert one() == 1"], "reference": function}
    tasks = written(tmp_path / "tasks.jsonl", row(tmp_path), task)
    code, line = refusal(ran(tasks, tmp_path / "out.jsonl"))
    assert code == 2
    assert "'one'" in line
    assert "has no `tree`; the environment `shell` needs a repository" in line


def test_what_the_judge_does_not_pass_is_counted_and_not_written(
    tasks: Path, tmp_path: Path
) -> None:
    (right,) = rows_of(tasks)
    wrong = unified({"calc.py": SOURCE}, {"calc.py": SOURCE.replace("a - b", "a * b")})
    absent = unified({"new.py": "a\n"}, {"new.py": "b\n"})
    same = unified({"calc.py": SOURCE}, {"calc.py": FIXED}).replace("a + b", "a - b")
    references = {"wrong": wrong, "absent": absent, "same": same, "none": ""}
    rows = [{**right, "id": name, "reference": text} for name, text in references.items()]
    result = ran(written(tasks, right, *rows), tmp_path / "out.jsonl", "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    counts = {name: summary[name] for name in
              ("kept", "unjudged", "reference does not fit", "no reference")}  # fmt: skip
    assert counts == dict.fromkeys(counts, 1) | {"reference does not fit": 2}
    assert [shown["id"] for shown in rows_of(tmp_path / "out.jsonl")] == ["calc/0#0.0"]
    code, line = refusal(ran(written(tasks, *rows), tmp_path / "empty.jsonl"))
    assert code == 2
    assert not (tmp_path / "empty.jsonl").exists()
    assert "wrong#0.0: unjudged: the task's own reference fails" in line


def test_other_rows_in_the_file_are_refused_and_stay(tasks: Path, tmp_path: Path) -> None:
    out = written(tmp_path / "out.jsonl", {"prompt": "a", "completion": "b"})
    before = out.read_bytes()
    assert refusal(ran(tasks, out))[0] == 2
    assert out.read_bytes() == before
    assert refusal(ran(tasks, tasks))[0] == 2
    for other in (b'{"my": 1}', b'{"my": 1}\n{"my": 2}', b"notes", b""):
        out.write_bytes(other)
        result = ran(written(tmp_path / "none.jsonl", {**rows_of(tasks)[0], "reference": ""}), out)
        assert refusal(result)[0] == 2
        assert out.read_bytes() == other


class FailingJudge(Judge):
    """A judge whose machine loses the second box of three."""

    opened = 0

    @asynccontextmanager
    async def box(self, spec: BoxSpec) -> AsyncIterator[Box]:
        FailingJudge.opened += 1
        if FailingJudge.opened == 2:
            raise RolloutLostError("a box has ended")
        async with super().box(spec) as box:
            yield box


def test_a_machine_that_fails_is_counted_and_named_and_its_rows_come_the_next_time(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr("assay.judge.Judge", FailingJudge)
        code, line = refusal(ran(tasks, out, "--samples", "3", "--slots", "1"))
    assert code == 3
    assert "1 conversation, first calc/0#0.1: a box has ended" in line
    assert [shown["id"][-1] for shown in rows_of(out)] == ["0", "2"]
    assert sorted(shown["id"][-1] for shown in demonstrated(tasks, out, "--samples", "3")) == [
        "0", "1", "2",
    ]  # fmt: skip


def test_a_bug_of_a_tree_is_shown_and_repaired(tasks: Path, tmp_path: Path) -> None:
    (right,) = rows_of(tasks)
    (Path(right["tree"]) / "calc.py").write_text(FIXED)
    bug = unified({"calc.py": FIXED}, {"calc.py": SOURCE})
    (shown,) = demonstrated(written(tasks, {**right, "bug": bug}), tmp_path / "out.jsonl")
    assert "return a - b" in json.dumps(shown["messages"])


def test_a_command_that_fails_ends_a_script_unless_it_may(tmp_path: Path) -> None:
    task, shell = repository(tmp_path), build({"name": "shell"})

    def steps(*, may_fail: bool) -> Script:
        result = yield ScriptStep("I try.", "echo out; false", may_fail)
        assert not result.succeeded
        yield ScriptStep("I submit.", f"echo {SUBMIT}")

    async def played(judge: Judge, may_fail: bool) -> int:
        return len((await converse(task, judge, shell, steps(may_fail=may_fail))).messages)

    assert with_judge(lambda judge: played(judge, True)) == 5
    with pytest.raises(UnfitScriptError, match="a command fails: echo out; false"):
        with_judge(lambda judge: played(judge, False))
