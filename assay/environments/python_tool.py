"""The policy may run Python before it answers: blocks in `<code>`, in an interpreter of the rollout's own."""

from __future__ import annotations

from pydantic import PositiveInt

from assay.environments import Talk, environment

OPEN, CLOSE = "<code>", "</code>"


@environment
async def python_tool(talk: Talk, *, turns: PositiveInt = 4) -> None:
    """Runs `<code>...</code>` and shows `<output>...</output>`, until a reply has none or is the last of `turns`."""
    async with talk.judge.interpreter() as python:
        for _ in range(turns - 1):
            _, opened, code = (await talk.reply(stop=(CLOSE,))).rpartition(OPEN)
            if not opened:
                return
            seen = await python.run(code.partition(CLOSE)[0])
            talk.show("<output>\n" + seen.output.removesuffix("\n") + "\n</output>")
    await talk.reply()
