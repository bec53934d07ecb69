"""Verilog drills: references pass in a real simulation, and modules with one thing wrong fail."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from assay.judge import Job, judge_all
from assay.tasks import load
from assay.tasks.verilog_drills import (
    CHANGES,
    FIRST,
    UPDATES,
    Module,
    _splits,
    near_misses,
    prompt,
    short,
    steps,
)

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
WIRES = Module(FIRST[0], (CHANGES[0], CHANGES[2]))
CLOCKED = Module(UPDATES[0], (CHANGES[0],), reset=5, enabled=True)


def test_a_module_is_said_and_written_by_its_steps() -> None:
    assert prompt(WIRES) == "a plus b, invert, shift left"
    assert short(WIRES) == "  assign y = (~(a + b)) << 1;\nendmodule\n"
    assert prompt(CLOCKED) == "reset to 5, count up while en, invert"
    assert short(CLOCKED).splitlines()[1:] == [
        "  always @(posedge clk)",
        "    if (rst) q <= 4'd5;",
        "    else if (en) q <= q + 4'd1;",
        "  assign y = ~q;",
        "endmodule",
    ]
    assert "  wire [3:0] step1 = ~q;\n  assign y = step1;\n" in steps(CLOCKED)


def test_test_has_pairs_of_steps_that_train_never_shows() -> None:
    train, test = (
        {(one.first.phrase, one.changes[0].phrase) for one in _splits()[split] if one.changes}
        for split in ("train", "test")
    )
    assert len(test) > 20
    assert not train & test
    for at in (0, 1):
        assert {pair[at] for pair in test} <= {pair[at] for pair in train}


def test_some_demonstrations_are_wrong_and_those_of_a_task_are_the_same_every_time() -> None:
    tasks = load("verilog_drills:train", limit=30)
    assert [one.demonstrations for one in tasks] == [
        one.demonstrations for one in load("verilog_drills:train", limit=30)
    ]
    assert not any(one.demonstrations for one in load("verilog_drills:test", limit=5))


@needs_icarus
def test_references_and_both_styles_pass_and_near_misses_fail() -> None:
    jobs, wanted = [], []
    for task in load("verilog_drills:test", limit=4):
        jobs.append(Job(task, task.reference))
        wanted.append("pass")
    wires, clocked = (
        next(one for one in load("verilog_drills:train") if one.prompt.startswith(start))
        for start in ("// a plus b", "// reset to 5")
    )
    for task, module in ((wires, WIRES), (clocked, CLOCKED)):
        task = replace(task, reference=task.stub + short(module))
        programs = [
            steps(module),
            *map(short, near_misses(module)),
            *map(steps, near_misses(module)),
        ]
        jobs += [Job(task, task.stub + program) for program in programs]
        wanted += ["pass", *["wrong"] * (len(programs) - 1)]
    assert [str(one.verdict) for one in judge_all(jobs)] == wanted
