"""Sets of designs with test benches: VerilogEval's rows, RTLLM's and VeriGenLLM-v2's folders."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from assay.check.findings import Flaw
from assay.check.report import check
from assay.check.trial import ProgramRunner
from assay.errors import DataError
from assay.extract import program
from assay.judge import Job, judge_all
from assay.sandbox.limits import Limits
from assay.tasks import load
from assay.tasks.rows import Row
from assay.tasks.verilog_eval import task_of_v1
from assay.types import TestBench, Verdict

needs_iverilog = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs iverilog")
needs_data = pytest.mark.data("verilog_eval")
NOT_RUNNABLE: dict[str, set[str]] = {
    "human": {"review2015_fancytimer", "review2015_fsm"},
    "machine": set(),
    "code_complete": {"Prob151_review2015_fsm", "Prob156_review2015_fancytimer"},
}  # fmt: skip
"""References that Icarus Verilog 11 does not compile."""
REFERENCE = "module reference_module (input a, output b);\n  assign b = ~a;\nendmodule\n"
BENCH = """
module stimulus_gen (input clk, output logic a, input tb_match);
  initial begin a = 0; repeat (6) @(clk) a <= $random; $finish; end
endmodule
module tb();
  struct packed { int errors; int clocks; } stats1;
  reg clk=0;
  initial forever #5 clk = ~clk;
  logic a, b_ref, b_dut;
  initial begin $dumpfile("wave.vcd"); $dumpvars(1, clk); end
  wire tb_match;
  stimulus_gen stim1 (.clk, .* , .a );
  reference_module good1 (.a, .b(b_ref) );
  top_module top_module1 (.a, .b(b_dut) );
  assign tb_match = ( { b_ref } === ( { b_ref } ^ { b_dut } ^ { b_ref } ) );
  always @(posedge clk, negedge clk) begin
    stats1.clocks++;
    if (!tb_match) stats1.errors++;
  end
endmodule
"""
ROW = {
    "task_id": "inverter", "prompt": "module top_module (input a, output b);\n",
    "canonical_solution": "  assign b = ~a;\nendmodule\n", "test": REFERENCE + BENCH,
}  # fmt: skip
SELF_CHECKING = """module check_inverter;
  reg a; wire b; integer passed = 0;
  inverter dut (.a(a), .b(b));
  initial begin
    $dumpfile("x.vcd"); $dumpvars(0, check_inverter);
    a = 0; #1 passed = passed + (b === 1); a = 1; #1 passed = passed + (b === 0);
    $display("Test Summary: %0d/%0d tests passed", passed, 2);
    if (passed == 2) $display("====== Your Design Passed ======");
    $finish;
  end
endmodule
"""


def test_a_bench_of_verilog_eval_drives_the_design_alone() -> None:
    task = task_of_v1(Row(ROW, "the row"), Row({"detail_description": "Invert a."}, "its text"))
    (check,) = task.checks
    assert isinstance(check, TestBench)
    assert check.bench.count("top_module") == 1
    assert "top_module good1 (.a, .b(b_ref) );" in check.bench
    assert 'if (stats1.clocks <= 200000) $display("@SAMPLE %b | %b", a, b_ref);' in check.bench
    assert "assign tb_match = 1;" in check.bench
    assert not any(gone in check.bench for gone in ("reference_module", "$dump", "b = ~a"))
    assert task.stub == f"// Invert a.\n{ROW['prompt']}"
    body = program(task, "```verilog\n  assign b = !a;\nendmodule\n```")
    assert body == f"{task.stub}  assign b = !a;\nendmodule\n"
    whole = "module top_module (input a, output b);\nendmodule\n"
    assert program(task, f"Sure.\n```systemverilog\n{whole}```") == whole


def test_a_row_with_another_bench_is_refused() -> None:
    with pytest.raises(DataError, match="'test' is no bench of VerilogEval"):
        task_of_v1(Row({**ROW, "test": "module tb; endmodule"}, "row 1"), Row({}, ""))


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    one = tmp_path / "Logic" / "inverter"
    one.mkdir(parents=True)
    head = "module inverter (input a, output b);\n"
    right = f"{head}  assign b = ~a;\nendmodule\n"
    (one / "design_description.txt").write_text("Invert.\n\nModule name:\n    inverter\n")
    (one / "testbench.v").write_text(SELF_CHECKING)
    (one / "verified_inverter.v").write_text(right.replace("inverter", "verified_inverter"))
    (one / "tb_inverter.v").write_text(SELF_CHECKING)
    (one / "answer_inverter.v").write_text(right)
    (one / "prompt1_inverter.v").write_text(f"// vague\n{head}// Insert code here")
    (one / "prompt3_inverter.v").write_text(f"// b is not a\n{head}// Insert code here")
    return tmp_path


@needs_iverilog
def test_folders_become_tasks_that_are_forgeable(folders: Path) -> None:
    (first,) = load(f"rtllm:{folders}")
    (vague,), (detailed,) = (load(f"verigenllm:prompt{n}@{folders}") for n in (1, 3))
    assert (first.id, first.entry_point, vague.id) == ("inverter",) * 3
    assert vague.stub.startswith("// vague\nmodule inverter (")
    assert detailed.prompt.startswith("// b is not a\n")
    assert detailed.checks == vague.checks
    wrong = f"{vague.stub}assign b = 1;\nendmodule"
    jobs = [Job(task, text) for task in (first, vague) for text in (task.reference, wrong)]
    right, failed, passed, half = judge_all(jobs, stop_early=False)
    for one in (right, passed):
        assert (one.verdict, one.forgeable) == (Verdict.PASS, True)
    assert (failed.verdict, failed.passed, failed.total) == (Verdict.WRONG, 0, 1)
    assert (half.verdict, half.passed, half.total) == (Verdict.WRONG, 1, 2)
    assert half.detail == "the test bench says 'Test Summary: 1/2 tests passed'"


READS = r"""`define DATA "pairs.dat"
module bench_of_inverter();
  reg a, want; reg [1:0] more [0:1]; integer file, tests, read, at, wrong = 0; wire b;
  inverter dut (.a(a), .b(b));
  initial begin
    $readmemb("more.mem", more);
    file = $fopen(`DATA, "r");
    read = $fscanf(file, "%d\n", tests);
    for (at = 0; at < tests; at = at + 1) begin
      read = $fscanf(file, "%b %b\n", a, want); #1 if (b !== want) wrong = wrong + 1;
      {a, want} = more[at]; #1 if (b !== want) wrong = wrong + 1;
    end
    if (wrong == 0) $display("====Your Design Passed====");
    $finish;
  end
