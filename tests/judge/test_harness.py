"""Harnesses of cocotb: their tests drive a design that is simulated in another process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assay.checks import Harness
from assay.extract import program as extracted
from assay.judge import Job
from assay.judge.kinds.harness import decide, files_of, joined
from assay.sandbox.program import Ended, Result
from assay.types import Cause, Execution, Task, Verdict
from tests.judge.harnesses import (
    ADDER,
    RIGHT,
    RUNNER,
    TESTS,
    WRONG,
    harness,
    needs_cocotb,
    variables,
)
from tests.judge.opened import judge_all

CLOCKED = """module adder #(parameter WIDTH = 4) (input clk, input [7:0] a, output reg [7:0] sum);
  wire [7:0] next = a + 1;
  always @(posedge clk) sum <= next;
endmodule
"""
TRACES = """
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, First, ReadOnly, RisingEdge, Timer
from cocotb.utils import get_sim_time
from cocotb.handle import Immediate

@cocotb.test()
async def traces(dut):
    seen = []
    def note(what):
        values = dut.clk.value, dut.a.value, dut.sum.value
        seen.append(" ".join(map(str, (what, get_sim_time("ns"), *values))))
    async def watch(edge, what):
        while True:
            await edge(dut.clk)
            note(what)
            await ReadOnly()
            note(what + " settled")
    clock = Clock(dut.clk, 10, unit="ns")
    cocotb.start_soon(clock.start())
    cocotb.start_soon(watch(RisingEdge, "rises"))
    cocotb.start_soon(watch(FallingEdge, "falls"))
    for n in range(6):
        dut.a.value = n
        await Timer(5, unit="ns")   # together with an edge
        note("timer")
        dut.a.value = n + 100
        await RisingEdge(dut.clk)
        dut.a.value = n + 50
        note("edge")
        await Timer(3, unit="ns")
        dut.a.value = Immediate(n + 25)
        await First(Timer(2, unit="ns"), FallingEdge(dut.clk))
    await ClockCycles(dut.clk, 2)
    clock.stop()
    await Timer(20, unit="ns")
    note("end")
    print("TRACE " + "; ".join(seen))
