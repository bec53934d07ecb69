"""No design passes a harness of cocotb by what else it does than to compute, and nothing of it
stays. No screen refuses these: they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from assay.judge import Job
from assay.sandbox.limits import Limits
from assay.types import Execution, Verdict
from tests.judge.harnesses import ADDER, MARK, RIGHT, WRONG, needs_cocotb
from tests.judge.opened import judge_all, take_walls_away
from tests.judge.processes import named, staying
from tests.sandbox.test_launch import WITHOUT

RESULTS = (
    '<testsuites><testsuite><testcase name=\\"adds\\"/><testcase name=\\"adds_nothing\\"/>'
    "</testsuite></testsuites>"
)
SAID = '{"status": 0, "tests": [["adds", ""]], "compiler": "", "fault": ""}'
REPORT = SAID.replace('"', '\\"')
PLACES = ("results.xml", "test_adder[8].result.xml", "sim_build/results.xml",
          "/box/code/rundir/sim_build/test_adder[8].result.xml")  # fmt: skip


def with_body(text: str) -> str:
    """A wrong design with more in its body."""
    return WRONG.replace("endmodule", f"{text}\nendmodule")


def writes(paths: tuple[str, ...], text: str, when: str = "initial") -> str:
    """Verilog that writes a text into files."""
    each = "".join(
        f'f = $fopen("{path}", "w"); $fwrite(f, "{text}"); $fflush(f); $fclose(f); '
        for path in paths
    )
    return f"integer f; {when} begin {each} end"


def reads(path: str) -> str:
    """Verilog that prints a file."""
    return (
        f'integer f, c; initial begin f = $fopen("{path}", "r"); c = $fgetc(f);'
        ' while (c != -1) begin $write("%c", c); c = $fgetc(f); end $fflush; end'
    )


DESCRIPTORS = tuple(f"/proc/self/fd/{n}" for n in range(16))
ATTACKS = {
    "results written at time 0, then finish": with_body(
        writes(PLACES, RESULTS) + " initial #0 $finish;"
    ),
    "results written in a final block": with_body(writes(PLACES, RESULTS, "final")),
    "finish at time 0": with_body("initial $finish;"),
    "finish at the end of the first test": with_body("initial #199 $finish;"),
    "stop, which asks for a command": with_body("initial $stop;"),
    "fatal": with_body('initial $fatal(0, "done");'),
    "printed markers": with_body(
        f'initial begin $display("1 passed"); $display("%s", "{REPORT}"); end'
        f' final $display("\\n{REPORT}");'
    ),
    "the report on standard output's descriptors": with_body(
        f'initial begin $fwrite(1, "{REPORT}"); $fwrite(32\'h80000001, "{REPORT}");'
        f' $fwrite(32\'h80000002, "{REPORT}"); end'
    ),
    "the report on every descriptor": with_body(writes(DESCRIPTORS, REPORT)),
    "the module twice": WRONG + RIGHT.replace("WIDTH = 4", "WIDTH = 8"),
    "more tops": WRONG + "module cocotb; initial $finish; endmodule module test; endmodule",
    "system": with_body('initial begin $system("echo > ../../../src/test_adder.py"); end'),
    "harness overwritten": with_body(
        writes(
            (
                "../../../src/test_adder.py",
                "../../../src/test_runner.py",
                "../../../tools/assay/judge/cocotb_harness/run.py",
            ),
            "",
        )
    ),
    "waves over the harness": with_body(
        'initial begin $dumpfile("../../../src/test_adder.py"); $dumpvars; end'
    ),
    "DPI": with_body('import "DPI-C" function int system(string command);'),
    "a module of VPI by its attribute": '(* vpi_module = "../../../src/x" *)\n'
    + with_body("initial $load_vpi;"),
    "another precision": "`timescale 1s/1s\n" + WRONG,
    "forced ports": with_body("initial force adder.sum = a + b; initial #1 force adder.a = 0;"),
    "zero-delay loop": with_body("reg r = 0; initial #1 forever begin r = ~r; #0; end"),
    "loop in a final block": with_body("final while (1);"),
    "endless output": with_body('initial forever $display("PASS PASS PASS PASS PASS PASS");'),
    "memory": with_body(
        "reg [63:0] m [0:(1<<27)-1]; integer i; initial for (i = 0; i < 1<<27; i = i + 1) m[i] = i;"
    ),
}
READING = {
    "harness read": with_body(reads("../../../src/test_adder.py")),
    "harness included": WRONG.replace(
        "endmodule", 'endmodule\n`include "../../../src/test_adder.py"'
    ),
    "job read": with_body(reads("../../../job.json")),
    "memory of the tests read": with_body(reads("/proc/self/environ")),
    "host's file read": with_body(reads("/etc/passwd")),
}
SLOW = ("zero-delay loop", "loop in a final block", "memory", "endless output")
LOOPS = ("zero-delay loop", "loop in a final block")
"""Those that only their time ends."""
SIMULATORS = ("vvp", "iverilog", "ivl")
EXPECTED = {
    "zero-delay loop": Verdict.TIMEOUT, "endless output": Verdict.OUTPUT,
    "the module twice": Verdict.COMPILE, "DPI": Verdict.COMPILE,
}  # fmt: skip


def judged(programs: Mapping[str, str]) -> dict[str, Execution]:
    task = replace(ADDER, reference=None)
    jobs = [Job(task, program) for program in programs.values()]
    limits = Limits(cpu_seconds=1, wall_seconds=5)
    return dict(zip(programs, judge_all(jobs, limits), strict=True))


@needs_cocotb
def test_no_attack_passes_and_no_simulator_stays() -> None:
    before = named(*SIMULATORS)
    quick = {name: program for name, program in ATTACKS.items() if name not in SLOW}
    for name, execution in judged(quick).items():
        bad = (Verdict.PASS, Verdict.INFRA, Verdict.UNJUDGED)
        assert execution.verdict not in bad, (name, execution)
        assert execution.verdict is EXPECTED.get(name, execution.verdict), name
    assert not staying(SIMULATORS, before)


@needs_cocotb
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LOOPS)) for name in SLOW]
)
def test_what_goes_on_for_ever_is_stopped(name: str) -> None:
    before = named(*SIMULATORS)
    execution = judged({name: ATTACKS[name]})[name]
    assert execution.verdict not in (Verdict.PASS, Verdict.INFRA, Verdict.UNJUDGED), execution
    assert execution.verdict is EXPECTED.get(name, execution.verdict)
    assert not staying(SIMULATORS, before)


@needs_cocotb
def test_a_design_reads_neither_the_tests_nor_the_machine() -> None:
    for name, execution in judged(READING).items():
        assert execution.verdict in (Verdict.WRONG, Verdict.COMPILE), name
        said = execution.output + execution.stderr
        assert MARK not in said
        assert "root:x" not in said
        assert "PYGPI" not in said


@needs_cocotb
def test_a_design_cannot_open_what_the_simulator_answers_the_tests_through() -> None:
    each = "".join(
        f'f = $fopen("/proc/self/fd/{n}", "{how}"); if (f) $display("opens %0d", {n}); '
        for n in range(3, 64) for how in "ra"
    )  # fmt: skip
    opens = RIGHT.replace("endmodule", f"integer f; initial begin {each} end endmodule")
    execution = judged({"opens": opens})["opens"]
    assert execution.verdict is Verdict.PASS, execution.detail
    assert "opens" not in execution.stderr


@needs_cocotb
@pytest.mark.parametrize("tier", WITHOUT)
def test_a_right_design_passes_whatever_else_it_does(
    monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    take_walls_away(monkeypatch, tier)
    body = 'initial $display("PASS"); final $display("done"); always @(sum) if (0) $error("no");'
    right = judged({"right": RIGHT.replace("endmodule", f"{body}\nendmodule")})["right"]
    assert right.verdict is Verdict.PASS, right.detail
    assert right.proven
