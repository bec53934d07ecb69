"""What a run keeps of an agent's calls: a list that is bounded, whatever the agent did."""

from __future__ import annotations

from dataclasses import replace

from assay.agents.tree import CallNode, CallTree, LostCall
from assay.types import AgentCall, AgentCalls

MOST_CALLS = 1000
"""Calls of a rollout that are recorded, the first."""
TEXT, MOST_TEXT = 2000, 2**16
"""Characters of a reply that is no turn, and of all of these of a rollout, that are recorded."""


def recorded_calls(tree: CallTree, first_turn: int = 0) -> AgentCalls:
    """The calls of a tree whose replies to learn are a rollout's turns from `first_turn` on.

    The text of a turn stands in the turn, so it is not recorded again; nor is what the agent says.
    """
    turns = {node: number for number, node in enumerate(tree.learned(), first_turn)}
    reasons, left = tree.reasons(), MOST_TEXT
    # A call begins after the reply that it continues, so its parent has a smaller number.
    nodes: list[CallNode | LostCall] = [*tree.nodes, *tree.lost_calls]
    nodes.sort(key=lambda node: node.number)
    ids = {node: place for place, node in enumerate(nodes[:MOST_CALLS])}
    calls = []
    for node, place in ids.items():
        parent = ids[node.parent] if node.parent else None
        call = AgentCall(
            place, parent, node.number, 0, retries=node.times.retries, seconds=node.times.seconds
        )
        if isinstance(node, LostCall):
            call = replace(call, tokens=node.tokens, reason=str(node.reason))
        else:
            call = _with_reply(call, node)
            if node in turns:
                call = replace(call, turn=turns[node])
            else:
                text = node.completion.text[: min(TEXT, left)]
                left -= len(text)
                call = replace(call, reason=str(reasons[node]), text=text)
        calls.append(call)
    return AgentCalls(tuple(calls), len(tree.nodes) + tree.lost_count)


def _with_reply(call: AgentCall, node: CallNode) -> AgentCall:
    completion = node.completion
    ended = "tool_calls" if node.calls else completion.ended
    return replace(call, tokens=completion.length, ended=ended, characters=len(completion.text))
