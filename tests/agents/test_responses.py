"""OpenAI's responses, as openai-agents uses them by default."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.engines.base import Sampling
from tests.agents.served import BASH, LS, PWD, Agent, chat, serving
from tests.agents.test_endpoint import in_loop

TOOL = {"type": "function", **BASH["function"], "strict": True}  # type: ignore[dict-item]
ASK = {"role": "user", "content": "List the files."}


async def respond(agent: Agent, items: Any, **body: Any) -> dict[str, Any]:
    content = {"model": "any", "input": items, "tools": [TOOL], "include": [], **body}
    response = await agent.http.post(f"{agent.url}/responses", json=content)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def output(item: dict[str, Any], text: Any = "a.py") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": item["call_id"], "output": text}


@in_loop
async def test_items_that_come_back_as_they_came_are_one_sample() -> None:
    async with serving(f"I look.\n{LS}\n{PWD}", LS, "Done.") as agent:
        items: list[Any] = [ASK]
        for _ in range(2):
            answer = await respond(agent, items, instructions="Be brief.")
            items += [{**item, "phase": None, "caller": None} for item in answer["output"]]
            calls = [item for item in answer["output"] if item["type"] == "function_call"]
            items += map(output, calls)
        last = await respond(agent, items, instructions="Be brief.", return_token_ids=True)
        assert last["output"][0]["content"][0]["text"] == "Done."
        assert last["usage"]["output_tokens"] == len(last["token_ids"])
        assert last["prompt_token_ids"] == list(agent.engine.sampled[2][0].prompt)
        (sample,) = agent.require_exact()
        text = chat().tokenizer.decode(sample.tokens)
        assert text.startswith("<|im_start|>system\nBe brief.")
        assert text.count("<tool_response>") == 3


@in_loop
async def test_a_conversation_may_change_its_dialect() -> None:
    async with serving(LS, "Done.") as agent:
        answer = await respond(agent, "List the files.")
        (item,) = answer["output"]
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        back = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "a.py"}
        await agent.reply(ASK, back, result, tools=[BASH])
        assert len(agent.require_exact()) == 1


@in_loop
async def test_thoughts_are_items_of_their_own_that_need_not_come_back() -> None:
    async with serving(f"<think>\nHm.\n</think>\n\n{LS}", "Done.", template="qwen3") as agent:
        answer = await respond(agent, [ASK])
        thought, item = answer["output"]
        assert thought["content"][0]["text"] == "Hm."
        await respond(agent, [ASK, item, output(item, [{"type": "input_text", "text": "a.py"}])])
        assert len(agent.require_exact()) == 1


@in_loop
async def test_a_stream_has_the_text_the_calls_and_the_whole_response() -> None:
    async with serving(f"I look.\n{LS}") as agent:
        events = await agent.events("responses", input=[ASK], tools=[TOOL])
        assert [event["sequence_number"] for event in events] == [*range(len(events))]
        kinds = [event["type"] for event in events]
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        deltas = {event["type"]: event["delta"] for event in events if "delta" in event}
        assert deltas["response.output_text.delta"] == "I look."
        arguments = json.loads(deltas["response.function_call_arguments.delta"])
        assert arguments == {"command": "ls"}
        assert len(events[-1]["response"]["output"]) == 2


@in_loop
async def test_a_reply_that_was_cut_off_is_incomplete_and_a_spent_budget_is_polite() -> None:
    async with serving("too long a text", sampling=Sampling(3), limits={"calls": 1}) as agent:
        answer = await respond(agent, [ASK])
        assert answer["status"] == "incomplete"
        assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
        polite = await respond(agent, [ASK, *answer["output"], ASK])
        assert polite["status"] == "completed"
        assert polite["output"][0]["content"][0]["text"]
        assert len(agent.session.tree.nodes) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": 3}, "input"), ({"input": []}, "messages"),
        ({"input": [{"type": "web_search_call"}]}, "input"),
        ({"input": [ASK], "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "message", "role": "assistant", "content": [{"type": "x"}]}]},
         "input"),
        ({"input": [ASK], "tools": [{"type": "web_search"}]}, "tools"),
    ],
)  # fmt: skip
@in_loop
async def test_what_the_endpoint_does_not_have_is_refused_by_name(
    body: dict[str, Any], param: str
) -> None:
    async with serving() as agent:
        response = await agent.http.post(f"{agent.url}/responses", json=body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@in_loop
async def test_an_item_whose_type_is_null_is_a_message() -> None:
    async with serving("Done.") as agent:
        await respond(agent, [{**ASK, "type": None}])
        assert "List the files." in chat().tokenizer.decode(agent.engine.sampled[0][0].prompt)
