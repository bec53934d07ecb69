"""Task files as people have them: whatever way the rows are written, and rows of other sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from assay.errors import DataError
from assay.judge import Job, judge_all
from assay.tasks import load
from assay.types import Answer, Check, Exchange, TestFunctions

ROWS: list[dict[str, Any]] = [
    {"id": "a", "prompt": "Write f.", "tests": ["assert f(1) == 2"], "entry_point": "f"},
    {"id": "b", "prompt": "Write g.\n{", "tests": ["assert g() == ']'"], "entry_point": "g"},
    {"id": "c", "prompt": "Print 1.", "exchanges": [{"stdin": "", "stdout": "1"}]},
]
PRETTY = json.dumps(ROWS[0], indent=4)
FILES = {
    "lines.jsonl": "\n".join(map(json.dumps, ROWS)),
    "array.json": json.dumps(ROWS),
    "array.jsonl": json.dumps(ROWS),
    "pretty array.jsonl": json.dumps(ROWS, indent=2),
    "pretty objects.jsonl": "\n" + "\n".join(json.dumps(row, indent=1) for row in ROWS),
    "pretty objects.json": PRETTY + "".join(map(json.dumps, ROWS[1:])),
}
QUESTION = [{"role": "user", "content": "What is 6 times 7?"}]
SUM = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Add two numbers."}]
VERL: dict[str, Any] = {"data_source": "x", "ability": "y", "extra_info": {"index": 3}}
FOREIGN: dict[str, dict[str, Any]] = {
    "a pair of DPO .*algorithm.pairs": {"prompt": "p", "chosen": "a", "rejected": "b"},
    "a row of humaneval_x; .* humaneval_x:.*/rows.jsonl": {
        "task_id": "CPP/0", "prompt": "int f(", "declaration": "int f(", "canonical_solution": "}",
        "test": "int main() {}", "example_test": ""},
    "a row of multipl_e_mbpp": {
        "name": "mbpp_1", "language": "cpp", "prompt": "int f(", "tests": "}", "stop_tokens": []},
    "a row of livecodebench": {"question_content": "q", "public_test_cases": "[]"},
    "a row of livecodebench; ": {"problem": "q", "starter_code": "", "public_test_cases": "[]"},
    "a row of apps": {"problem_id": 0, "question": "q", "input_output": "{}", "solutions": "[]"},
    "a row of apps; ": {"name": "n", "description": "q", "sample_io": [], "test_list": []},
    "a row of taco": {"question": "q", "input_output": "{}", "solutions": "[]"},
    "a row of rllm": {"problem": "q", "tests": "[]", "solutions": []},
    "columns = { prompt = .problem. }": {"problem": "q", "tests": ["assert f() == 1"]},
    "a row of cvdp": {"id": "cvdp_1", "categories": ["cid002", "easy"], "harness": {}},
    "a row of code_contests": {"description": "q", "private_tests": {}, "solutions": {}},
    "a row of open_r1": {"problem": "q", "verification_info": {}},
    "a row of nemo_gym": {
        "responses_create_params": {}, "verifier_metadata": {"unit_tests": {}}},
    "no row that assay reads": {"responses_create_params": {}, "verifier_metadata": {}},
    "a row of multi_swe_bench": {"fix_patch": "d", "test_patch": "d", "f2p_tests": {}},
    "a row of swe_polybench": {"F2P": "[]", "P2P": "[]", "problem_statement": "p"},
    "a row of bigcodebench": {"instruct_prompt": "q", "code_prompt": "import os", "test": "x"},
    "a row of gsm8k; read it as the task set gsm8k:.*/rows.jsonl": {"question": "q", "answer": "1"},
    "a row of math": {"problem": "q", "answer": "1", "solution": "s"},
    "a row of verl without a 'ground_truth'": {
        **VERL, "prompt": QUESTION, "reward_model": {"style": "model", "ground_truth": None}},
    "a row of verl without tests": {
        **VERL, "prompt": QUESTION, "reward_model": {"ground_truth": {"target": ["x"]}}},
    "a row of verl whose check does not end with": {
        **VERL, "prompt": QUESTION, "reward_model": {"ground_truth": {"functional": "x"}}},
    "shows images": {
        **VERL, "prompt": QUESTION, "images": [{}], "reward_model": {"ground_truth": "1"}},
    "'ground_truth' lists 2 answers": {
        **VERL, "prompt": QUESTION, "reward_model": {"ground_truth": ["1", "one"]}},
    "a row of leetcode_dataset": {
        "task_id": "two-sum", "prompt": "from typing import *", "completion": "class Solution: ...",
        "entry_point": "Solution().f", "test": "def check(candidate): ...", "query": "q"},
    "a row of kodcode": {"question": "q", "solution": "def f(): ...", "test": "assert f()"},
    "a row of open_r1_codeforces": {"title": "t", "description": "d", "official_tests": []},
    "a row of humanevalplus": {
        "task_id": "HumanEval/0", "prompt": "def f(x):", "entry_point": "f", "base_input": [[1]],
        "plus_input": [[2]], "test": "def check(candidate): ...", "canonical_solution": "    1"},
    "a row of mbppplus": {
        "task_id": 2, "prompt": "p", "code": "def f(): ...", "test_list": ["assert f() is None"],
        "test": "for n in range(9): assert f() is None"},
    "a row of mbppplus; ": {"task_id": "Mbpp/2", "assertion": "assert f(1)", "plus_input": [[2]]},
    "a row of swe_bench": {
        "instance_id": "a__b-1", "FAIL_TO_PASS": "[]", "problem_statement": "p",
        "environment_setup_commit": "c"},
    "a row of swe_rebench": {
        "instance_id": "a__b-1", "FAIL_TO_PASS": [], "problem_statement": "p", "image_name": "i",
        "test_patch": "d"},
    "a row of swe_smith": {
        "instance_id": "a__b-1", "FAIL_TO_PASS": [], "problem_statement": "p", "image_name": "i"},
    "a row of swe_gym": {"instance_id": "a__b-1", "FAIL_TO_PASS": [], "problem_statement": "p"},
}  # fmt: skip


@pytest.mark.parametrize("name", [*FILES, "rows.parquet", "nulls.jsonl"])
def test_rows_are_read_however_they_are_written(tmp_path: Path, name: str) -> None:
    if name == "nulls.jsonl":
        nulls = {field: None for row in ROWS for field in row} | {"expected_answer": None}
        (tmp_path / name).write_text("\n".join(json.dumps(nulls | row) for row in ROWS))
    elif name == "rows.parquet":
        columns = {field: [row.get(field) for row in ROWS] for row in ROWS for field in row}
        parquet.write_table(pa.table(columns), tmp_path / name)
    else:
        (tmp_path / name).write_text(FILES[name])
    assert [(task.id, task.prompt) for task in load(str(tmp_path / name))] == [
        (row["id"], row["prompt"]) for row in ROWS
    ]


def test_a_row_that_is_no_json_is_named_by_its_line_and_a_broken_parquet_by_its_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "torn.jsonl").write_text(f"{PRETTY}\n\n{{'a': 1}}\n")
    with pytest.raises(
        DataError, match=rf"torn.jsonl, line {PRETTY.count(chr(10)) + 3}: no valid JSON"
    ):
        load(str(tmp_path / "torn.jsonl"))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1" * 9)
    with pytest.raises(DataError, match=r"torn.parquet cannot be read as Parquet") as caught:
        load(str(tmp_path / "torn.parquet"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("why", FOREIGN)
def test_a_row_of_another_set_is_refused_by_what_it_is(tmp_path: Path, why: str) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(FOREIGN[why]))
    with pytest.raises(DataError, match=why) as caught:
        load(str(tmp_path / "rows.jsonl"))
    assert "\n" not in str(caught.value)


def test_rows_of_verl_are_read_from_parquet_with_answers_cases_and_asserts(tmp_path: Path) -> None:
    truths = (
        "42", json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]}),
        json.dumps({"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"}),
        json.dumps(["assert add(1, 2) == 3"]),
    )  # fmt: skip
    rows = [
        {**VERL, "prompt": QUESTION if truth == "42" else SUM,
         "reward_model": {"style": "rule", "ground_truth": truth}} for truth in truths
    ]  # fmt: skip
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    answer, program, function, asserts = load(str(tmp_path / "train.parquet"))
    assert [answer.id, program.id, asserts.id] == ["row_1", "row_2", "row_4"]
    assert (answer.checks, answer.language) == ((Answer("42"),), "answer")
    assert [task.messages[-1].content for task in (program, function, asserts)] == (
        [SUM[1]["content"]] * 3
    )
    right, wrong = "def add(a, b): return a + b", "def add(a, b): return a - b"
    prints = "print(sum(map(int, input().split())))"
    jobs = [Job(answer, "42"), Job(answer, "41"), Job(program, prints),
            Job(program, "print(4)"), *(Job(task, text) for task in (function, asserts)
                                        for text in (right, wrong))]  # fmt: skip
    verdicts = [str(one.verdict) for one in judge_all(jobs, allow_weak=True)]
    assert verdicts == ["pass", "wrong"] * 4


CHECKS = """def check(candidate):
    assert candidate(1, 2) == 3

