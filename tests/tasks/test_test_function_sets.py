"""Sets whose tests are test functions or unittest classes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataError
from assay.judge import Job
from assay.tasks import load
from assay.types import Task, TestFunctions
from tests.judge.opened import judge_all
from tests.tasks import written


def verdicts(*jobs: tuple[Task, str | None]) -> list[str]:
    return [one.verdict.value for one in judge_all([Job(*job) for job in jobs])]


def kodcode(**changes: Any) -> dict[str, Any]:
    return {
        "version": "v1.0", "style": "instruct", "subset": "Prefill", "question_id": "Prefill_1_I",
        "question": "Write a function that doubles each of some numbers.",
        "solution": "def double(xs):\n    return [2 * x for x in xs]\n",
        "test": "from solution import double\n\ndef test_empty():\n    assert double([]) == []\n\n"
                "def test_some():\n    assert double([1, 2]) == [2, 4]\n",
        "test_info": [{"docstring": "", "function_declaration": "def double(xs):",
                       "function_name": "double", "parameter_list": "(xs)"}],
        "gpt_pass_sequence": [1], "gpt_pass_trial_num": 1, "gpt_difficulty": "easy",
        "gpt_pass_percentage": 1.0, "metadata": {"original_instruction": ""}, **changes,
    }  # fmt: skip


def test_each_test_function_of_kodcode_is_run(tmp_path: Path) -> None:
    (task,) = load(f"kodcode:{written(tmp_path, kodcode())}")
    assert (task.id, task.entry_point) == ("Prefill_1_I", "double")
    programs = [
        task.reference,
        "def double(xs):\n    return xs\n",
        "def double(xs):\n    return 0\n",
    ]
    right, copied, zero = judge_all([Job(task, program) for program in programs])
    assert (right.verdict, right.passed, right.total) == ("pass", 2, 2)
    assert (copied.verdict, copied.passed) == ("wrong", 1)
    assert zero.verdict == "wrong"


def test_a_function_that_only_the_tests_name_is_found(tmp_path: Path) -> None:
    (task,) = load(f"kodcode:{written(tmp_path, kodcode(test_info=None))}")
    assert task.entry_point == "double"


def test_tests_that_cannot_be_run_leave_their_row_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = "def test_file(mocker):\n    assert double([]) == []\n"
    nothing = "assert double([]) == []\n"
    rows = [kodcode(), kodcode(test=fixture), kodcode(test=nothing)]
    assert len(load(f"kodcode:{written(tmp_path, *rows)}")) == 1
    assert "my.jsonl: left out 2 of 3 rows: 1 with tests that cannot be run" in caplog.text


@pytest.fixture(scope="module")
def bigcodebench(public_data: Path) -> list[Task]:
    return load(f"bigcodebench:{public_data}/bigcodebench/rows.jsonl")


@pytest.mark.data("bigcodebench")
@pytest.mark.long
def test_bigcodebenchs_solutions_pass_and_programs_that_return_none_fail(
    bigcodebench: list[Task],
) -> None:
    numbers = [task.id.rpartition("/")[2] for task in bigcodebench]
    assert numbers == ["22", "23", "24", "25", "27", "33", "55"]
    assert all(isinstance(check, TestFunctions) for task in bigcodebench for check in task.checks)
    lazy = "def task_func(*args, **kwargs):\n    return None\n"
    right = verdicts(*((task, task.reference) for task in bigcodebench[1:]))
    assert right == ["pass"] * 6
    assert "pass" not in verdicts(*((task, lazy) for task in bigcodebench))


@pytest.mark.data("bigcodebench")
def test_a_solution_that_draws_from_a_seeded_random_passes(bigcodebench: list[Task]) -> None:
    assert verdicts((bigcodebench[0], bigcodebench[0].reference)) == ["pass"]


@pytest.mark.data("bigcodebench")
def test_rows_of_bigcodebench_that_need_what_is_not_here_are_refused_by_name(
    public_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copied = shutil.copy(public_data / "bigcodebench" / "rows.jsonl", tmp_path)
    load(f"bigcodebench:{copied}")
    assert "left out 3 of 10 rows: 1 that need psutil, which programs cannot import" in caplog.text
    caplog.clear()
    with pytest.raises(DataError, match="holds no tasks"):
        load(f"bigcodebench:{public_data}/bigcodebench/nemo_gym.jsonl")
    assert "2 that need files, processes or the network" in caplog.text
    assert "2 that need matplotlib, which programs cannot import" in caplog.text


def test_nemo_gyms_rows_of_bigcodebench_are_judged(tmp_path: Path) -> None:
    test = (
        "import unittest\nclass TestCases(unittest.TestCase):\n    def test_sum(self):\n"
        "        self.assertEqual(task_func([1, 2]), 3)\n"
    )
    row = {
        "responses_create_params": {"input": [{"role": "system", "content": ""},
                                              {"role": "user", "content": "Add the numbers."}]},
        "verifier_metadata": {"task_id": "BigCodeBench/1", "test": test, "entry_point": "task_func",
                              "code_prompt": "import math\ndef task_func(xs):\n", "split": "hard"},
    }  # fmt: skip
    (task,) = load(f"bigcodebench:{written(tmp_path, row)}")
    assert (task.prompt, task.reference) == ("Add the numbers.", None)
    heads = ["sum(xs)", "0"]
    assert verdicts(*((task, f"def task_func(xs):\n    return {head}\n") for head in heads)) == [
        "pass",
        "wrong",
    ]
