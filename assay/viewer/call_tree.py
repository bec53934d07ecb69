"""An agent's calls as a tree: what of each was learned, what was not and why, and the sums."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from assay.agents.records import MOST_CALLS, TEXT
from assay.agents.tree import LEARNED
from assay.types import UNJUDGED_CAUSES

UNUSED, UNKNOWN = "unused", "unknown"
"""What became of tokens that are neither learned nor left out for a reason of the agent's calls:
their rollout is one of an evaluation, or of a group that the learner did not use; the row does not
say it."""
WORD = 40
"""Characters of a reason or a finish reason; each of ours has fewer."""
NUMBERS = ("number", "tokens", "characters", "retries", "seconds")


def call_tree(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The calls of a rollout, from the rows of its turns: each with its `level` and its `outcome`,
    in the order of the tree, and the `sums` of tokens by the outcome. None without any.

    Another program may have written the rows, so they are bounded again. A call whose parent does
    not stand before it begins a conversation; what has no id or an earlier one's is left out.
    """
    first = next((row for row in rows if row["agent_calls"]), None)
    if first is None:
        return None
    listed = [call for call in first["agent_calls"] if call and call["id"] is not None]
    listed = listed[:MOST_CALLS]
    of_turns = _outcome_of_turns(first, listed)
    calls = dict[int, dict[str, Any]]()
    for call in listed:
        if call["id"] in calls:
            continue
        is_known = call["parent"] in calls
        outcome = (call["reason"] or "")[:WORD] or (UNKNOWN if call["turn"] is None else of_turns)
        calls[call["id"]] = (
            {name: call[name] for name in ("id", "turn", "sample")}
            | {name: call[name] or 0 for name in NUMBERS}
            | {"text": (call["text"] or "")[:TEXT], "ended": (call["ended"] or "")[:WORD]}
            | {"outcome": outcome}
            | {"parent": call["parent"] if is_known else None}
        )
    recorded = Counter[str]()
    for call in calls.values():
        recorded[call["outcome"]] += call["tokens"]
    sums = recorded
    if first["unlearned"] is not None:
        sums = Counter({name[:WORD]: tokens or 0 for name, tokens in first["unlearned"]})
        sums[of_turns] += sum(row["length"] or 0 for row in rows)
    return {
        "calls": _in_order(calls),
        "count": max(first["agent_call_count"] or 0, len(calls)),
        "sums": sorted(((name, n) for name, n in sums.items() if n), key=_rank),
        "total": sums.total(),
        "recorded": recorded.total(),
    }


def _outcome_of_turns(row: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> str:
    """What became of the tokens of a rollout's turns."""
    if row["failure"] is not None:
        return "unjudged" if row["cause"] in UNJUDGED_CAUSES else "machine"
    return LEARNED if any(call["sample"] is not None for call in calls) else UNUSED


def _in_order(calls: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The calls with their levels, each before those that continue it."""
    children = defaultdict[int | None, list[int]](list)
    for id, call in calls.items():
        children[call["parent"]].append(id)
    ordered, left = [], [(id, 1) for id in reversed(children[None])]
    while left:  # a conversation may be longer than Python's stack
        id, level = left.pop()
        ordered.append({**calls[id], "level": level})
        left += [(child, level + 1) for child in reversed(children[id])]
    return ordered


def _rank(item: tuple[str, int]) -> tuple[bool, int, str]:
    """Learned tokens first, then those of the most."""
    name, tokens = item
    return name != LEARNED, -tokens, name
