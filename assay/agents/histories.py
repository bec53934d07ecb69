"""The canonical messages of requests. A client sends its whole history with each call: the messages
that a request shares with one before are compared, and nothing of them is worked out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.agents.calls import RefusedCallError
from assay.agents.canonical import canonical, chain
from assay.bounded import size_of

RECENT, MOST_BYTES = 4, 2 << 20
"""Requests of a rollout whose messages are kept: of the agent and of sub-agents beside it; and the
most bytes that those of one may take. What is larger is read anew with each request."""


@dataclass(frozen=True, slots=True)
class History:
    """The messages of a request."""

    messages: tuple[Mapping[str, Any], ...]
    keys: tuple[str, ...]
    """Their canonical forms."""
    digests: tuple[bytes, ...]
    """Of each beginning, from the first message to all of them."""
    sizes: tuple[int, ...]
    """About how many bytes each beginning takes, with all that clients sent beside the text."""


class HistoryCache:
    """The last requests of one rollout. It is bounded by RECENT bodies, and ends with its rollout.
    What is kept is compared whole, never by a digest.
    """

    def __init__(self) -> None:
        self._recent: list[History] = []

    def read(self, messages: Sequence[Mapping[str, Any]]) -> History:
        """The messages with their canonical forms. Raises RefusedCallError for messages that cannot
        be shown to the policy.
        """
        shared, before = 0, None
        for recent in self._recent:
            count = _shared(recent.messages, messages)
            if count > shared:
                shared, before = count, recent
            if count == len(recent.messages):
                break
        keys = before.keys[:shared] if before else ()
        digests = before.digests[:shared] if before else ()
        try:
            new = tuple(map(canonical, messages[shared:]))
        except (ValueError, AttributeError) as error:
            raise RefusedCallError(f"messages: {error}", param="messages") from None
        digests += tuple(chain(new, digests[-1] if digests else b""))
        sizes = list(before.sizes[:shared] if before else ())
        for message in messages[shared:]:
            sizes.append(size_of(message) + (sizes[-1] if sizes else 0))
        read = History((*messages,), (*keys, *new), digests, (*sizes,))
        if not messages or sizes[-1] > MOST_BYTES:  # token ids have no messages
            return read
        others = [each for each in self._recent if each is not before or shared < len(each.keys)]
        self._recent = [read, *others][:RECENT]
        return read


def _shared(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> int:
    """With how many equal messages two conversations begin."""
    count = 0
    for our, their in zip(ours, theirs, strict=False):
        if our != their:
            break
        # In Python 1 == 1.0 == True, which are other arguments of a call.
        if our.get("role") == "assistant" and repr(our) != repr(their):
            break
        count += 1
    return count
