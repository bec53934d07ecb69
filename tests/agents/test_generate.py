"""Token ids in, token ids out: the client renders, and each sampled token is learned once."""

from __future__ import annotations

import asyncio
from math import isfinite
from typing import Any

import pytest

from tests.agents.served import USER, Agent, chat, serving
from tests.agents.test_endpoint import in_loop

PROMPT = [5, 6, 7, 8]


async def post(agent: Agent, ids: Any, url: str = "", **body: Any) -> Any:
    params = {"stop_token_ids": [2], "logprobs": 1, "skip_special_tokens": False}
    content = {"model": "any", "token_ids": ids, "sampling_params": params, **body}
    base = url or agent.url.removesuffix("/v1")
    return await agent.http.post(f"{base}/inference/v1/generate", json=content)


async def sampled(agent: Agent, ids: list[int], **body: Any) -> list[int]:
    response = await post(agent, ids, **body)
    assert response.status_code == 200, response.text
    tokens: list[int] = response.json()["choices"][0]["token_ids"]
    return tokens


@in_loop
async def test_ids_come_back_with_a_finite_log_probability_each_named_by_its_id() -> None:
    async with serving("One.") as agent:
        answer = (await post(agent, PROMPT, cache_salt="v1", priority=3)).json()
        request, completion = agent.engine.sampled[0]
        assert request.prompt == tuple(PROMPT)
        (choice,) = answer["choices"]
        assert choice["token_ids"] == list(completion.tokens)
        assert choice["finish_reason"] == "stop"
        content = choice["logprobs"]["content"]
        assert [each["token"] for each in content] == [f"token_id:{n}" for n in completion.tokens]
        assert [each["logprob"] for each in content] == list(completion.logprobs)
        assert all(isfinite(each["logprob"]) for each in content)
        assert answer["request_id"]


@in_loop
async def test_a_prompt_that_begins_with_a_replys_ids_continues_it_and_is_one_sample() -> None:
    async with serving("One.", "Two.", "Three.") as agent:
        ids = list(PROMPT)
        for _ in range(3):
            ids += [*await sampled(agent, ids), 9, 10]
        nodes = agent.session.tree.nodes
        assert [node.parent for node in nodes] == [None, nodes[0], nodes[1]]
        (sample,) = agent.require_exact()
        assert list(sample.tokens) == ids[:-2]
        assert sum(sample.mask) == sum(each.length for _, each in agent.engine.sampled)


@in_loop
async def test_branches_that_begin_alike_each_continue_their_own_reply() -> None:
    async with serving("One.", "One and more.", "Two.", "Three.") as agent:
        first, second = await sampled(agent, PROMPT), await sampled(agent, PROMPT)
        await sampled(agent, [*PROMPT, *second, 9])
        await sampled(agent, [*PROMPT, *first, 9])
        nodes = agent.session.tree.nodes
        assert [node.parent for node in nodes] == [None, None, nodes[1], nodes[0]]
        assert len(agent.require_exact()) == 2
        assert list(agent.balance) == ["learned"]


@in_loop
async def test_a_prompt_that_changes_a_replys_ids_is_a_sample_of_its_own() -> None:
    async with serving("One.", "Two.") as agent:
        first = await sampled(agent, PROMPT)
        await sampled(agent, [*PROMPT, *first[:-1], 9])
        assert [node.parent for node in agent.session.tree.nodes] == [None, None]
        assert len(agent.require_exact()) == 2
        assert list(agent.balance) == ["learned"]


@in_loop
async def test_ids_that_do_not_begin_as_the_agents_first_ones_are_not_paid() -> None:
    async with serving("One.", "Two.", "Three.") as agent:
        await sampled(agent, PROMPT)
        await sampled(agent, [5, 6, 9])
        lengths = [each.length for _, each in agent.engine.sampled]
        assert agent.balance == {"learned": lengths[0], "foreign_root": lengths[1]}


@in_loop
async def test_messages_and_ids_of_one_rollout_meet_by_their_tokens() -> None:
    async with serving("One.", "Two.", "Three.") as agent:
        first = await agent.reply(USER)
        tokens = agent.session.tree.nodes[0].tokens
        await sampled(agent, [*tokens, 9])
        await agent.reply(first, USER)  # begins with the text of a reply to ids
        nodes = agent.session.tree.nodes
        assert [node.parent for node in nodes] == [None, nodes[0], None]


@in_loop
async def test_a_retry_gets_its_answer_again_and_is_learned_once() -> None:
    async with serving("One.") as agent:
        first = await sampled(agent, PROMPT)
        base = agent.url.removesuffix("/v1")
        body = {"model": "any", "token_ids": PROMPT, "sampling_params": {
            "stop_token_ids": [2], "logprobs": 1, "skip_special_tokens": False}}  # fmt: skip
        again = await agent.http.post(
            f"{base}/inference/v1/generate", json=body, headers={"x-stainless-retry-count": "1"}
        )
        assert again.json()["choices"][0]["token_ids"] == first
        assert len(agent.engine.sampled) == 1


@in_loop
async def test_a_client_that_hangs_up_loses_its_tokens_by_name() -> None:
    async with serving((asyncio.Event(), ""), grace_seconds=0.0) as agent:
        first = asyncio.create_task(post(agent, PROMPT))
        await agent.engine.begun.acquire()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        while not agent.engine.cancelled:
            await asyncio.sleep(0.01)
        assert agent.balance == {"client_gone": 7, "learned": 0}


@in_loop
async def test_a_spent_budget_is_refused_because_no_text_stands_for_ids() -> None:
    async with serving("One.", limits={"calls": 1}) as agent:
        await sampled(agent, PROMPT)
        response = await post(agent, PROMPT)
        assert response.status_code == 409
        assert response.json()["error"]["code"] == "budget_used_up"


@in_loop
async def test_a_prompt_that_leaves_no_room_is_refused_and_the_limit_is_told_before() -> None:
    async with serving("One.", context_length=12) as agent:
        models = (await agent.http.get(f"{agent.url}/models")).json()
        assert models["data"][0]["max_model_len"] == 12
        response = await post(agent, [5] * 12)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "body",
    [
        {"token_ids": []}, {"token_ids": "5"}, {"token_ids": [5, "6"]}, {"token_ids": [True]},
        {"token_ids": [5.0]}, {"token_ids": [-1]}, {"token_ids": [10**9]},
        {"sampling_params": 3}, {"sampling_params": {"n": 2}}, {"features": {"image": 1}},
    ],
)  # fmt: skip
@in_loop
async def test_a_body_that_cannot_be_sampled_is_refused_before_the_engine_sees_it(
    body: dict[str, Any],
) -> None:
    async with serving("One.") as agent:
        response = await post(agent, body.pop("token_ids", PROMPT), **body)
        assert response.status_code == 400, response.text
        assert not agent.engine.sampled
        assert len(chat().tokenizer) < 10**9


@in_loop
async def test_ids_need_the_rollouts_key() -> None:
    async with serving("One.") as agent:
        root = agent.url.partition("/rollout")[0]
        assert (await post(agent, PROMPT, root)).status_code == 401
        assert (await post(agent, PROMPT, f"{root}/rollout/x")).status_code == 401
