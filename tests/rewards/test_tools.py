"""Rewards that run a compiler, yosys or verilator, with the real tools."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace

import pytest

from assay.errors import DataError
from assay.judge import Judge
from assay.judge.kinds.verilog_screen import without_comments
from assay.languages import Language
from assay.rewards import build
from assay.rewards.quality import quality
from assay.rewards.tools import open_tool
from assay.types import Execution, Rollout
from tests.integrations.server import children
from tests.rewards.test_rewards import rollout

ADDER = (
    "module top(input [3:0] a, input [3:0] b, output [3:0] y);\n  assign y = a + b;\nendmodule\n"
)
LATCH = """module top(input [3:0] a, input b, output reg [3:0] y);
  always @* if (b) y = a;
endmodule
"""
UNDRIVEN = "module top(output y);\n  wire x;\n  assign y = x;\nendmodule\n"
BROKEN = "module top(input a, output y);\n  assign y = ;\nendmodule\n"


def of(program: str | None, language: str = "verilog") -> Rollout:
    one = rollout(program=program)
    return replace(one, task=replace(one.task, language=language))


def scores(term: str, *rollouts: Rollout) -> list[float]:
    async def run() -> list[Rollout]:
        reward = build({term: {}})
        async with Judge(allow_weak=True) as judge, reward.open(judge):
            return await reward(rollouts)

    ended = asyncio.run(run())
    return [one.score.total for one in ended if one.score is not None]


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


@needs("yosys")
def test_a_design_synthesises_without_latches_loops_and_wires_that_nothing_drives() -> None:
    programs = (ADDER, LATCH, UNDRIVEN, BROKEN, "", None)
    assert scores("synthesis", *map(of, programs)) == [1, 0, 0, 0, 0, 0]


@needs("verilator_bin")
def test_lint_counts_verilators_warnings_and_comments_do_not_silence_it() -> None:
    silent = f"/* verilator lint_off LATCH */\n{LATCH}"
    assert scores("lint", *map(of, (ADDER, LATCH, silent, BROKEN))) == [1, 0.9, 0.9, 0]


@needs("iverilog")
def test_a_program_that_compiles_is_rewarded_and_warnings_cost() -> None:
    loud = ADDER.replace("a + b", "a[5] + b")
    assert scores("compiles", *map(of, (ADDER, loud, BROKEN, None))) == [1, 0.96, 0, 0]


def test_equal_programs_of_a_batch_are_run_once() -> None:
    async def run() -> tuple[list[float], int]:
        graded: list[str] = []

        def grade(ended: Execution) -> float:
            graded.append(ended.output)
            return len(graded)

        async with Judge(allow_weak=True) as judge, open_tool(judge, grade) as ask:
            found = await ask([of("print(1)", "python")] * 3)
            return [one for one in found if isinstance(one, float | int)], len(graded)

    assert asyncio.run(run()) == ([1, 1, 1], 1)


def test_terms_that_run_tools_start_no_judge_of_their_own() -> None:
    async def run() -> None:
        reward = build({"compiles": {}})
        async with Judge(allow_weak=True, slots=1) as judge:
            before = children(os.getpid())
            async with reward.open(judge):
                (scored,) = await reward([of("print(1)", "python")])
                assert scored.score is not None
                assert scored.score.total == 1
                assert children(os.getpid()) == before
            assert (await judge.execute("print(2)")).execution.output == "2\n"

    asyncio.run(run())


def test_a_tool_that_is_not_installed_is_told_before_any_program_runs() -> None:
    tool = Language(title="absent", source="a", run=("no-such-tool", "a"), package="nothing")

    async def run() -> None:
        async with open_tool(Judge(), lambda ended: 1.0, tool):
            pass

    with pytest.raises(DataError, match="no-such-tool is not installed"):
        asyncio.run(run())


def test_comments_are_told_from_strings() -> None:
    source = 'a // b "c\n"d // e" /* f\n"g" */ h /* open'
    assert without_comments(source) == 'a  \n"d // e"  \n h  '
    lines, name = '"a\\\n// b" c ', r"\d//e "
    assert without_comments(f"{lines}{name}// f") == f"{lines}{name} "


def test_quality_counts_unused_names_odd_names_and_long_lines() -> None:
    spare = ADDER.replace("  assign", "  wire unusedName;\n  assign")
    assert quality(of(ADDER)) == 1
    assert quality(of(spare)) == pytest.approx(1 - 0.1 - 0.05)
    assert quality(of(ADDER + "//" + "x" * 90)) == pytest.approx(1 - 0.02)
    assert quality(of("// wire a;")) == 1
    assert quality(of("")) == quality(of(None)) == 0
    many = "module m;\n" + "".join(f"wire A{n}b; // {'x' * 90}\n" for n in range(20)) + "endmodule"
    assert quality(of(many)) == pytest.approx(1 - 0.4 - 0.3 - 0.2)
