"""One reply, which is judged."""

from __future__ import annotations

from assay.environments import Talk, environment


@environment
async def single_turn(talk: Talk) -> None:
    """One reply, which is judged."""
    await talk.reply()
