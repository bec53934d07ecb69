"""Which reply a request continues, what of a rollout is learned, and that no token gets lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest

from assay.agents.canonical import canonical, chain
from assay.agents.tree import (
    LEARNED,
    CallNode,
    CallTree,
    LostCall,
    PaidRoots,
    Unlearned,
    balance,
)
from assay.rollout.samples import to_samples
from assay.types import Completion, Rollout, Score, Task

SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "List the files."}
CALL: dict[str, Any] = {
    "role": "assistant", "content": None,
    "tool_calls": [{"id": "call_1", "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "ls", "n": 2}'}}],
}  # fmt: skip
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "a.py"}
THOUGHT = {"role": "assistant", "content": "Done.", "reasoning_content": "Hm."}


def called(arguments: Any, **changes: Any) -> dict[str, Any]:
    function = {"name": "bash", "arguments": arguments}
    return {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "function": function}], **changes}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (CALL, called('{"n":2,"command":"ls"}')),
        (CALL, called({"command": "ls", "n": 2})),
        (called(""), called("{}")),
        (called(None), called({})),
        (CALL, called('{"command": "ls", "n": 2}', content="")),
        (CALL, called('{"command": "ls", "n": 2}', refusal=None, audio=None, annotations=[])),
        (CALL, {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "id": "x", "index": 0}]}),
        (RESULT, {**RESULT, "tool_call_id": "another", "name": "bash"}),
        (THOUGHT, {"role": "assistant", "content": "Done."}),
        (THOUGHT, {"role": "assistant", "content": "Done.\n", "reasoning": "Hm."}),
        (ASK, {**ASK, "content": [{"type": "text", "text": "List "},
                                  {"type": "text", "text": "the files."}]}),
        (SYSTEM, {**SYSTEM, "role": "developer"}),
    ],
)  # fmt: skip
def test_messages_that_clients_send_back_rewritten_are_the_same(
    ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert canonical(ours) == canonical(theirs)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (CALL, called('{"command": "ls", "n": 3}')),
        (CALL, called('{"command": "ls", "n": "2"}')),
        (CALL, called('{"command": "ls", "n": 2')),
        (CALL, called('{"command": "ls", "n": 2}', content="I list them.")),
        (CALL, {**CALL, "tool_calls": CALL["tool_calls"] * 2}),
        (ASK, {**ASK, "content": "List the files. "}),
        (ASK, {**ASK, "role": "system"}),
        (THOUGHT, {**THOUGHT, "content": "Done!"}),
    ],
)
def test_messages_that_differ_are_not(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert canonical(ours) != canonical(theirs)


@pytest.mark.parametrize(
    "message",
    [{"content": "no role"}, {"role": "user", "content": [{"type": "image_url"}]},
     {"role": "user", "content": 3}, {"role": "assistant", "tool_calls": [{"id": "1"}]},
     {"role": "assistant", "tool_calls": ["ls"]}],
)  # fmt: skip
def test_what_is_no_message_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        canonical(message)


def numbers(words: Sequence[str]) -> tuple[int, ...]:
    return tuple(9 + crc32(word.encode()) % 10_000 for word in words)


class Calls:
    """Makes calls whose tokens are numbers: a word is a message or a reply."""

    def __init__(self, paid_roots: PaidRoots = "first") -> None:
        self.tree, self.count = CallTree(paid_roots), 0

    def call(
        self, prompt: str, reply: str, *, tools: str = "", delivered: bool = True, cut: int = 0
    ) -> CallNode:
        """A call with these words as messages. `cut`: tokens of the prompt that differ."""
        keys = tuple(prompt.split())
        tokens = numbers(keys)
        parent = self.tree.parent_of([*chain(keys)])
        if parent:  # as the renderer does: stored ids, and those of what was added
            tokens = parent.tokens + numbers(keys[len(parent.keys) + 1 :])
        tokens = (0,) * cut + tokens[cut:]
        sampled = Completion(reply, (1, 2), (-0.5, -0.25), "stop", (3, 4))
        node = CallNode(self.count, parent, keys, reply, tools, tokens, sampled,
                        delivered=delivered)  # fmt: skip
        self.tree.add(node)
        self.count += 1
        return node

    def samples(self) -> list[tuple[Sequence[int], Sequence[bool]]]:
        rollout = Rollout(Task("t", "", (), ""), self.tree.turns(), Score(1.0))
        return [([*sample.tokens], [*sample.mask]) for sample in to_samples([[rollout]])]

    @property
    def balance(self) -> dict[str, int]:
        counts = balance(self.tree)
        assert sum(counts.values()) == self.tree.sampled
        return dict(counts)


def test_a_request_continues_the_deepest_reply_that_its_messages_begin_with() -> None:
    calls = Calls()
    first = calls.call("u1", "a1")
    second = calls.call("u1 a1 u2", "a2")
    third = calls.call("u1 a1 u2 a2 u3", "a3")
    assert [second.parent, third.parent] == [first, second]
    ((_, mask),) = calls.samples()
    assert sum(mask) == 6
    assert calls.balance == {LEARNED: 6}


def test_a_dropped_reply_leaves_its_prompt_and_both_branches_are_learned_once() -> None:
    calls = Calls()
    first = calls.call("u1", "a1")
    dropped = calls.call("u1 a1 u2", "broken")
    second = calls.call("u1 a1 u2 error", "a2")
    last = calls.call("u1 a1 u2 error a2 u3", "a3")
    assert (dropped.parent, second.parent, last.parent) == (first, first, second)
    assert calls.tree.learned()[-1] is last
    assert [sum(mask) for _, mask in calls.samples()] == [4, 4]
    assert calls.balance == {LEARNED: 8}


def test_a_dropped_first_reply_is_learned_beside_what_follows_its_prompt() -> None:
    calls = Calls()
    calls.call("u1", "broken")
    calls.call("u1 error", "a1")
    assert [sum(mask) for _, mask in calls.samples()] == [2, 2]
    assert calls.balance == {LEARNED: 4}


def test_a_prompt_that_was_rendered_anew_begins_a_sample() -> None:
    calls = Calls()
    calls.call("u1", "a1")
    calls.call("u1 a1 u2", "a2", cut=1)
    assert [sum(mask) for _, mask in calls.samples()] == [2, 2]
    assert calls.tree.rewritten == 1


def test_a_rewritten_system_prompt_begins_a_conversation_that_is_still_the_agents() -> None:
    calls = Calls()
    system = [canonical({"role": "system", "content": text}) for text in ("one", "two")]
    calls.call(f"{system[0].replace(' ', '')} u1", "a1")
    later = calls.call(f"{system[1].replace(' ', '')} u1 a1 u2", "a2")
    assert later.parent is None
    assert calls.balance == {LEARNED: 4}


@pytest.mark.parametrize(("paid", "reason"), [("first", "foreign_root"), ("all", LEARNED)])
def test_a_conversation_that_the_agents_first_call_did_not_begin_is_unpaid_unless_allowed(
    paid: PaidRoots, reason: str
) -> None:
    calls = Calls(paid)
    calls.call("u1", "a1", tools="t")
    calls.call("shell", "x1", tools="t")
    calls.call("shell x1 more", "x2", tools="t")
    assert calls.balance == ({LEARNED: 2, reason: 4} if reason != LEARNED else {LEARNED: 6})
    assert sum(sum(mask) for _, mask in calls.samples()) == calls.balance[LEARNED]


@pytest.mark.parametrize("paid", ["first", "all"])
def test_a_title_without_tools_is_auxiliary(paid: PaidRoots) -> None:
    calls = Calls(paid)
    calls.call("u1", "a1", tools="t")
    calls.call("title", "x1")
    assert calls.balance == {"auxiliary": 2, LEARNED: 2}


def test_a_title_that_comes_first_is_auxiliary_where_all_conversations_are_paid() -> None:
    calls = Calls("all")
    calls.call("title", "x1")
    calls.call("u1", "a1", tools="t")
    assert calls.balance == {"auxiliary": 2, LEARNED: 2}


def test_no_later_conversation_becomes_the_agents_own_by_its_tools() -> None:
    calls = Calls()
    calls.call("u1", "a1")
    calls.call("shell", "x1", tools="t")
    assert calls.balance == {LEARNED: 2, "foreign_root": 2}


@pytest.mark.parametrize(("paid", "learned"), [("first", 4), ("all", 6)])
def test_after_compaction_each_of_two_chains_is_learned_once(paid: PaidRoots, learned: int) -> None:
    calls = Calls(paid)
    calls.call("u1", "a1")
    calls.call("u1 a1 summarise", "summary")
    calls.call("summary-of-it", "a2")
    assert calls.balance[LEARNED] == learned
    assert sum(sum(mask) for _, mask in calls.samples()) == learned


def test_conversations_of_sub_agents_that_interleave_stay_whole() -> None:
    calls = Calls("all")
    calls.call("u1", "a1")
    calls.call("s1", "b1")
    calls.call("u1 a1 u2", "a2")
    calls.call("s1 b1 s2", "b2")
    calls.call("u1 a1 u2 a2 u3", "a3")
    assert [sum(mask) for _, mask in calls.samples()] == [4, 6]


def test_a_whole_reply_that_nobody_took_is_abandoned_and_equal_ones_that_were_taken_are_kept() -> (
    None
):
    calls = Calls()
    calls.call("u1", "a1", delivered=False)
    calls.call("u1", "a1")
    calls.call("u1", "a1")
    assert calls.tree.parent_of([*chain(("u1", "a1", "u2"))]) is calls.tree.nodes[2]
    assert calls.balance == {LEARNED: 4, "abandoned": 2}
    assert [sum(mask) for _, mask in calls.samples()] == [2, 2]


def test_tokens_of_calls_without_a_reply_are_counted_under_their_reason() -> None:
    calls = Calls()
    calls.call("u1", "a1")
    calls.tree.lose(LostCall(1, None, 7, Unlearned.CLIENT_GONE))
    calls.tree.lose(LostCall(2, None, 5, Unlearned.SEALED))
    assert calls.balance == {LEARNED: 2, "client_gone": 7, "sealed": 5}


def test_the_parts_of_a_split_rollout_say_that_they_are_one() -> None:
    """Algorithms count them once: rewards 1, 1, 1 of one rollout and 0 have the baseline 0.5."""
    calls, single = Calls("all"), Calls()
    for name in "abc":
        calls.call(name, "x")
    single.call("u1", "a1")
    task = Task("t", "", (), "")
    group = [Rollout(task, each.tree.turns(), Score(1.0)) for each in (calls, single)]
    assert [sample.rollout for sample in to_samples([group])] == [0, 0, 0, None]


def test_a_chain_of_many_calls_needs_no_deep_recursion() -> None:
    calls, prompt = Calls(), "u"
    for number in range(1200):
        calls.call(prompt, f"a{number}")
        prompt += f" a{number} u{number}"
    assert len(calls.tree.learned()) == 1200
    assert calls.tree.nodes[0].latest == 1199


def test_a_tree_that_forgets_keeps_few_tokens_and_always_the_newest_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.agents.tree.MOST_TOKENS", 20)
    tree = CallTree(most=100)
    completion = Completion("", (1,), (0.0,), "stop", (0,))
    for number, length in enumerate((5, 5, 5, 50, 5)):
        keys = (f"u{number}",)
        tree.add(CallNode(number, None, keys, "a", "", (0,) * length, completion))
        kept = [len(node.prompt) for node in tree.nodes]
        assert kept == [[5], [5, 5], [5, 5, 5], [50], [5]][number]
    assert tree.parent_of([*chain(("u3", "a"))]) is None


def test_a_tree_that_remembers_few_calls_forgets_the_oldest() -> None:
    tree = CallTree(most=2)
    completion = Completion("", (1,), (0.0,), "stop", (0,))
    nodes = [CallNode(n, None, (f"u{n}",), f"a{n}", "", (0,), completion) for n in range(3)]
    for node in nodes:
        tree.add(node)
    assert tree.parent_of([*chain(("u0", "a0"))]) is None
    assert tree.parent_of([*chain(("u2", "a2"))]) is nodes[2]
