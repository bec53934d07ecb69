"""Test benches: a design's samples are compared with the reference's, outside the simulation."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.judge import Job, Judge, judge_all
from assay.judge.kinds.test_bench import believed, compared, marker
from assay.judge.kinds.verilog_screen import refusal, used
from assay.prompts import messages
from assay.sandbox.program import Ended, Result
from assay.tasks.exact import row_of
from assay.tasks.jsonl import task_of
from assay.tasks.rows import Row
from assay.types import Cause, Execution, TestBench, Verdict
from tests.attacks.verilog import BENCH, HEAD, RIGHT, SELF_CHECKING, TASK

needs_iverilog = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs iverilog")
CHECK = TestBench(BENCH, "TopModule", "0 0 | 1x\n1 0 | 01")
HONEST = f"""`timescale 1ns/1ps
`define WIDTH 8  // not `include, no $finish
/* force tb.q */
package kinds; typedef enum logic [1:0] {{IDLE, RUN}} state_t; endpackage
module adder #(parameter W = `WIDTH) (input [W-1:0] a, b, output [W-1:0] s);
  assign s = $signed(a) + b;
endmodule
{HEAD}
  typedef struct packed {{ logic [3:0] low; logic carry; }} pair_t;
  pair_t pair;
  wire [7:0] sums [0:1];
  genvar g;
  generate for (g = 0; g < 2; g = g + 1) begin : each
    adder #(.W(8)) u1 (.a({{4'b0, d}}), .b(8'd1), .s(sums[g]));
  end endgenerate
  always @(*) begin : own
    integer i;
    for (i = 0; i < 1.5e0; i = i + 1) if (i == 1) disable own;
    pair.low = each[0].u1.a + kinds::RUN + $clog2(`WIDTH);
  end
  initial $display("at %0t: force and $finish are only words here", $time);
  always @(posedge clk) if (reset) q <= 0; else q <= q + d;
endmodule
"""


def result(printed: bytes) -> Result:
    return Result(Ended.EXITED, stdout=printed)


def printed(*samples: str) -> Result:
    return result("".join(f"{marker(CHECK)}{one}\n" for one in samples).encode())


@needs_iverilog
def test_a_reference_runs_once_and_a_wrong_sample_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    late = RIGHT.replace("q + d", "q + d + (q == 13)")
    believes = replace(TASK, checks=(TestBench(SELF_CHECKING, "TopModule", passes="Passed"),))
    wrong_reference = replace(TASK, id="broken", reference="module TopModule; endmodule")

    async def run() -> tuple[list[Execution], list[Execution], int]:
        async with Judge(slots=1) as judge:
            ends = await judge.all([Job(TASK, text) for text in (RIGHT, late, HONEST)])
            trusting = await judge.all([Job(believes, text) for text in (RIGHT, late)])
            assert (await judge.run(Job(wrong_reference, RIGHT))).cause is Cause.REFERENCE
            return ends, trusting, len(list(tmp_path.rglob("*.json")))

    (right, wrong, honest), (trusted, failed), files = asyncio.run(run())
    assert (right.verdict, right.passed, right.total, right.forgeable) == ("pass", 42, 42, False)
    assert (honest.verdict, honest.detail) == ("pass", "")
    assert (wrong.verdict, wrong.total) == ("wrong", 42)
    assert 0 < wrong.passed < 42
    assert "of 42: q is 4'b" in wrong.detail
    assert ", where reset is 1'b0, d is 4'b" in wrong.detail
    assert (trusted.verdict, trusted.forgeable) == ("pass", True)
    assert (failed.verdict, failed.passed) == ("wrong", 0)
    assert files == 2, "one of each bench"


def test_unknown_bits_of_the_reference_match_anything_and_no_other() -> None:
    right = compared(CHECK, printed(" 0 0 | 1z", " 1 0 | 01"))
    assert right.verdict is Verdict.WRONG  # a sample is compared as it stands, its first space too
    spaced = replace(CHECK, expected=" 0 0 | 1x\n 1 0 | 01")
    right = compared(spaced, printed(" 0 0 | 1z", " 1 0 | 01"))
    assert right == Execution(Verdict.PASS, 2, 2)
    unknown = compared(spaced, printed(" 0 0 | 10", " 1 0 | 0x"))
    assert (unknown.verdict, unknown.passed, unknown.total) == ("wrong", 1, 2)
    other = compared(spaced, printed(" 0 0 | 10", " 0 0 | 01"))
    inputs = "sample 2 has other inputs: 0 0, not 1 0"
    assert other == Execution(Verdict.WRONG, 1, 2, inputs)
    more = compared(spaced, printed(" 0 0 | 10", " 1 0 | 01", " 1 0 | 01"))
    assert more == Execution(Verdict.WRONG, 2, 3, "3 samples, not 2")


def test_any_bytes_of_a_design_are_read_as_samples_at_most() -> None:
    own = marker(CHECK).encode()
    for hostile in (b"", b"\xff\0" * 5_000_000, own * 1_000_000, (own + b"\n") * 900_000,
                    own + b" 0" * 4_000_000, b"| " * 4_000_000 + own + b"\r\n| | |"):  # fmt: skip
        start = time.perf_counter()
        said = compared(CHECK, result(hostile))
        assert (said.verdict, said.passed) == (Verdict.WRONG, 0)
        assert said.detail
        assert time.perf_counter() - start < 5


def test_a_bench_that_decides_is_believed_only_where_it_says_it_once() -> None:
    summary = "Test Summary: #/# tests passed"
    says = {
        "Test Summary: 3/3 tests passed": ("pass", 3, 3),
        "Test Summary: 2/3 tests passed": ("wrong", 2, 3),
        "Test Summary: 50/1 tests passed": ("wrong", 0, 1),
        "Test Summary: 0/0 tests passed": ("wrong", 0, 0),
        "Test Summary: 9/9 tests passed Test Summary: 1/3 tests passed": ("wrong", 1, 3),
        "Test Summary: 3/3 tests passed" * 2: ("wrong", 0, 3),
        f"Test Summary: {'9' * 5000}/3 tests passed": ("wrong", 0, 3),
        "": ("wrong", 0, 1),
    }
    for text, expected in says.items():
        said = believed(summary, result(text.encode()))
        assert (said.verdict, said.passed, said.total) == expected, text


def test_the_screen_reads_code_and_neither_comments_nor_strings() -> None:
    honest = used(HONEST, "TopModule")
    assert refusal(honest, BENCH, "TopModule") == ""
    assert refusal(honest, BENCH, "TopModule", prints=False) == "it uses $display"
    hidden = {
        "force x = 1;": "it uses `force`, which acts beyond its own module",
        "stim1.pause;": "it names 'pause', which belongs to the test bench",
        "`define A stim1\nassign q = `A.d;": "it looks into '`A'",
        "assign q = a[stim1.d];": "it looks into 'stim1'",
        "wire stim1; assign q = stim1[0][d[0]].x;": "it looks into 'stim1'",
        "`define timescale $": "it uses $",
        "`define M(x) $x\n`M(finish);": "which can hide what it does",
        '"a\\\n$finish"': "which can hide what it does",
    }
    for text, reason in hidden.items():
        program = used(f"{HEAD}{text}\nendmodule", "TopModule")
        assert reason in refusal(program, BENCH, "TopModule"), text


