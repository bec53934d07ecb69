"""Whether the program compiles, and with how few warnings."""

from collections.abc import AsyncIterator

from assay.judge import AnyJudge
from assay.rewards import BatchFunction, reward
from assay.rewards.tools import open_tool, warnings


@reward
async def compiles(
    judge: AnyJudge, *, per_warning: float = 0.04, most: float = 0.4
) -> AsyncIterator[BatchFunction]:
    """1 if the compiler of the task's language makes something of the program, less `per_warning`
    for each of its warnings, at most `most`; else 0. An interpreted program is run instead.
    """
    async with open_tool(
        judge, lambda ended: 1.0 - min(per_warning * warnings(ended), most)
    ) as scores:
        yield scores
