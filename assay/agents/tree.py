"""The calls of one rollout as a tree: which call continues which, what of it is learned, and the
balance of its tokens.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from assay.agents.canonical import chain
from assay.types import Completion, Message, ToolCall, Turn

MOST_TOKENS = 2**20
"""Tokens that a tree keeps which forgets replies: about 50 MB."""
MOST_LOST = 1000
"""Calls without a reply that a tree keeps, the first; the tokens of all are counted."""
LEARNED = "learned"
"""Names, in a balance, the tokens that are learned."""
PaidRoots = Literal["first", "all"]
"""Which conversations of a rollout are learned: those that descend from its first, or all."""


class Unlearned(StrEnum):
    """Why sampled tokens are not learned."""

    AUXILIARY = "auxiliary"
    """A conversation beside the agent's own, without tools where that has some: a title, say."""
    FOREIGN_ROOT = "foreign_root"
    """A conversation that does not begin as the agent's first one does, where only those are paid:
    a program that the policy wrote may have started it."""
    ABANDONED = "abandoned"
    """A whole reply that no client was there to take, and that no retry asked for again."""
    CLIENT_GONE = "client_gone"
    """Sampled for a client that hung up, until the call was cancelled."""
    SEALED = "sealed"
    """Sampled when the rollout had ended."""
    MACHINE = "machine"
    """Beside a reply that the engine failed, or of a rollout that the machine lost."""


@dataclass(eq=False, slots=True)
class CallTimes:
    """How long a call took, and how often it was sent."""

    seconds: float = 0.0
    """From its beginning to its end."""
    retries: int = 0
    """How often its client sent it again and joined it, or got its answer again."""


@dataclass(eq=False, slots=True)
class CallNode:
    """One sampled reply: what was asked, what was sampled, and how the client was shown it."""

    number: int
    """Its place in the order in which calls began."""
    parent: CallNode | None
    """The reply that its request continues; None where a conversation begins."""
    keys: tuple[str, ...]
    """The canonical messages of its request; none where its client sent token ids."""
    reply_key: str
    """The canonical message of its reply."""
    tools_key: str
    """Its request's tools, canonically; empty without any."""
    prompt: tuple[int, ...]
    """[P] token ids of its prompt."""
    completion: Completion
    """What the engine sampled: token ids, log-probabilities, versions, why it ended."""
    conversation: tuple[Message, ...] = ()
    """The messages that the prompt was rendered of."""
    calls: tuple[ToolCall, ...] = ()
    call_ids: tuple[str, ...] = ()
    altered: bool = False
    """Whether the client was shown something else than the tokens say: a stop string was cut off,
    or all calls but the first."""
    delivered: bool = False
    """Whether a client took the answer."""
    children: list[CallNode] = field(default_factory=list)
    latest: int = 0
    """The number of the last call that descends from it."""
    end: bytes = b""
    """The digest of its request's messages and its reply; empty without messages."""
    times: CallTimes = field(default_factory=CallTimes)
    """Those of its call."""

    def __post_init__(self) -> None:
        if not self.end and self.keys:
            *_, self.end = chain((*self.keys, self.reply_key))

    @property
    def tokens(self) -> tuple[int, ...]:
        """[T] its prompt and what was sampled."""
        return self.prompt + self.completion.tokens

    @property
    def length(self) -> int:
        """How many tokens its prompt and its reply have."""
        return len(self.prompt) + len(self.completion.tokens)

    def is_beginning_of(self, prompt: tuple[int, ...]) -> bool:
        """Whether a prompt begins with its prompt and what was sampled."""
        start = len(self.prompt)
        return (
            prompt[start : self.length] == self.completion.tokens
            and prompt[:start] == self.prompt
        )  # fmt: skip

    @property
    def extends(self) -> bool:
        """Whether its prompt begins with its parent's tokens; else it is a sample of its own."""
        before = self.parent.tokens if self.parent else ()
        return self.prompt[: len(before)] == before


@dataclass(frozen=True, eq=False, slots=True)
class LostCall:
    """A call that has no reply."""

    number: int
    """Its place in the order in which calls began."""
    parent: CallNode | None
    """The reply that its request continues."""
    tokens: int
    """How many were sampled for it."""
    reason: Unlearned
    times: CallTimes = field(default_factory=CallTimes)


