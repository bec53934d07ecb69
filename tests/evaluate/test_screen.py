"""`assay screen` keeps the tasks that a model solves sometimes, and they load back equal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assay import endpoint as client
from assay import prompts
from assay.cli import app
from assay.errors import DataError, SettingsError
from assay.judge import Job, judge_all
from assay.judge.prepared_task import PreparedTask
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.types import Task
from tests.endpoints import Answer, Stub, endpoint, reply

PROGRAMS = [
    {
        "id": f"sum/{n}", "prompt": f"Read two numbers and print {n} more than their sum.",
        "exchanges": [{"stdin": "1 2\r\n", "stdout": f"{3 + n}\n"}], "tags": {"topic": "sums"},
        "reference": f"print({n} + sum(map(int, input().split())))\n",
    }
    for n in range(3)
]  # fmt: skip
Answers = Callable[[str, dict[str, Any]], Answer]


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.0)
    monkeypatch.chdir(tmp_path)
    Path("programs.jsonl").write_text("\n".join(map(json.dumps, PROGRAMS)))


def solving(tasks: list[Task], passes: list[int], lost: tuple[int, ...] = ()) -> Answers:
    """Solves each task the first so many times; the last request for a `lost` one fails."""
    numbers = {prompts.messages(task)[-1].content: n for n, task in enumerate(tasks)}
    asked = Counter[int]()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        number = numbers[body["messages"][-1]["content"]]
        asked[number] += 1
        if number in lost and asked[number] > 1:
            return 500, {}, {}
        right = asked[number] <= passes[number]
        return reply(f"```python\n{tasks[number].reference if right else 'pass'}\n```")

    return answer


def screen(stub: Stub, spec: str, *words: str) -> Any:
    endpoint = ("--engine", "openai", "--url", stub.url, "--samples", "2")
    arguments = [
        "screen",
        "hosts/theirs/models/one",
        spec,
        "--output",
        "kept.jsonl",
        *endpoint,
        *words,
    ]
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    "spec",
    [
        "drills:train",
        pytest.param("mbpp:train", marks=[pytest.mark.long, pytest.mark.data("mbpp")]),
        pytest.param("programs.jsonl", marks=pytest.mark.long),
    ],
)
def test_tasks_that_are_solved_sometimes_load_back_equal_with_their_rates(spec: str) -> None:
    tasks = load(spec, limit=3)
    with endpoint(solving(tasks, [0, 1, 2])) as stub:
        done = screen(stub, spec, "--limit", "3")
    assert done.exit_code == 0, done.exception
    assert "solved   1 never, 1 sometimes, 1 always" in done.output
    assert "kept     1 of 3 tasks in kept.jsonl" in done.output
    (original,), (row,) = tasks[1:2], map(json.loads, Path("kept.jsonl").read_text().splitlines())
    (again,) = load("kept.jsonl")
    assert row["rate"] == 0.5
    assert again == original
    assert again.tags == original.tags
    digests = {PreparedTask(task, Limits(), False).digest for task in (original, again)}
    assert len(digests) == 1
    programs = (original.reference or "", "pass", "while True: pass")
    one, other = (
        [(found.verdict, found.passed, found.total) for found in executions]
        for executions in (
            judge_all([Job(task, program) for program in programs], Limits(cpu_seconds=0.3))
            for task in (original, again)
        )
    )
    assert one == other
    assert one[0][0] == "pass"


def test_another_gate_asks_the_model_nothing_again_and_takes_the_bounds_in() -> None:
    tasks = load("programs.jsonl")
    with endpoint(solving(tasks, [0, 1, 2])) as stub:
        screen(stub, "programs.jsonl")
        asked = len(stub.asked)
        gates = {"0,0": [0], "0,1": [0, 1], "1,2": [1, 2], "2,2": [2]}
        for gate, kept in gates.items():
            least, most = gate.split(",")
            done = screen(stub, "programs.jsonl", "--at-least", least, "--at-most", most, "--json")
            result = json.loads(done.stdout)
            assert result["kept"] == [tasks[number].id for number in kept]
            assert load("kept.jsonl") == [tasks[number] for number in kept]
    assert len(stub.asked) == asked == 6


def test_a_completion_that_the_machine_lost_is_no_failure_of_the_task() -> None:
    tasks = load("programs.jsonl")
    with endpoint(solving(tasks, [2, 1, 0], lost=(0,))) as stub:
        done = screen(stub, "programs.jsonl", "--json")
    assert json.loads(done.stdout)["kept"] == ["sum/1"]
    assert json.loads(done.stdout)["solved"] == {"never": 1, "sometimes": 1, "always": 1}


def test_nothing_between_the_bounds_is_an_error_that_writes_no_file() -> None:
    with endpoint(solving(load("programs.jsonl"), [0, 2, 2])) as stub:
        done = screen(stub, "programs.jsonl")
    assert isinstance(done.exception, DataError)
    assert "solved 1 to 1 times of 2 (1 never, 0 sometimes, 2 always)" in str(done.exception)
    assert not Path("kept.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at-least", "2"], "--at-least 2 and --at-most 1 leave nothing of 2 samples"),
        (["--at-most", "3"], "--at-most 3 leave nothing of 2"),
        (["--output", "kept.txt"], "must end in .jsonl"),
        (["--output", "programs.jsonl"], "is read by this command"),
        (["--evaluate.samplse", "3"], "did you mean 'evaluate.samples'"),
    ],
)
def test_options_that_leave_nothing_are_refused_before_the_model_is_asked(
    words: list[str], message: str
) -> None:
    with endpoint(solving(load("programs.jsonl"), [0, 1, 2])) as stub:
        done = screen(stub, "programs.jsonl", *words)
    assert isinstance(done.exception, SettingsError)
    assert message in str(done.exception)
    assert not stub.asked