endmodule
"""
"""A bench whose tests are in files: without them it would pass any design."""
FORMS = {
    "another name": "module verified_not1 (input a, output b);\n  assign b = ~a;\nendmodule\n",
    "parameters": "// verified_inverter\n"
    "module verified_inverter#(parameter N = 1)(input a, output b);\n"
    "  assign b = ~a;\nendmodule\n",
    "ports below, and a part": "module inner (a, b);\n input a; output b;\n assign b = ~a;\n"
    "endmodule\nmodule verified_top\n(a, b);\n  input a;\n  output b;\n"
    "  inner one (a, b);\nendmodule\n",
    "its own name": "module inverter (input a, output b);\n  assign b = ~a;\nendmodule\n",
}


def in_files(folder: Path, reference: str, bench: str = READS) -> Path:
    (folder / "design_description.txt").write_text("Module name:\n    inverter\n")
    (folder / "testbench.v").write_text(bench)
    (folder / "verified_inverter.v").write_text(reference)
    (folder / "pairs.dat").write_text("2\n0 1\n1 0\n")
    (folder / "more.mem").write_text("01\n10\n")
    return folder


@needs_iverilog
@pytest.mark.parametrize("form", FORMS)
def test_a_bench_finds_its_data_and_a_reference_of_any_form_passes(
    form: str, tmp_path: Path
) -> None:
    (task,) = load(f"rtllm:{in_files(tmp_path, FORMS[form])}")
    wrong = "module inverter (input a, output b); assign b = a; endmodule"
    empty = "module inverter (input a, output b); endmodule"
    right, *others = judge_all([Job(task, text) for text in (task.reference, wrong, empty)])
    assert right.verdict is Verdict.PASS, right.detail
    assert [one.verdict for one in others] == [Verdict.WRONG] * 2


@needs_iverilog
def test_a_bench_that_does_not_compile_is_named_and_no_design_is_blamed(tmp_path: Path) -> None:
    folder = in_files(tmp_path, FORMS["parameters"], READS.replace("wrong = 0", "wrong = = 0"))
    (task,) = load(f"rtllm:{folder}")
    (run,) = judge_all([Job(task, task.reference)], skip_refused=True)
    assert run.verdict is Verdict.UNJUDGED
    named = r"its own reference fails .* with Icarus Verilog .*\(compile\): bench.sv:3: "
    assert re.search(named, run.detail), run.detail


@needs_iverilog
def test_a_reference_that_its_bench_refuses_is_named_and_no_design_is_blamed(
    tmp_path: Path,
) -> None:
    folder = in_files(tmp_path, FORMS["parameters"].replace("~a", "a"))
    (task,) = load(f"rtllm:{folder}")
    (run,) = judge_all([Job(task, task.reference)], skip_refused=True)
    assert (run.verdict, "its own reference fails" in run.detail) == (Verdict.UNJUDGED, True)


@needs_iverilog
def test_a_bench_that_passes_any_design_is_found_by_check(tmp_path: Path) -> None:
    folder = in_files(tmp_path, FORMS["parameters"])
    (folder / "pairs.dat").unlink()
    (checked,) = check(f"rtllm:{folder}", runner=ProgramRunner(Limits(), slots=1))
    assert Flaw.EMPTY_PASSES in [finding.flaw for finding in checked.findings]


def test_a_folder_without_designs_is_named(tmp_path: Path) -> None:
    for spec in (f"rtllm:{tmp_path}", f"verigenllm:prompt1@{tmp_path}"):
        with pytest.raises(DataError, match="give the path of the set's folder"):
            load(spec)


@needs_iverilog
@needs_data
def test_four_references_pass_and_their_ports_alone_do_not() -> None:
    picked = {"human": 0, "machine": 40, "code_complete": 110, "spec_to_rtl": 29}
    tasks = [load(f"verilog_eval:{split}")[number] for split, number in picked.items()]
    empty = [f"{(task.reference or '').partition(';')[0]};\nendmodule\n" for task in tasks]
    jobs = [Job(task, task.reference) for task in tasks]
    ends = judge_all([*jobs, *map(Job, tasks, empty)])
    assert [end.proven for end in ends] == [True] * 4 + [False] * 4
    assert all(end.total == end.passed > 20 for end in ends[:4])


@pytest.mark.long
@needs_iverilog
@needs_data
@pytest.mark.parametrize("split", ["human", "machine", "code_complete"])
def test_the_references_of_verilog_eval_pass_but_those_that_do_not_run(split: str) -> None:
    tasks = load(f"verilog_eval:{split}")
    ends = judge_all([Job(task, task.reference) for task in tasks], skip_refused=True)
    failing = {task.id for task, end in zip(tasks, ends, strict=True) if not end.proven}
    assert failing == NOT_RUNNABLE[split]