"""

ENDS_AT_9 = TESTS.replace("    for", "    len(dut.sum) < 9 or __import__('os')._exit(0)\n    for")
SUPPRESSED = "    with __import__('contextlib').suppress(BaseException): runner.test("


def judged(*jobs: Job) -> list[Execution]:
    return list(judge_all(jobs))


class Executions(dict[str, Execution]):
    """By name, each judged once, when it is first asked for."""

    def __init__(self, jobs: dict[str, Job]) -> None:
        super().__init__()
        self._jobs = jobs

    def __missing__(self, name: str) -> Execution:
        (self[name],) = judged(self._jobs[name])
        return self[name]


@pytest.fixture(scope="module")
def executions() -> Executions:
    """Of several designs and harnesses."""
    broken = replace(ADDER, checks=(harness("import absent\n"),))
    uncollected = replace(ADDER, checks=(harness(runner="import absent\n"),))
    untested = replace(ADDER, checks=(harness(runner="def test_nothing(): pass\n"),))
    gives_up = replace(ADDER, checks=(harness(runner=f"{RUNNER}    pytest.exit('no')\n"),))
    careless = RUNNER.replace("[8]", "[8, 9]").replace("    runner.test(", SUPPRESSED)
    twice = replace(ADDER, checks=(harness(ENDS_AT_9, careless),))
    jobs = {
        "right": Job(ADDER, RIGHT), "wrong": Job(ADDER, WRONG),
        "does not compile": Job(ADDER, RIGHT.replace("endmodule", "")),
        "empty": Job(ADDER, "module adder #(parameter WIDTH = 4); endmodule"),
        "absent": Job(ADDER, "module other; endmodule"), "nothing": Job(ADDER, " "),
        "broken tests": Job(broken, RIGHT), "broken runner": Job(uncollected, RIGHT),
        "no tests": Job(untested, RIGHT), "gives up": Job(gives_up, RIGHT),
        "one simulation of two": Job(twice, RIGHT),
    }  # fmt: skip
    return Executions(jobs)


@needs_cocotb
def test_a_right_design_passes_and_its_pass_takes_nobodys_word(
    executions: Executions,
) -> None:
    right = executions["right"]
    assert (right.verdict, right.passed, right.total) == (Verdict.PASS, 2, 2), right.detail
    assert right.proven


@needs_cocotb
def test_a_wrong_design_fails_with_the_message_of_the_first_failing_test(
    executions: Executions,
) -> None:
    wrong = executions["wrong"]
    assert (wrong.verdict, wrong.passed, wrong.total) == (Verdict.WRONG, 1, 2)
    assert re.match(r"adds: \d+ \+ \d+ is not 00000000", wrong.detail)


@needs_cocotb
@pytest.mark.parametrize(
    "name",
    [
        "does not compile",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("absent", "nothing")),
    ],
)
def test_what_the_compiler_refuses_is_a_failure_to_compile(
    executions: Executions, name: str
) -> None:
    assert executions[name].verdict is Verdict.COMPILE


@needs_cocotb
@pytest.mark.long
def test_a_module_without_ports_fails_each_test(executions: Executions) -> None:
    empty = executions["empty"]
    assert (empty.verdict, empty.passed, empty.total) == (Verdict.WRONG, 0, 2)


@needs_cocotb
@pytest.mark.parametrize(
    "name", ["broken tests", pytest.param("broken runner", marks=pytest.mark.long)]
)
def test_a_harness_that_cannot_be_loaded_is_the_tasks_fault(
    executions: Executions, name: str
) -> None:
    assert (executions[name].verdict, executions[name].cause) == (Verdict.UNJUDGED, Cause.TASK)


@needs_cocotb
@pytest.mark.long
def test_a_harness_that_drives_no_design_passes_none(executions: Executions) -> None:
    assert executions["no tests"].verdict is Verdict.WRONG


@needs_cocotb
def test_a_simulation_without_results_fails_even_where_the_harness_does_not_mind(
    executions: Executions,
) -> None:
    stopped = executions["one simulation of two"]
    assert (stopped.verdict, stopped.passed, stopped.total) == (Verdict.WRONG, 2, 3)


@needs_cocotb
@pytest.mark.long
def test_a_harness_that_gives_up_on_a_design_fails_the_design(
    executions: Executions,
) -> None:
    assert executions["gives up"].verdict is Verdict.WRONG


def in_cocotb(folder: Path, design: str) -> str:
    """What the trace's test prints where the tests and the design share a process."""
    from cocotb_tools import config

    files = {"src/test_adder.py": TRACES, "src/test_runner.py": RUNNER, "rtl/adder.sv": design}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    vpi = "libcocotbvpi_icarus"
    (folder / f"{vpi}.vpi").symlink_to(f"{config.libs_dir}/{vpi}.so")
    # Icarus 11 takes no path of a module
    plain = f"""
import pytest
from cocotb_tools import config, runner
made, config.lib_entry = runner.Icarus._test_command, lambda *_: {vpi!r}
runner.Icarus._test_command = lambda self: [["vvp", "-M", {str(folder)!r}, *made(self)[0][1:]]]
pytest.main(["-s", "-pno:cacheprovider", "src/test_runner.py"])
"""
    more = {
        "VERILOG_SOURCES": f"{folder}/rtl/adder.sv", "PYTHONPATH": f"{folder}/src", "WAVES": "0",
        "LD_LIBRARY_PATH": str(config.libs_dir),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", plain], cwd=folder, env={**os.environ, **variables(), **more},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@needs_cocotb
def test_signals_change_when_they_do_in_cocotb_itself(tmp_path: Path) -> None:
    clocked = replace(ADDER, checks=(harness(TRACES),), reference=None)
    ours = judged(Job(clocked, CLOCKED))[0]
    assert ours.verdict is Verdict.PASS, ours.detail
    traces = [re.findall("TRACE .*", text) for text in (ours.stderr, in_cocotb(tmp_path, CLOCKED))]
    assert len(traces[0]) == 1
    assert len(traces[0][0].split("; ")) > 40
    assert traces[0] == traces[1]


def reported(**parts: object) -> Result:
    said = {"status": 0, "tests": [["adds", ""]], "compiler": "", "fault": "", "built": True}
    said |= parts
    return Result(Ended.EXITED, stdout=json.dumps(said).encode())


def test_a_report_passes_only_if_all_of_its_tests_did() -> None:
    assert decide(reported()).verdict is Verdict.PASS
    for parts, verdict in (
        ({"tests": []}, Verdict.WRONG),
        ({"status": 1}, Verdict.WRONG),
        ({"tests": [["adds", ""], ["wraps", "no"]]}, Verdict.WRONG),
        ({"compiler": "x.sv:1: syntax error"}, Verdict.COMPILE),
        ({"status": 2}, Verdict.WRONG),
        ({"status": 4, "built": False}, Verdict.UNJUDGED),
        ({"status": "0"}, Verdict.UNJUDGED),
        ({"compiler": 1}, Verdict.UNJUDGED),
        ({"tests": [[1]]}, Verdict.UNJUDGED),
        ({"fault": "no"}, Verdict.UNJUDGED),
    ):
        assert decide(reported(**parts)).verdict is verdict
    for stdout in (b"", b"[]", b"{}", b"PASS"):
        assert decide(Result(Ended.EXITED, stdout=stdout)).verdict is Verdict.UNJUDGED


def test_a_program_of_several_files_is_taken_apart_at_its_headings() -> None:
    check = Harness({}, ("rtl/a.sv", "rtl/b.sv"), ())
    files = {"rtl/a.sv": "module a; endmodule\n", "rtl/b.sv": "module b; endmodule\n"}
    program = joined(files | {"src/test_adder.py": "forged"})
    assert {name: text.strip() for name, text in files_of(check, program).items()} == {
        name: text.strip() for name, text in files.items()
    }
    blocks = "\nand\n".join(
        f"```verilog\n// file: {name}\n{text}```" for name, text in files.items()
    )
    task = Task("two", "", (check,), "a", "verilog")
    assert files_of(check, extracted(task, f"Both:\n{blocks}") or "").keys() == files.keys()
    assert files_of(replace(check, targets=("rtl/a.sv",)), "module a;") == {"rtl/a.sv": "module a;"}
