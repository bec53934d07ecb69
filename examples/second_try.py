"""An environment: one more reply if the first program fails.

In the settings of a run:

    plugins = ["second_try.py"]
    environment = { name = "second_try", tries = 2 }
"""

from __future__ import annotations

from assay.environments import Conversation, environment
from assay.types import Verdict


@environment
async def second_try(conversation: Conversation, *, tries: int = 2) -> None:
    """Says that a program failed, without saying how, and lets the model reply again."""
    for left in reversed(range(tries)):
        await conversation.reply()
        execution = await conversation.check()
        if execution.verdict is Verdict.PASS or not left:
            return
        conversation.show("That program fails. Write another one.")
