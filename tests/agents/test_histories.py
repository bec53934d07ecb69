"""Canonical messages that requests share are the ones that each of them alone has."""

from __future__ import annotations

import random
from typing import Any

import pytest

from assay.agents.calls import RefusedCallError
from assay.agents.canonical import canonical, chain
from assay.agents.histories import MOST_BYTES, RECENT, HistoryCache

ASK = {"role": "user", "content": "List the files."}


def calling(arguments: Any) -> dict[str, Any]:
    function = {"name": "bash", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}


VALUES = ["", "{}", '{"n": 1}', '{"n":1}', {"n": 1}, {"n": True}, {"n": 1.0}, {"n": 0.0},
          {"n": -0.0}, {"a": 1, "n": 1}, {"n": 1, "a": 1}, None, [1], [True]]  # fmt: skip
MESSAGES: list[dict[str, Any]] = [
    ASK, {**ASK, "content": [{"type": "text", "text": ASK["content"]}]},
    {"role": "assistant", "content": ""}, {"role": "assistant", "content": None},
    {"role": "assistant", "function_call": {"name": "f", "arguments": {"n": 1}}},
    {"role": "assistant", "function_call": {"name": "f", "arguments": {"n": True}}},
    {"role": "tool", "tool_call_id": "1", "content": "a.py"}, *map(calling, VALUES),
]  # fmt: skip


def test_requests_in_any_order_have_the_keys_that_each_alone_has() -> None:
    draw, cache, talk = random.Random(0), HistoryCache(), list[dict[str, Any]]()
    for _ in range(3000):
        talk = talk[: draw.randint(0, len(talk))] if draw.random() < 0.3 else list(talk)
        talk += [draw.choice(MESSAGES)]
        if draw.random() < 0.3:
            talk[draw.randrange(len(talk))] = draw.choice(MESSAGES)
        read, keys = cache.read(talk), tuple(map(canonical, talk))
        assert read.keys == keys
        assert read.digests == tuple(chain(keys))


def test_a_longer_request_shares_the_texts_of_the_one_before_even_beside_sub_agents() -> None:
    cache = HistoryCache()
    talks = [[{**ASK, "content": f"{n}" * 50}] for n in range(RECENT)]
    firsts = [cache.read(talk) for talk in talks]
    for first, talk in zip(firsts, talks, strict=True):
        again = cache.read([dict(talk[0]), calling("{}"), ASK])
        assert again.keys[0] is first.keys[0]
        assert again.digests[0] is first.digests[0]
    assert len(cache._recent) == RECENT


def test_a_message_that_is_none_is_refused_and_leaves_the_others_alone() -> None:
    cache = HistoryCache()
    cache.read([ASK])
    with pytest.raises(RefusedCallError):
        cache.read([ASK, {"role": "user", "content": 3}])
    assert cache.read([ASK, ASK]).keys == (canonical(ASK),) * 2


def test_a_request_of_token_ids_or_with_more_than_its_text_leaves_nothing_behind() -> None:
    cache = HistoryCache()
    first = cache.read([ASK])
    cache.read(())
    large = [{**ASK, "more": [[] for _ in range(MOST_BYTES // 50)]}]
    assert cache.read(large).keys == first.keys
    assert [it.messages for it in cache._recent] == [(ASK,)]
    again = cache.read([dict(ASK), ASK])
    assert again.keys[0] is first.keys[0]
