"""Sets of programs that read and print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay import extract, prompts
from assay.errors import DataError
from assay.judge import Job
from assay.tasks import load
from assay.types import Call, Exchange, Verdict
from tests.judge.opened import judge_all
from tests.tasks import written


@pytest.fixture
def public(public_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(public_data))


@pytest.mark.data("apps", "codecontests", "nemo_gym")
def test_the_public_sets_have_their_tasks(public: None) -> None:
    assert {name: len(load(name)) for name in ("apps", "code_contests", "nemo_gym")} == {
        "apps": 126,
        "code_contests": 20,
        "nemo_gym": 5,
    }


@pytest.mark.data("apps", "codecontests", "nemo_gym")
def test_mapcoders_lines_are_the_functions_arguments(public: None) -> None:
    tasks = {task.entry_point: task for task in load("apps") if isinstance(task.checks[0], Call)}
    assert tasks["get_score"].checks[0] == Call("[[1,2,3]]", "100")
    assert tasks["name_in_str"].checks[-1].arguments.startswith('["')  # type: ignore[attr-defined]
    assert tasks["validate_pin"].checks[0].arguments == '["1234"]'  # type: ignore[attr-defined]  # others are no literals


@pytest.mark.data("apps", "codecontests", "nemo_gym")
def test_decimal_fractions_are_compared_with_a_tolerance(public: None) -> None:
    assert [task.id for task in load("code_contests") if task.checker == "floats"] == [
        "CodeContests/5"
    ]


CHEFBM = """
n, m, p = map(int, input().split())
added = {}
for _ in range(p):
    i, j = map(int, input().split())
    row = added.setdefault(i, {})
    row[j] = row.get(j, 0) + 1
for i in range(1, n + 1):
    row = added.get(i, {})
    steps = [j for j in row if j < m]
    fits = all(row.get(j, 0) + j >= 0 and row[j] <= 1 + row.get(j + 1, 0) for j in steps)
    print(m + row.get(m, 0) - 1 - row.get(1, 0) if fits else -1)