class CallTree:
    """All replies of one rollout. `most`: how many it remembers, by default all; then up to
    MOST_TOKENS, prompts included, but always the newest.
    """

    def __init__(self, paid_roots: PaidRoots = "first", most: int | None = None) -> None:
        self.nodes: deque[CallNode] = deque()
        self._most, self._tokens = most, 0
        self.paid_roots = paid_roots
        self.sampled = 0
        """All tokens that were sampled for the rollout."""
        self.lost = Counter[Unlearned]()
        """Tokens that were sampled for calls without a reply."""
        self.lost_calls: list[LostCall] = []
        """Those calls, up to MOST_LOST; none where replies are forgotten."""
        self.lost_count = 0
        """How many they are."""
        self._ends: defaultdict[bytes, list[CallNode]] = defaultdict(list)

    def parent_of(
        self, digests: Sequence[bytes], call_ids: Callable[[], Set[str]] = frozenset
    ) -> CallNode | None:
        """The reply that a request continues: of the longest conversation, reply included, that
        its messages begin with; `digests` are those of its beginnings. Of equal ones, which may
        differ in their thoughts, the one whose calls have ids that stand in the request; then one
        that a client has taken, and the last.
        """
        for digest in reversed(digests):
            if nodes := self._ends.get(digest):
                ids = call_ids() if len(nodes) > 1 else frozenset[str]()
                return max(nodes, key=lambda node: (
                    not ids.isdisjoint(node.call_ids), node.delivered, node.number
                ))  # fmt: skip
        return None

    def extended_by(self, prompt: tuple[int, ...]) -> CallNode | None:
        """The reply that a prompt of token ids continues: of the most tokens, its prompt's and its
        own, that the prompt begins with. Of equal ones, one that a client has taken, and the last.
        """
        nodes = sorted(
            self.nodes, key=lambda node: (node.length, node.delivered, node.number), reverse=True
        )
        return next((node for node in nodes if node.is_beginning_of(prompt)), None)

    def add(self, node: CallNode) -> None:
        """Remember a reply."""
        self.nodes.append(node)
        self._tokens += len(node.tokens)
        while self._most and len(self.nodes) > 1 and self._is_full(self._most):
            self._forget(self.nodes.popleft())
        self.sampled += node.completion.length
        self._ends[node.end].append(node)
        if node.parent is not None:
            node.parent.children.append(node)
        ancestor: CallNode | None = node
        while ancestor is not None:
            ancestor.latest = max(ancestor.latest, node.number)
            ancestor = ancestor.parent

    def lose(self, call: LostCall) -> None:
        """Count a call that has no reply, and its tokens."""
        self.sampled += call.tokens
        self.lost[call.reason] += call.tokens
        self.lost_count += 1
        if self._most is None and len(self.lost_calls) < MOST_LOST:
            self.lost_calls.append(call)

    def _is_full(self, most: int) -> bool:
        return len(self.nodes) > most or self._tokens > MOST_TOKENS

    def _forget(self, node: CallNode) -> None:
        self._tokens -= len(node.tokens)
        nodes = self._ends[node.end]
        nodes.remove(node)
        if not nodes:
            del self._ends[node.end]
        for child in node.children:
            child.parent = None

    @property
    def first(self) -> CallNode | None:
        """The reply that begins the agent's own conversation: the earliest. Where all are paid, it
        is the earliest with tools, if one has any: a title may be asked for first. Where they are
        not, a later conversation could name itself the agent's by its tools.
        """
        roots = [node for node in self.nodes if node.parent is None]
        trusts = self.paid_roots == "all"
        return min(
            roots, key=lambda node: (trusts and not node.tools_key, node.number), default=None
        )

    def reasons(self) -> dict[CallNode, Unlearned | None]:
        """Of each reply, why it is not learned; None if it is."""
        first, reasons = self.first, dict[CallNode, Unlearned | None]()
        for node in self.nodes:  # parents stand before their children
            of_root = reasons[node.parent] if node.parent else self._root_reason(node, first)
            reasons[node] = of_root
        return {
            node: reason if node.delivered or node.children else Unlearned.ABANDONED
            for node, reason in reasons.items()
        }

    def _root_reason(self, root: CallNode, first: CallNode | None) -> Unlearned | None:
        """Why the replies of a conversation are not learned that somebody took."""
        if first is None or _begins_like(root, first):
            return None
        if first.tools_key and not root.tools_key:
            return Unlearned.AUXILIARY
        return None if self.paid_roots == "all" else Unlearned.FOREIGN_ROOT

    def learned(self) -> list[CallNode]:
        """The replies to learn, each conversation from its beginning to its end. The branch with
        the last call comes last, so the last reply is the one that the agent ended with.
        """
        roots = sorted((node for node in self.nodes if node.parent is None), key=_latest)
        reasons = self.reasons()
        return [node for root in roots for node in _descending(root) if reasons[node] is None]

    def turns(self) -> tuple[Turn, ...]:
        """The replies to learn as turns of a rollout. Where a prompt does not begin with the tokens
        before it, a sample of its own begins (rollout/samples.py).
        """
        nodes = self.learned()
        turns = [Turn(node.prompt, node.completion, calls=node.calls) for node in nodes]
        tokens = sum(turn.completion.length for turn in turns)
        counts = balance(self)
        assert counts[LEARNED] == tokens, (counts, tokens)
        assert sum(counts.values()) == self.sampled, (counts, self.sampled)
        return tuple(turns)

    @property
    def rewritten(self) -> int:
        """Replies whose prompt the chat template, other tools or the client rewrote."""
        return sum(not node.extends for node in self.nodes)


def balance(tree: CallTree) -> Counter[str]:
    """How many of a rollout's sampled tokens are learned, and how many are not, by the reason. The
    counts add up to all tokens that were sampled.
    """
    counts = Counter[str]({LEARNED: 0})
    counts.update({str(reason): tokens for reason, tokens in tree.lost.items()})
    for node, reason in tree.reasons().items():
        counts[str(reason or LEARNED)] += node.completion.length
    return counts


def _latest(node: CallNode) -> int:
    return node.latest


def _descending(node: CallNode) -> Iterator[CallNode]:
    """A reply and all that descend from it, those with the last call at the end."""
    open_nodes = [node]
    while open_nodes:
        node = open_nodes.pop()
        yield node
        open_nodes += sorted(node.children, key=_latest, reverse=True)


def _begins_like(root: CallNode, first: CallNode) -> bool:
    """Whether a conversation begins with the messages of the first one; a system prompt that the
    agent rewrote does not count. Where one of them is token ids, their prompts are compared.
    """
    if not (root.keys and first.keys):
        return root.prompt[: len(first.prompt)] == first.prompt
    ours, theirs = _without_system(root.keys), _without_system(first.keys)
    if not theirs:
        ours, theirs = root.keys, first.keys
    return ours[: len(theirs)] == theirs


def _without_system(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(key for key in keys if not key.startswith('["system"'))
