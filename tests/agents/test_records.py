"""What a run keeps of an agent's calls: each with its tokens and what became of them, bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from assay.agents.records import MOST_CALLS, MOST_TEXT, TEXT, recorded_calls
from assay.agents.tree import LEARNED, MOST_LOST, CallNode, CallTree, LostCall, Unlearned, balance
from assay.errors import MachineError
from assay.rollout.samples import to_samples
from assay.trackers.rollouts import write_rollouts
from assay.types import AgentCall, Completion, Rollout, Score, Task
from tests.agents.served import BASH, LS, SYSTEM, USER, Agent, serving
from tests.agents.test_endpoint import in_loop, result

RETRY = {"x-stainless-retry-count": "1"}


def recorded(agent: Agent) -> tuple[AgentCall, ...]:
    """The calls of an agent, after a check: their tokens are those of the balance."""
    record = recorded_calls(agent.session.tree)
    assert record.count == len(record.calls)
    sums = {LEARNED: 0}
    for call in record.calls:
        reason = call.reason or LEARNED
        sums[reason] = sums.get(reason, 0) + call.tokens
    assert {name: count for name, count in sums.items() if count} == {
        name: count for name, count in agent.balance.items() if count
    }
    turns = agent.session.tree.turns()
    for call in record.calls:
        assert (call.turn is None) == bool(call.reason)
        assert call.turn is None or turns[call.turn].completion.length == call.tokens
    return record.calls


@in_loop
async def test_each_call_is_recorded_below_the_one_that_it_continues() -> None:
    async with serving(LS, "Done.", "A title.", "Elsewhere.") as agent:
        first = await agent.reply(USER, tools=[BASH])
        await agent.reply(USER, first, result(first["tool_calls"][0]), tools=[BASH])
        await agent.reply({"role": "user", "content": "Name this."})
        await agent.reply({"role": "user", "content": "Another."}, tools=[BASH])
        calls = recorded(agent)
        assert [(call.id, call.number, call.parent) for call in calls] == [
            (0, 0, None), (1, 1, 0), (2, 2, None), (3, 3, None),
        ]  # fmt: skip
        assert [(call.turn, call.reason, call.ended) for call in calls] == [
            (0, "", "tool_calls"), (1, "", "stop"), (None, "auxiliary", "stop"),
            (None, "foreign_root", "stop"),
        ]  # fmt: skip
        assert [call.text for call in calls] == ["", "", "A title.", "Elsewhere."]
        assert [call.characters for call in calls] == [len(LS), 5, 8, 10]
        assert all(call.seconds > 0 for call in calls)


@in_loop
async def test_retries_that_joined_a_call_or_got_its_answer_are_counted_at_it() -> None:
    async with serving("One.", "Two.") as agent:
        await agent.reply(USER)
        for _ in range(2):
            await agent.reply(USER, headers=RETRY)
        await agent.reply(USER)
        assert [(call.number, call.retries) for call in recorded(agent)] == [(0, 2), (1, 0)]


@in_loop
async def test_calls_without_a_reply_stand_where_they_continue_with_their_reason() -> None:
    texts = ["One.", MachineError("no memory"), (asyncio.Event(), ""), (asyncio.Event(), "")]
    async with serving(*texts, grace_seconds=0.05) as agent:
        first = await agent.reply(USER)
        assert (await agent.post(USER, first, USER)).status_code == 503
        gone = asyncio.create_task(agent.reply(USER, first, SYSTEM))
        for _ in texts[:3]:
            await agent.engine.begun.acquire()
        gone.cancel()
        while not agent.engine.cancelled:
            await asyncio.sleep(0.01)
        last = asyncio.create_task(agent.post(SYSTEM))
        await agent.engine.begun.acquire()
        await agent.session.seal()
        await last
        calls = recorded(agent)
        assert [(call.parent, call.tokens, call.reason) for call in calls[1:]] == [
            (0, 0, "machine"), (0, 7, "client_gone"), (None, 7, "sealed"),
        ]  # fmt: skip
        assert {(call.ended, call.text, call.characters) for call in calls[1:]} == {("", "", 0)}


@in_loop
async def test_the_replies_of_one_call_share_its_number_and_have_ids_of_their_own() -> None:
    async with serving("One.", "Two.", "Three.") as agent:
        await agent.post(USER, n=2)
        await agent.reply(USER, {"role": "assistant", "content": "Two."}, USER)
        assert [(call.id, call.number, call.parent) for call in recorded(agent)] == [
            (0, 0, None), (1, 0, None), (2, 1, 1),
        ]  # fmt: skip


def forest(count: int, text: str) -> CallTree:
    """A tree with a first reply and replies of other conversations, of one token each."""
    tree = CallTree()
    for number in range(count):
        completion = Completion(text, (5,), (-0.5,), "stop", (0,))
        tree.add(CallNode(number, None, (f"u{number}",), "a", "", (1,), completion,
                          delivered=True))  # fmt: skip
    return tree


def test_a_record_is_bounded_whatever_the_agent_did() -> None:
    tree = forest(MOST_CALLS + 7, "\u202e" * 10_000_000)
    for number in range(MOST_LOST + 9):
        tree.lose(LostCall(MOST_CALLS + 7 + number, None, 2, Unlearned.CLIENT_GONE))
    record = recorded_calls(tree)
    assert (len(record.calls), record.count) == (1000, 1007 + 1009)
    assert len(tree.lost_calls) == MOST_LOST
    assert balance(tree)["client_gone"] == 2 * 1009
    assert max(len(call.text) for call in record.calls) == TEXT
    assert sum(len(call.text) for call in record.calls) == MOST_TEXT
    assert {call.characters for call in record.calls} == {10_000_000}


def test_a_tree_that_forgets_replies_keeps_no_lost_calls() -> None:
    tree = CallTree(most=2)
    tree.lose(LostCall(0, None, 2, Unlearned.CLIENT_GONE))
    assert (tree.lost_calls, tree.lost_count, tree.sampled) == ([], 1, 2)


def test_the_turns_of_an_earlier_endpoint_are_counted_before_a_record() -> None:
    assert recorded_calls(forest(1, "x"), first_turn=3).calls[0].turn == 3


@in_loop
async def test_the_file_of_a_step_has_the_calls_and_the_sample_of_each(tmp_path: Path) -> None:
    async with serving("One.", "Two.", "Three.", limits={"paid_roots": "all"}) as agent:
        first = await agent.reply(USER)
        await agent.reply(USER, first, SYSTEM)
        await agent.reply({"role": "user", "content": "Another."})
        tree = agent.session.tree
        rollout = Rollout(Task("t", "", (), ""), tree.turns(), Score(1.0),
                          agent_calls=recorded_calls(tree))  # fmt: skip
    plain = Rollout(rollout.task, rollout.turns[:1], Score(0.0))
    groups = [[plain, rollout]]
    samples = to_samples(groups)
    rows = written(tmp_path, groups, samples)
    assert [len(row["agent_calls"] or []) for row in rows] == [0, 3, 0, 0]
    assert [row["agent_call_count"] for row in rows] == [None, 3, None, None]
    expected = [place for place, sample in enumerate(samples[1:]) for _ in turns_in(sample)]
    by_turn = sorted(rows[1]["agent_calls"], key=lambda call: call["turn"])
    assert [call["sample"] for call in by_turn] == expected == [0, 0, 1]
    for row in written(tmp_path, groups, ()):
        assert {call["sample"] for call in row["agent_calls"] or []} <= {None}


def turns_in(sample: Any) -> list[int]:
    """Where the replies of a sample begin."""
    mask = [*sample.mask]
    return [at for at, on in enumerate(mask) if on and not mask[at - 1]]


def written(folder: Path, groups: Any, samples: Any) -> list[dict[str, Any]]:
    file = folder / "step_000001.parquet"
    write_rollouts(file, 1, groups, samples)
    rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return rows


@pytest.mark.parametrize("text", ["\ud800 half", "\x00\u202e<script>"])
def test_a_text_that_is_no_utf_8_is_recorded_too(tmp_path: Path, text: str) -> None:
    tree = forest(2, text)
    rollout = Rollout(Task("t", "", (), ""), (), None, failure="lost",
                      agent_calls=recorded_calls(tree))  # fmt: skip
    (row,) = written(tmp_path, [[rollout]], ())
    assert row["agent_calls"][1]["text"] == text.replace("\ud800", "?")