"""


@pytest.mark.data("apps", "codecontests", "nemo_gym")
def test_a_real_contest_task_is_judged_on_all_its_tests(public: None) -> None:
    task = load("code_contests")[1]
    right, wrong = judge_all([Job(task, CHEFBM), Job(task, CHEFBM.replace("else -1", "else 0"))])
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 101, 101)
    assert wrong.verdict is Verdict.WRONG


OWN = {
    "id": "sum",
    "prompt": "Add two numbers.",
    "exchanges": [{"stdin": "1 2", "stdout": "3"}],
    "reference": "print(sum(map(int, input().split())))",
}


def test_a_file_of_ones_own_holds_exchanges(tmp_path: Path) -> None:
    (task,) = load(written(tmp_path, {**OWN, "checker": "tokens"}))
    assert (task.checks, task.checker, task.entry_point) == ((Exchange("1 2", "3"),), "tokens", "")
    assert judge_all([Job(task, task.reference)])[0].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"exchanges": 3}, "'exchanges' is a int .3.; make it a list of objects"),
        (
            {"exchanges": [{"stdin": "1"}]},
            "'exchanges' 1: 'stdout' is missing",
        ),
        ({"exchanges": []}, "no tests"),
        (
            {"checker": "loose"},
            "'checker' is neither one of exact, lines, tokens, floats, unordered nor Python",
        ),
        ({"checker": "def ("}, "'checker' is no valid Python"),
    ],
)
def test_malformed_exchanges_are_refused_with_the_place(
    tmp_path: Path, wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(DataError, match=says) as refused:
        load(written(tmp_path, {**OWN, **wrong}))
    assert "my.jsonl" in str(refused.value)


def test_deepminds_rows_bring_public_tests_and_a_solution(tmp_path: Path) -> None:
    row = {
        "name": "1_A",
        "description": "Double it.",
        "public_tests": {"input": ["1\n"], "output": ["2\n"]},
        "private_tests": {"input": ["4\n"], "output": ["8\n"]},
        "generated_tests": {"input": [], "output": []},
        "solutions": {"language": [2, 3], "solution": ["int main() {}", "print(2 * int(input()))"]},
    }
    (task,) = load(f"code_contests:{written(tmp_path, row)}")
    assert [check.hidden for check in task.checks] == [False, True]
    assert judge_all([Job(task, task.reference)])[0].verdict is Verdict.PASS
    for end in ("input_file", "output_file"):
        reads_a_file = {**row, "name": "1_B", end: "data.txt"}
        (kept,) = load(f"code_contests:{written(tmp_path, row, reads_a_file)}")
        assert kept.id == task.id


def test_the_hubs_apps_rows_bring_functions_and_programs(tmp_path: Path) -> None:
    program = {"problem_id": 1, "question": "Add.", "solutions": json.dumps([OWN["reference"]]),
    "starter_code": "",
               "input_output": json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]})}  # fmt: skip
    calls = json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]})
    function = {
        "problem_id": 2,
        "question": "Add.",
        "solutions": "",
        "starter_code": "def add(a, b):",
        "input_output": calls,
    }
    first, second = load(f"apps:{written(tmp_path, program, function)}")
    assert (first.checks, first.reference) == ((Exchange("1 2\n", "3\n"),), OWN["reference"])
    assert (second.checks, second.entry_point) == ((Call("[1,2]", "3"),), "add")


def test_rows_of_apps_without_an_id_are_not_taken_for_one_task(tmp_path: Path) -> None:
    row = {"question": "Add.", "input_output": ADDS}
    tasks = load(f"apps:{written(tmp_path, row, row)}")
    assert [task.id for task in tasks] == ["APPS/line_1", "APPS/line_2"]


def test_a_chat_model_is_told_that_a_program_reads_and_prints(tmp_path: Path) -> None:
    (task,) = load(written(tmp_path, OWN))
    assert "reads standard input and prints to standard output" in prompts.messages(task)[0].content
    assert extract.program(task, "Sure:\n```python\nprint(3)\n```\nDone.") == "print(3)\n"


ADDS = '{"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}'
CALLS = {"problem_id": 1, "question": "Add.", "starter_code": "def add(a, b):"}
CONTEST = {"name": "1_A", "description": "Double it."}
GYM = {"id": 1, "responses_create_params": {"input": "Double it."}, "verifier_metadata": {}}


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("apps", {**CALLS, "input_output": "[" * 9999}, "no valid JSON"),
        ("apps", {**CALLS, "input_output": ADDS, "solutions": 5}, "'solutions' is a int"),
        ("apps", {"id": 1, "description": "Add.", "test_list": ["f"]}, "make it a list of objects"),
        ("apps", {"id": 1, "description": "Add.", "test_list": 5}, "make it a list of objects"),
        ("code_contests", {**CONTEST, "public_tests": []}, "no tests"),
        ("code_contests", {**CONTEST, "public_tests": [1]}, "'public_tests' is a list"),
        ("code_contests", {**CONTEST, "solutions": {"language": 3}}, "'language' is a int"),
        ("code_contests", {"content": "x", "test": [{"input": 5}]}, "'input' is a int"),
        ("code_contests", {"content": "x", "test": {"input": 5}}, "make it a list of objects"),
        ("nemo_gym", {**GYM, "verifier_metadata": {"unit_tests": 5}}, "'unit_tests' is a int"),
        (
            "nemo_gym",
            {
                **GYM,
                "responses_create_params": {"input": [5]},
                "verifier_metadata": {"unit_tests": {"inputs": ["1"], "outputs": ["2"]}},
            },
            "make it a list of objects",
        ),
    ],
)
def test_malformed_rows_of_public_formats_are_refused_with_the_place(
    tmp_path: Path, name: str, row: dict[str, Any], says: str
) -> None:
    with pytest.raises(DataError, match=says) as refused:
        load(f"{name}:{written(tmp_path, row)}")
    assert "my.jsonl" in str(refused.value)


@pytest.mark.parametrize("tests", ["[1]", "5", '{"inputs": 5}', ADDS.replace("[1, 2]", "5")])
def test_rows_of_apps_without_calls_or_programs_are_left_out(
    tmp_path: Path, tests: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = {**CALLS, "problem_id": 2, "input_output": ADDS}
    file = written(tmp_path, {**CALLS, "input_output": tests}, good)
    assert [task.id for task in load(f"apps:{file}")] == ["APPS/2"]
    assert "my.jsonl: left out 1 of 2 rows: 1 w" in caplog.text


def test_a_list_that_apps_expects_is_the_value_and_may_be_wrapped_in_another(
    tmp_path: Path,
) -> None:
    def row(number: int, outputs: list[Any]) -> dict[str, Any]:
        tests = {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": outputs}
        return {**CALLS, "problem_id": number, "input_output": json.dumps(tests)}

    bare, wrapped = row(1, [[1, 2], [3, 4]]), row(2, [[[1, 2]], [[3, 4]]])
    programs = [
        "def add(a, b): return [a, b]",
        "def add(a, b): return a, b",
        "def add(a, b): return a",
    ]
    for task in load(f"apps:{written(tmp_path, bare, wrapped)}"):
        found = [one.verdict.value for one in judge_all([Job(task, it) for it in programs])]
        assert found == ["pass", "pass", "wrong"]


HALF = "\ud800"


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": HALF},
        {"prompt": [{"role": "user", "content": HALF}]},
        {"demonstrations": [HALF]},
        {"format": "assay", "prompt": HALF, "checks": [{"source": "f()"}], "entry_point": "f"},
    ],
)
def test_half_a_character_is_refused_with_the_place(tmp_path: Path, change: dict[str, Any]) -> None:
    row = {"id": "x", **({} if "format" in change else OWN), **change}
    with pytest.raises(DataError, match=r"my.jsonl, line 1: '\w+' holds half a character"):
        load(written(tmp_path, row))
