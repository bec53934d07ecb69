"""CVDP: designs tested by harnesses of cocotb, in the original's rows and in NeMo Gym's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from assay.checks import Harness
from assay.extract import program
from assay.judge import Job
from assay.tasks import load
from assay.tasks.cvdp import patched, task_of
from assay.tasks.exact import row_of
from assay.tasks.exact import task_of as exact_task
from assay.tasks.rows import LeftOutError, Row
from assay.types import Task, Verdict
from tests.judge.harnesses import COMPOSE, RIGHT, RUNNER, SETTINGS, TESTS, needs_cocotb, variables
from tests.judge.opened import judge_all

FILES = {
    "docker-compose.yml": COMPOSE, "src/.env": SETTINGS, "src/test_adder.py": TESTS,
    "src/test_runner.py": RUNNER,
}  # fmt: skip
PLAIN = {
    "id": "adder_1", "input": {"prompt": "Write it.", "context": {"docs/adder.md": "It adds."}},
    "output": {"response": "", "context": {"rtl/adder.sv": RIGHT}}, "harness": {"files": FILES},
}  # fmt: skip
PATCH = "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
GYM = {
    "responses_create_params": {"input": [{"role": "user", "content": "Write it."}]},
    "verifier_metadata": {"task_id": "adder_2", "target_files": ["rtl/adder.sv"],
                          "harness_files": FILES,
                          "context_files": {"rtl/half.sv": "module h; endmodule"}},
}  # fmt: skip


def task(row: dict[str, Any]) -> Task:
    return task_of(Row(row, "the row"))


def test_a_row_of_the_originals_asks_for_one_file_and_shows_the_others() -> None:
    made = task(PLAIN)
    (check,) = made.checks
    assert isinstance(check, Harness)
    assert (check.targets, check.tests) == (("rtl/adder.sv",), ("src/test_runner.py",))
    assert check.environment == variables()
    assert hash(check) == hash(replace(check))  # `assay check` looks for equal ones
    assert check.files["code/docs/adder.md"] == "It adds."
    assert (made.reference, made.entry_point, made.language) == (RIGHT, "adder", "verilog")
    assert "the file docs/adder.md:\n```\nIt adds." in made.messages[0].content
    assert "saved directly to: rtl/adder.sv." in made.messages[0].content
    assert exact_task(Row(json.loads(json.dumps(row_of(made))), "the row")) == made


def test_a_row_without_its_solution_has_no_reference() -> None:
    assert task({**PLAIN, "output": {"context": {"rtl/adder.sv": ""}}}).reference is None


def test_an_agentic_rows_reference_is_its_patched_context() -> None:
    agentic = {"id": "a", "prompt": "Fix it.", "context": {"rtl/adder.sv": "one\ntwo\nthree"},
               "patch": {"rtl/adder.sv": PATCH}, "harness": FILES}  # fmt: skip
    assert task(agentic).reference == "one\n2\nthree"
    assert patched("", "@@ -0,0 +1,2 @@\n+one\n+two") == "one\ntwo\n"
    assert patched("a\nb\nc", "--- a/x\n+++ b/x\n@@ -2 +2 @@\n-b\n+B") == "a\nB\nc"
    assert patched("a\nb\nc\nd", "@@ -2,2 +2,1 @@\n b\n-c\n@@ -4,1 +3,2 @@\n d\n+e") == "a\nb\nd\ne"


def test_a_row_of_nemo_gyms_is_asked_as_it_stands_and_read_as_plain_text() -> None:
    made = task(GYM)
    assert made.messages[0].content == "Write it."
    assert made.checks[0].files["code/rtl/half.sv"].startswith("module h")  # type: ignore[attr-defined]
    assert program(made, RIGHT) == RIGHT
    assert program(made, f"Here:\n```systemverilog\n{RIGHT}```") == RIGHT


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "without a harness"),
        ({"src/.env": "SIM = xcelium"}, "another simulator"),
        ({"Dockerfile": "FROM __VERIF_EDA_IMAGE__"}, "another simulator"),
        ({"src/synth.py": "import subprocess"}, "starts tools itself"),
    ],
)
def test_rows_that_icarus_verilog_alone_cannot_judge_are_left_out(
    files: dict[str, str], why: str
) -> None:
    with pytest.raises(LeftOutError, match=why):
        task({**PLAIN, "harness": {"files": FILES | files if files else {}}})


@pytest.mark.long
@pytest.mark.data("cvdp")
@needs_cocotb
@pytest.mark.parametrize("split", ["nonagentic", "agentic"])
def test_the_example_rows_own_solutions_pass_and_cheats_do_not(split: str) -> None:
    (made,) = load(f"cvdp:{split}")
    cheat = f"module {made.entry_point}; initial $finish; endmodule"
    right, again, wrong = judge_all(
        [
            Job(made, made.reference),
            Job(replace(made, reference=None), made.reference),
            Job(made, cheat),
        ]
    )
    assert right.proven
    assert again.proven
    assert wrong.verdict is Verdict.WRONG
