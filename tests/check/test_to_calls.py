"""Tasks with tests in the program's own process become tasks of calls, with Python's cases."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest

from assay.check.to_calls import to_calls, why
from assay.cli import main
from assay.judge import Job, judge_all
from assay.tasks import load
from assay.types import Execution, Verdict
from tests.check.test_command import RUNNER

pytestmark = pytest.mark.skipif(not shutil.which("node"), reason="needs node")
PROBLEMS = {
    "doubles itself": (
        "    return 2 * x if x < 9 else f(x - 9) + 18\n", "const f = (x) => {\n", "return 2 * x }",
        "    assert candidate(1) == 2\n    assert candidate(2.5) == 5\n"
        "    assert candidate(20) == 40\n",
    ),
    "wrong in JavaScript": (
        "    return [x]\n", "const f = (x) => {\n", "return x }",
        "    assert candidate(1) == [1]\n    assert candidate(2)\n",
    ),
    "a set": (
        "    return {x}\n", "const f = (x) => {\n", "return x }",
        "    assert candidate(1) == {1}\n    assert candidate(2)\n",
    ),
    "one answer": (
        "    return 1\n", "const f = (x) => {\n", "return 1 }",
        "    assert candidate(1) == 1\n    assert candidate(2)\n",
    ),
    "an argument that changes": (
        "    x.append(1)\n    return x\n", "const f = (x) => {\n", "x.push(1); return x }",
        "    assert candidate([])\n    assert candidate([3]) == [3, 1]\n",
    ),
}  # fmt: skip
"""Python's body, JavaScript's head and body, Python's test."""
DOCUMENTED = 'def f(x):\n    """."""\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The set HumanEval-X, with these problems alone."""
    rows: dict[str, list[dict[str, str]]] = {"python": [], "js": []}
    for number, (body, head, script, test) in enumerate(PROBLEMS.values()):
        rows["python"].append(
            {"task_id": f"Python/{number}", "declaration": "def f(x):\n", "prompt": DOCUMENTED,
             "canonical_solution": body, "test": f"def check(candidate):\n{test}\ncheck(f)\n"}
        )  # fmt: skip
        rows["js"].append(
            {"task_id": f"JavaScript/{number}", "prompt": head, "declaration": head,
             "canonical_solution": script, "test": "console.assert(true)"}
        )  # fmt: skip
    rows["js"].append(rows["js"][0] | {"task_id": "JavaScript/99"})
    (tmp_path / "humaneval_x").mkdir()
    for name, these in rows.items():
        with gzip.open(tmp_path / f"humaneval_x/humaneval_{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in these)
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    return tmp_path


def test_calls_are_those_of_pythons_tests_and_the_reference_must_pass_them(folder: Path) -> None:
    made = to_calls("humaneval_x:javascript", None, RUNNER)
    doubles, changes = made.tasks
    called = [(call.arguments, call.expected) for call in doubles.checks]  # type: ignore[attr-defined]
    assert called == [("[1]", "2"), ("[2.5]", "5.0"), ("[20]", "40")]  # the inner f(11) is none
    called = [(call.arguments, call.expected) for call in changes.checks]  # type: ignore[attr-defined]
    assert called == [("[[]]", "[1]"), ("[[3]]", "[3,1]")]
    assert {name: why.partition(":")[0] for name, why in made.left_out.items()} == {
        "JavaScript/1": "the reference fails",
        "JavaScript/2": "its calls in Python cannot be recorded",
        "JavaScript/3": "Python's tests show no calls with different values",
        "JavaScript/99": "the split `python` has no such problem",
    }
    assert "set is not JSON serializable" in made.left_out["JavaScript/2"]


def test_what_the_machine_fails_is_not_said_of_the_task() -> None:
    lost = Execution(Verdict.INFRA, detail="a process was stopped by a signal")
    assert why("the reference fails", lost) == (
        "the machine failed; try again: a process was stopped by a signal"
    )
    assert why("the reference fails", Execution(Verdict.WRONG, detail="1 is not 2")) == (
        "the reference fails: 1 is not 2"
    )


def test_the_options_of_a_check_are_refused_where_tasks_are_only_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--to-calls", str(tmp_path / "a.jsonl"), "--report", str(tmp_path / "b.json")]
    monkeypatch.setattr(sys, "argv", ["assay", "check", "humaneval_x:go", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--to-calls only converts" in capsys.readouterr().err


@pytest.mark.long
def test_the_command_writes_tasks_whose_passes_are_proven(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "calls.jsonl"
    words = ["assay", "check", "humaneval_x:javascript", "--to-calls", str(file)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert shown.startswith("made 2 of 6 tasks of calls\nJavaScript/2: its calls")
    tasks = load(str(file))
    early = [Job(task, "process.exit(0)") for task in tasks]
    runs = judge_all([Job(tasks[0], tasks[0].reference), *early])
    assert [run.proven for run in runs] == [True, False, False]
