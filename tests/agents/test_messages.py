"""Anthropic's messages: the third dialect of one endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.served import BASH, LS, PWD, Agent, chat, serving
from tests.agents.test_endpoint import in_loop

FUNCTION: dict[str, Any] = BASH["function"]  # type: ignore[assignment]
TOOL = {"name": "bash", "description": "Runs it.", "input_schema": FUNCTION["parameters"]}
ASK = {"role": "user", "content": "List the files."}


async def send(agent: Agent, *turns: Any, **body: Any) -> dict[str, Any]:
    content = {"model": "any", "max_tokens": 9, "messages": turns, "tools": [TOOL], **body}
    response = await agent.http.post(f"{agent.url}/messages", json=content)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def results(answer: dict[str, Any], *more: Any) -> dict[str, Any]:
    uses = [block for block in answer["content"] if block["type"] == "tool_use"]
    blocks = [{"type": "tool_result", "tool_use_id": use["id"], "content": "a.py"} for use in uses]
    return {"role": "user", "content": [*blocks, *more]}


@in_loop
async def test_blocks_that_come_back_are_one_sample() -> None:
    async with serving(f"I look.\n{LS}\n{PWD}", LS, "Done.") as agent:
        first = await send(agent, ASK, system=[{"type": "text", "text": "Be brief."}])
        assert first["stop_reason"] == "tool_use"
        assert [block.get("input") for block in first["content"]] == [
            None, {"command": "ls"}, {"command": "pwd"},
        ]  # fmt: skip
        talk = [ASK, {"role": "assistant", "content": first["content"]}, results(first)]
        second = await send(agent, *talk, system="Be brief.")
        talk += [{"role": "assistant", "content": second["content"]},
                 results(second, {"type": "text", "text": "Go on."})]  # fmt: skip
        last = await send(agent, *talk, system="Be brief.")
        assert last["content"] == [{"type": "text", "text": "Done."}]
        assert last["stop_reason"] == "end_turn"
        (sample,) = agent.require_exact()
        text = chat().tokenizer.decode(sample.tokens)
        assert text.count("<tool_response>") == 3
        assert "user\nGo on." in text


@in_loop
async def test_thoughts_are_blocks_that_need_not_come_back() -> None:
    async with serving(f"<think>\nHm.\n</think>\n\n{LS}", "Done.", template="qwen3") as agent:
        first = await send(agent, ASK)
        assert first["content"][0]["thinking"] == "Hm."
        await send(agent, ASK, {"role": "assistant", "content": first["content"][1:]},
                   results(first))  # fmt: skip
        assert len(agent.require_exact()) == 1


@in_loop
async def test_a_stream_has_a_block_for_each_part() -> None:
    async with serving(f"I look.\n{LS}") as agent:
        events = await agent.events("messages", messages=[ASK], tools=[TOOL])
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert deltas[0] == {"type": "text_delta", "text": "I look."}
        assert json.loads(deltas[1]["partial_json"]) == {"command": "ls"}
        assert events[0]["type"] == "message_start"
        assert events[-2]["delta"]["stop_reason"] == "tool_use"
        assert events[-1] == {"type": "message_stop"}


@in_loop
async def test_a_stop_sequence_that_ended_a_reply_is_named() -> None:
    async with serving("Look here END mine", "Done END", "Done.") as agent:
        for word in ("here", "END"):
            ended = await send(agent, ASK, stop_sequences=["here", "END"])
            assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", word)
        other = await send(agent, ASK, stop_sequences=["END"])
        assert (other["stop_reason"], other["stop_sequence"]) == ("end_turn", None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": 3}, 400), ({"messages": [{"role": "user", "content": 3}]}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400),
        ({"messages": [{"role": "assistant", "content": [{"type": "x"}]}]}, 400),
        ({"messages": [ASK], "tool_choice": "auto"}, 400),
    ],
)  # fmt: skip
@in_loop
async def test_an_error_is_in_anthropics_form(body: dict[str, Any], status: int) -> None:
    async with serving() as agent:
        response = await agent.http.post(f"{agent.url}/messages", json=body)
        assert response.status_code == status
        assert response.json()["error"]["type"] == "invalid_request_error"
        root = agent.url.partition("/rollout")[0]
        stranger = await agent.http.post(
            f"{root}/v1/messages", json=body, headers={"x-api-key": "x"}
        )
        assert stranger.status_code == 401
        assert stranger.json()["type"] == "error"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("POST", "messages/count_tokens", 404, "not_found_error"),
        ("POST", "messages/batches", 404, "not_found_error"),
        ("GET", "messages", 405, "invalid_request_error"),
    ],
)
@in_loop
async def test_a_route_that_is_missing_below_messages_says_so_in_anthropics_form(
    method: str, path: str, status: int, kind: str
) -> None:
    async with serving() as agent:
        response = await agent.http.request(method, f"{agent.url}/{path}")
        assert response.status_code == status
        assert response.json()["type"] == "error"
        assert response.json()["error"]["type"] == kind
        other = await agent.http.get(f"{agent.url}/chat/completions")
        assert "type" not in other.json()
