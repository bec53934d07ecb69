"""Whether a Verilog design can be made into hardware."""

from collections.abc import AsyncIterator

from assay.judge import AnyJudge
from assay.languages import Language
from assay.rewards import BatchFunction, reward
from assay.rewards.tools import open_tool

LATCHES = "t:$dlatch t:$adlatch t:$dlatchsr t:$sr"
YOSYS = Language(
    title="yosys", source="design.sv", package="yosys", asks_version="-V", runtime_mb=256,
    run=("yosys", "-q", "-p",
         "read_verilog -sv design.sv; hierarchy -check -auto-top; proc; flatten; opt; fsm; "
         f"memory -nomap; opt; select -assert-none {LATCHES}; check -assert"),
)  # fmt: skip


@reward
async def synthesis(judge: AnyJudge) -> AsyncIterator[BatchFunction]:
    """1 if yosys synthesises the design without a latch, a loop or a wire that nothing drives; else
    0.
    """
    async with open_tool(judge, lambda ended: 1.0, YOSYS) as scores:
        yield scores
