"""How few warnings a linter has for a Verilog design."""

import re
from collections.abc import AsyncIterator

from assay.judge import AnyJudge
from assay.judge.kinds.verilog_screen import without_comments
from assay.languages import Language
from assay.rewards import BatchFunction, reward
from assay.rewards.tools import open_tool, warnings

CONFIGURES = re.compile(r"`\s*verilator_config")
VERILATOR = Language(
    title="verilator", source="design.sv", package="verilator", runtime_mb=256,
    # `verilator` itself is a script that starts this
    run=("verilator_bin", "--lint-only", "-Wall", "-Wno-fatal", "-Wno-DECLFILENAME",
         "-Wno-EOFNEWLINE", "design.sv"),
    environment={"VERILATOR_ROOT": "/usr/share/verilator"},
)  # fmt: skip


@reward
async def lint(judge: AnyJudge, *, per_warning: float = 0.1) -> AsyncIterator[BatchFunction]:
    """1 less `per_warning` for each warning of verilator's, at least 0; 0 for a design that it
    cannot read. Comments are removed first: they can switch its warnings off.
    """
    async with open_tool(
        judge, lambda ended: max(0.0, 1.0 - per_warning * warnings(ended)), VERILATOR, unsilenced
    ) as scores:
        yield scores


def unsilenced(source: str) -> str:
    """The design without what switches verilator's warnings off: comments; and its own directive
    becomes one that nobody defines.
    """
    return CONFIGURES.sub("`no_such_directive", without_comments(source))
