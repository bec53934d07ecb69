"""Whether the reply has the wanted format, whatever its program does."""

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
    insides = [text.partition(f"<{name}>")[2].partition(f"</{name}>") for name in (tag, "answer")]
    marks = [
        len(re.findall(rf"</?{name}>", text)) == 2 and bool(closed and inside.strip())
        for name, (inside, closed, _) in zip((tag, "answer"), insides, strict=True)
    ]
    ordered = all(marks) and text.index(f"</{tag}>") < text.index("<answer>")
    before, between = text.partition(f"<{tag}>")[0], insides[0][2].partition("<answer>")[0]
    alone = ordered and not f"{before}{between}{insides[1][2]}".strip()
    return (sum(marks) + ordered + alone) / 4
