"""Whether the reply has the wanted format, whatever its program does."""

from __future__ import annotations

from assay.extract import fenced_blocks
from assay.rewards import reward
from assay.types import Rollout


@reward
def format(rollout: Rollout, *, fenced: bool = False) -> float:
    """1 if the last completion ended by itself and holds a program; `fenced`: in exactly one
    closed code block.
    """
    turn = rollout.turns[-1]
    if turn.completion.ended != "stop" or turn.program is None:
        return 0.0
    return float(
        [block.closed for block in fenced_blocks(turn.completion.text)] == [True] or not fenced
    )
