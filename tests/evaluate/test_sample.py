"""`assay sample` keeps the replies that pass, as demonstrations of their tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay import endpoint as client
from assay.cli import app
from assay.commands.sample import passing_replies
from assay.errors import DataError, SettingsError
from assay.evaluate.sample_file import SampleRow
from assay.tasks import load
from tests.endpoints import Answer, Stub, endpoint, reply
from tests.evaluate.test_screen import PROGRAMS, solving


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.0)
    monkeypatch.chdir(tmp_path)
    Path("programs.jsonl").write_text("\n".join(map(json.dumps, PROGRAMS)))


def sampled(stub: Stub, *words: str) -> Any:
    endpoint_words = ("--engine", "openai", "--url", stub.url, "--samples", "3")
    arguments = ["sample", "hosts/theirs/models/one", "programs.jsonl", "--output", "kept.jsonl"]
    return CliRunner().invoke(app, [*arguments, *endpoint_words, *words])


def test_tasks_that_are_ever_solved_come_back_with_their_replies_and_all_their_checks() -> None:
    tasks = load("programs.jsonl")
    with endpoint(solving(tasks, [0, 1, 3])) as stub:
        done = sampled(stub)
        asked = len(stub.asked)
        again = sampled(stub, "--json")
        assert len(stub.asked) == asked == 9, "what was sampled is not asked for again"
    assert done.exit_code == 0, done.exception
    assert "passed   4 of 9 completions" in done.output
    assert "kept     2 of them, for 2 of 3 tasks, in kept.jsonl" in done.output
    result = json.loads(again.stdout)
    assert (result["passed"], result["kept"], result["tasks"]) == (4, 2, 2)
    assert load("kept.jsonl") == [
        replace(task, demonstrations=(f"```python\n{task.reference}\n```",)) for task in tasks[1:]
    ]


def row(sample: int, reply: str | None, **fields: Any) -> SampleRow:
    """A row whose program is the reply in capitals."""
    solution = (reply or "").upper()
    usual: dict[str, Any] = {"verdict": "pass", "tokens": 5, "truncated": False, "reply": reply}
    return SampleRow("a", sample, solution, **usual | fields)


@pytest.mark.parametrize(
    ("rows", "allow_forgeable", "kept"),
    [
        ([row(1, "y"), row(0, "x")], False, ["x", "y"]),
        ([row(0, "x"), row(1, "X")], False, ["x"]),
        ([row(0, "x", verdict="wrong")], False, None),
        ([row(0, "x", truncated=True)], False, None),
        ([row(0, "x", forgeable=True)], False, None),
        ([row(0, "x", forgeable=True)], True, ["x"]),
        ([row(0, None)], False, None),
    ],
)
def test_a_reply_is_kept_once_if_its_pass_is_proven_and_it_ends_by_itself(
    rows: list[SampleRow], allow_forgeable: bool, kept: list[str] | None
) -> None:
    assert passing_replies(rows, allow_forgeable).get("a") == kept


def test_no_more_replies_of_a_task_are_kept_than_asked_for() -> None:
    programs = iter(["print(sum(map(int, input().split())))", "print(3)", "print(1 + 2)"])

    def answer(path: str, body: dict[str, Any]) -> Answer:
        is_first = "print 0 more" in body["messages"][-1]["content"]
        return reply(f"```python\n{next(programs) if is_first else 'pass'}\n```")

    with endpoint(answer) as stub:
        done = sampled(stub, "--most", "2")
    assert "passed   3 of 9" in done.output, done.exception
    assert "kept     2 of them, for 1 of 3 tasks" in done.output
    assert [len(task.demonstrations) for task in load("kept.jsonl")] == [2]


def test_nothing_to_keep_is_an_error_that_writes_no_file() -> None:
    with endpoint(solving(load("programs.jsonl"), [0, 0, 0])) as stub:
        done = sampled(stub)
    assert isinstance(done.exception, DataError)
    assert not Path("kept.jsonl").exists()


def test_an_environment_of_several_turns_is_refused_before_the_model_is_asked() -> None:
    with endpoint(solving(load("programs.jsonl"), [0, 0, 0])) as stub:
        done = sampled(stub, "--environment.name", "repair")
    assert isinstance(done.exception, SettingsError)
    assert "'environment.name'" in str(done.exception)
    assert not stub.asked
