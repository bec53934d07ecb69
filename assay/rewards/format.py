"""Whether the reply has the wanted format, whatever its program does."""

from __future__ import annotations

import re
from typing import Literal

from assay.extract.fences import fenced_blocks
from assay.rewards import reward
from assay.types import Rollout


@reward
def format(
    rollout: Rollout, *, fenced: bool = False, tags: Literal["", "think", "reasoning"] = ""
) -> float:
    """1 if the last completion ended by itself and holds a program; with `tags`, the share of what
    `prompt.reasoning` asks for that is there. `fenced`: 0 without exactly one code block, closed.
    """
    turn = rollout.turns[-1]
    text = turn.completion.text
    one_block = [block.closed for block in fenced_blocks(text)] == [True]
    if turn.completion.ended != "stop" or (fenced and not one_block):
        return 0.0
    return tagged(text, tags) if tags else float(turn.program is not None)


def tagged(text: str, tag: str) -> float:
    """From 0 to 1, in quarters: one reasoning and one answer, each closed and not empty; in this
    order; and nothing around them.
    """
    blocks = [rf"<{one}>((?:(?!</{one}>).)*\S\s*)</{one}>" for one in (tag, "answer")]
    marks = [
        len(re.findall(rf"</?{one}>", text)) == 2 and bool(re.search(block, text, re.DOTALL))
        for one, block in zip((tag, "answer"), blocks, strict=True)
    ]
    ordered = all(marks) and text.index(f"</{tag}>") < text.index("<answer>")
    alone = ordered and re.fullmatch(r"\s*".join(["", *blocks, ""]), text, re.DOTALL)
    return (sum(marks) + ordered + bool(alone)) / 4