DOUBLES = {
    "each twice the one before": [f"`define A{n} `A{n - 1} `A{n - 1}" for n in range(1, 30)],
    "the other way round": [f"`define A{n} `A{n - 1} `A{n - 1}" for n in range(29, 0, -1)],
    "of many uses of long ones": [f"`define A29 {'b ' * 9000}", *["`A29"] * 200],
    "itself": ["`define A29 `A29 `A29"],
    "each other": ["`define A29 `A28", "`define A28 `A29 `A29"],
    "a second definition": ["`define A1 `A0 `A0", "`define A29 b", "`define A29 `A1",
                            *[f"`define A{n} `A{n - 1} `A{n - 1}" for n in range(1, 29)],
                            "`define A29 `A28"],
}  # fmt: skip


@pytest.mark.parametrize("macros", DOUBLES.values(), ids=DOUBLES)
def test_macros_that_make_a_program_huge_are_refused_and_not_expanded(macros: list[str]) -> None:
    lines = "\n".join(["`define A0 b", *macros])
    program = used(f"{lines}\n{HEAD}assign q = `A29;\nendmodule", "TopModule")
    assert "its macros make more than" in refusal(program, BENCH, "TopModule")


def test_a_row_of_macros_that_stay_small_is_taken() -> None:
    lines = "\n".join(["`define A0 d", *(f"`define A{n} `A{n - 1} + `A0" for n in range(1, 30))])
    program = used(f"{lines}\n{HEAD}assign q = `A29;\nendmodule", "TopModule")
    assert refusal(program, BENCH, "TopModule") == ""


def test_modules_that_the_design_does_not_use_are_left_out_with_what_follows_it() -> None:
    own = "module tb; initial $finish; // endmodule\nendmodule\n"
    adder = "module adder; endmodule\n"
    design = "module TopModule (input a); adder u (); endmodule"
    assert used(f"{own}{adder}{design}\n{own}module half (", "TopModule") == (
        f"\n\n{adder}{design}\n"
    )
    guarded = f"`ifndef A\n{design}\n{own}`endif // A\n"
    assert used(guarded, "TopModule") == f"`ifndef A\n{design}\n`endif\n"
    assert used(own, "TopModule") == "\n\n"
    assert refusal(used(f"{HEAD}endmodule\n{own}", "TopModule"), BENCH, "TopModule") == ""


def test_a_task_with_a_bench_is_written_and_read_unchanged_and_shown_as_a_module() -> None:
    assert task_of(Row(json.loads(json.dumps(row_of(TASK))), "the row")) == TASK
    (asked,) = messages(TASK)
    assert asked.content.startswith("Solve this task in Verilog (IEEE 1800-2012, Icarus Verilog 1")
    assert "It defines `TopModule`." in asked.content
    assert "standard input" not in asked.content


@needs_iverilog
def test_a_bench_without_a_reference_is_refused_and_one_without_samples_too() -> None:
    silent = replace(TASK, checks=(TestBench(BENCH.replace("@SAMPLE", "x"), "TopModule"),))
    for task, cause in ((replace(TASK, reference=None), Cause.TASK), (silent, Cause.REFERENCE)):
        (refused,) = judge_all([Job(task, RIGHT)], slots=1)
        assert (refused.verdict, refused.cause) == (Verdict.UNJUDGED, cause)