check(Solution().add)
"""
RAISES = """from pytest import raises
from solution import *

def test_text():
    with raises(TypeError):
        add(1, "2")
"""
TESTS = """from math import isclose
from solution import add

def close(value, right):
    return isclose(value, right)

def test_sum():
    assert close(add(1, 2), 3)
"""


@pytest.mark.parametrize(
    ("truth", "checks", "entry_point"),
    [
        (TESTS, (TestFunctions(TESTS),), "add"),
        (json.dumps({"pytest": TESTS}), (TestFunctions(TESTS),), "add"),
        (RAISES, (TestFunctions(RAISES),), "add"),
        ("assert add(1, 2) == 3", (Check("assert add(1, 2) == 3"),), "add"),
        (json.dumps({"functional": CHECKS}),
         (Check(CHECKS.replace("Solution().add", "candidate").rstrip()),), "Solution().add"),
        ('[{"input": "1", "output": "2"}]', (Exchange("1", "2"),), ""),
        ('["\\\\frac{1}{2}"]', (Answer("\\frac{1}{2}"),), ""),
        ("[1, 2]", (Answer("[1, 2]"),), ""),
        ("assertive", (Answer("assertive"),), ""),
    ],
)  # fmt: skip
def test_what_verl_calls_the_ground_truth_is_told_from_tests_by_what_it_holds(
    tmp_path: Path, truth: str, checks: tuple[object, ...], entry_point: str
) -> None:
    row = {**VERL, "prompt": QUESTION, "reward_model": {"ground_truth": truth}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (task,) = load(str(tmp_path / "rows.jsonl"))
    assert (task.checks, task.entry_point) == (checks, entry_point)
