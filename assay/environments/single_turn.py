"""One reply per rollout."""

from assay.environments import Conversation, environment


@environment
async def single_turn(conversation: Conversation) -> None:
    """One reply per rollout, which is judged."""
    await conversation.reply()
