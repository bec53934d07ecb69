"""A program that fails a visible check is shown how, and may be mended."""

from __future__ import annotations

from assay.environments import Talk, environment
from assay.types import Execution, Verdict


@environment
async def repair(talk: Talk, *, turns: int = 3) -> None:
    """Shows how a visible check fails, until none does or `turns` replies are written."""
    visible = [check for check in talk.task.checks if not check.hidden]
    for _ in range(turns - 1 if visible else 0):
        await talk.reply()
        seen = await talk.check(visible)
        if seen.verdict is Verdict.PASS:
            return
        talk.show(said_of(seen))
    await talk.reply()


def said_of(seen: Execution) -> str:
    """What the policy is told of a failure."""
    return f"That is not right ({seen.verdict}). {seen.detail}".strip()
