"""An outside agent over HTTP: what the learner gets equals what the engine sampled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

import httpx2
import pytest

from assay.agents.calls import RefusedCallError, model_call
from assay.agents.renderer import CallRenderer
from assay.engines.base import Sampling
from assay.errors import MachineError
from tests.agents.served import BASH, LS, PWD, SYSTEM, USER, chat, serving
from tests.policy.test_tool_templates import NO_TOOLS, chat_of


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine function."""

    @wraps(test)
    def run(*values: Any, **names: Any) -> None:
        async def whole() -> None:
            await test(*values, **names)

        asyncio.run(whole())

    return run


def result(call: dict[str, Any], text: str = "a.py") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


@in_loop
async def test_a_loop_with_tool_calls_is_one_sample_of_all_that_was_sampled() -> None:
    async with serving(f"I look.\n{LS}", LS + "\n" + PWD, "Done.") as agent:
        talk: list[Any] = [SYSTEM, USER]
        for _ in range(2):
            talk.append(await agent.reply(*talk, tools=[BASH]))
            talk += [result(call) for call in talk[-1]["tool_calls"]]
        last = await agent.reply(*talk, tools=[BASH])
        assert talk[2]["content"] == "I look."
        commands = [json.loads(call["function"]["arguments"]) for call in talk[4]["tool_calls"]]
        assert commands == [{"command": "ls"}, {"command": "pwd"}]
        assert last == {"role": "assistant", "content": "Done."}
        (sample,) = agent.require_exact()
        text = chat().tokenizer.decode(sample.tokens)
        assert text.count("<tool_response>") == 3
        assert text.count("<|im_end|>\n<|im_start|>") == 6  # one line end behind each message


@in_loop
async def test_ids_that_no_tokenizer_would_give_stay_as_they_were_sampled() -> None:
    letters = [token for letter in "he" for token in chat().encode_reply(letter, ended=False)]
    odd = (*letters, chat().end_token)
    assert odd != chat().encode_reply("he")
    async with serving(odd, "Done.") as agent:
        first = await agent.reply(USER)
        await agent.reply(USER, first, USER)
        before = agent.engine.sampled[0][0].prompt + odd
        assert agent.engine.sampled[1][0].prompt[: len(before)] == before
        assert len(agent.require_exact()) == 1


@in_loop
async def test_a_reply_that_was_cut_off_is_closed_by_context_that_is_not_learned() -> None:
    async with serving("a long reply of many tokens", "Done.", sampling=Sampling(4)) as agent:
        response = (await agent.post(USER)).json()
        assert response["choices"][0]["finish_reason"] == "length"
        first = response["choices"][0]["message"]
        await agent.reply(USER, first, USER)
        (sample,) = agent.require_exact()
        before = len(agent.engine.sampled[0][0].prompt) + 4
        assert sample.tokens[before] == chat().end_token
        assert not sample.mask[before]


@in_loop
async def test_a_reply_that_ended_with_the_other_end_token_is_not_ended_twice() -> None:
    end = chat().tokenizer.eos_token_id
    assert end != chat().end_token
    tokens = (*chat().encode_reply("Hello", ended=False), end)
    async with serving(tokens, "Done.") as agent:
        first = await agent.reply(USER)
        assert first["content"] == "Hello"
        await agent.reply(USER, first, USER)
        (sample,) = agent.require_exact()
        text = chat().tokenizer.decode(sample.tokens)
        assert "Hello</s>\n<|im_start|>user" in text


@in_loop
async def test_a_next_roles_marker_that_the_model_guessed_wrong_gives_way_to_the_right_one() -> (
    None
):
    """GLM's replies end with the marker of the next role."""
    glm = chat("glm4moe")
    ends = [glm.tokenizer.convert_tokens_to_ids(f"<|{role}|>") for role in ("observation", "user")]
    for end, samples in zip(ends, (2, 1), strict=True):
        reply = (*glm.encode_reply("\n<think></think>\nFour.", ended=False), end)
        async with serving(reply, "Done.", template="glm4moe") as agent:
            first = await agent.reply(USER)
            await agent.reply(USER, first, {"role": "user", "content": "And now?"})
            prompt = glm.tokenizer.decode(agent.engine.sampled[1][0].prompt)
            assert "Four.<|user|>\nAnd now?<|assistant|>" in prompt
            assert "<|observation|>" not in prompt
            assert len(agent.require_exact()) == samples


@in_loop
async def test_a_template_that_drops_thoughts_makes_two_samples_and_both_are_learned() -> None:
    thinking = "<think>\nHm.\n</think>\n\nFour."
    async with serving(thinking, thinking, template="qwen3") as agent:
        first = await agent.reply(USER)
        assert (first["reasoning_content"], first["content"].strip()) == ("Hm.", "Four.")
        await agent.reply(USER, first, USER)
        assert len(agent.require_exact()) == 2
        assert agent.session.tree.rewritten == 1


@pytest.mark.parametrize("change", ["dropped", "renamed", "null"])
@in_loop
async def test_thoughts_that_a_client_drops_or_renames_are_kept_among_results(change: str) -> None:
    async with serving(f"<think>\nHm.\n</think>\n\n{LS}", "Done.", template="qwen3") as agent:
        first = await agent.reply(USER, tools=[BASH])
        thought = first.pop("reasoning_content")
        first |= {"dropped": {}, "renamed": {"reasoning": thought},
                  "null": {"reasoning_content": None}}[change]  # fmt: skip
        await agent.reply(USER, first, result(first["tool_calls"][0]), tools=[BASH])
        assert len(agent.require_exact()) == 1
        assert "Hm." in chat("qwen3").tokenizer.decode(agent.engine.sampled[1][0].prompt)


@in_loop
async def test_a_reply_cut_off_in_its_thoughts_is_all_reasoning() -> None:
    async with serving(
        "<think>\nI wonder and wonder", "Done.", template="qwen3", sampling=Sampling(6)
    ) as agent:
        first = await agent.reply(USER)
        assert first["content"] == ""
        assert first["reasoning_content"].startswith("<think>")
        await agent.reply(USER, first, USER)
        agent.require_exact()
        assert agent.balance == {"learned": 6 + agent.engine.sampled[1][1].length}


@in_loop
async def test_a_reply_sent_back_with_other_ids_spaces_and_nulls_is_the_same_node() -> None:
    async with serving(LS, "Done.") as agent:
        first = await agent.reply(USER, tools=[BASH])
        call = first["tool_calls"][0]
        back = {
            **first, "content": "", "refusal": None, "annotations": [], "audio": None,
            "function_call": None, "provider_specific_fields": {"x": 1},
            "tool_calls": [{"index": 0, "id": "toolu_9", "type": "function", "function": {
                "name": "bash", "arguments": '{ "command" :"ls" }'}}],
        }  # fmt: skip
        assert call["id"] != "toolu_9"
        user = {"role": "user", "content": [{"type": "text", "text": USER["content"]}]}
        await agent.reply(user, back, {**result(call), "tool_call_id": "toolu_9"}, tools=[BASH])
        assert len(agent.require_exact()) == 1


@in_loop
async def test_a_reply_that_the_agent_drops_is_a_branch_of_its_prompt() -> None:
    broken = '<tool_call>\n{"name": "bash", "arguments": {"command": \n</tool_call>'
    async with serving(LS, broken, PWD, "Done.") as agent:
        first = await agent.reply(USER, tools=[BASH])
        talk = [USER, first, result(first["tool_calls"][0])]
        dropped = await agent.reply(*talk, tools=[BASH])
        assert "tool_calls" not in dropped
        assert dropped["content"] == broken
        error = {"role": "user", "content": "Your call is no JSON."}
        third = await agent.reply(*talk, error, tools=[BASH])
        await agent.reply(
            *talk, error, third, result(third["tool_calls"][0]), tools=[BASH]
        )  # fmt: skip
        assert [sum(sample.mask) for sample in agent.require_exact()] == [
            agent.engine.sampled[0][1].length + agent.engine.sampled[1][1].length,
            agent.engine.sampled[2][1].length + agent.engine.sampled[3][1].length,
        ]


@in_loop
async def test_calls_that_come_back_as_text_begin_a_sample_and_each_token_is_learned_once() -> None:
    """As smolagents sends them."""
    async with serving(LS, PWD, "Done.") as agent:
        talk: list[Any] = [USER]
        for _ in range(3):
            message = await agent.reply(*talk, tools=[BASH], tool_choice="required")
            text = f"Calling tools:\n{message.get('tool_calls')}"
            talk.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
            talk.append({"role": "user", "content": [{"type": "text", "text": "Observation:\nx"}]})
        assert len(agent.require_exact()) == 3
        assert list(agent.balance) == ["learned"]


@in_loop
async def test_other_tools_on_a_later_call_render_the_prompt_anew() -> None:
    other = {**BASH, "function": {**BASH["function"], "name": "sh"}}  # type: ignore[dict-item]
    async with serving(LS, "Done.") as agent:
        first = await agent.reply(USER, tools=[BASH])
        talk = [USER, first, result(first["tool_calls"][0])]
        await agent.reply(*talk, tools=[BASH, other])
        assert len(agent.require_exact()) == 2
        assert '"sh"' in chat().tokenizer.decode(agent.engine.sampled[1][0].prompt)


@in_loop
async def test_a_call_of_an_unknown_tool_reaches_the_agent_and_no_calls_without_them() -> None:
    unknown = LS.replace("bash", "zsh")
    async with serving(unknown, LS, LS + PWD, "Done.") as agent:
        first = await agent.reply(USER, tools=[BASH])
        assert first["tool_calls"][0]["function"]["name"] == "zsh"
        none = await agent.reply(USER, tools=[BASH], tool_choice="none")
        assert none == {"role": "assistant", "content": LS}
        single = await agent.reply(USER, tools=[BASH], parallel_tool_calls=False)
        assert len(single["tool_calls"]) == 1
        talk = [USER, single, result(single["tool_calls"][0])]
        await agent.reply(*talk, tools=[BASH], parallel_tool_calls=False)
        assert "pwd" not in chat().tokenizer.decode(agent.engine.sampled[3][0].prompt)
        agent.require_exact()


@in_loop
async def test_a_stop_string_cuts_the_text_and_no_id_and_the_next_prompt_shows_the_cut() -> None:
    async with serving("Look here\nObservation: mine", "Done.") as agent:
        first = await agent.reply(USER, stop=["Observation:", "Calling tools:"])
        assert first["content"].rstrip() == "Look here"
        await agent.reply(USER, first, USER, stop=["Observation:"])
        assert "Observation" in agent.engine.chat.text(agent.engine.sampled[0][1].tokens)
        assert "Observation" not in chat().tokenizer.decode(agent.engine.sampled[1][0].prompt)
        assert len(agent.require_exact()) == 2


@in_loop
async def test_the_runs_sampling_wins_over_the_requests() -> None:
    async with serving("Done.", sampling=Sampling(50, temperature=0.7)) as agent:
        fields = {"temperature": 0, "top_p": 0.1, "seed": 4, "max_tokens": 3, "top_logprobs": None,
                  "logit_bias": {"4": 9}, "presence_penalty": 1.5}  # fmt: skip
        await agent.reply(USER, **fields)
        assert agent.engine.sampling == Sampling(50, temperature=0.7)
        assert agent.engine.sampled[0][0].seed != 4
        (node,) = agent.session.tree.nodes
        assert all(node.completion.logprobs)


@in_loop
async def test_ids_and_log_probabilities_come_back_place_by_place() -> None:
    async with serving("Done.", "Done.") as agent:
        answer = (await agent.post(USER, logprobs=True, return_token_ids=True)).json()
        request, completion = agent.engine.sampled[0]
        choice = answer["choices"][0]
        assert answer["prompt_token_ids"] == list(request.prompt)
        assert choice["token_ids"] == list(completion.tokens)
        pairs = [(each["token"], each["logprob"]) for each in choice["logprobs"]["content"]]
        assert pairs == [
            (f"token_id:{token}", logprob)
            for token, logprob in zip(completion.tokens, completion.logprobs, strict=True)
        ]
        assert answer["usage"]["completion_tokens"] == completion.length
        plain = (await agent.post(USER)).json()
        assert plain["choices"][0]["logprobs"] is None
        assert "prompt_token_ids" not in plain


@in_loop
async def test_several_replies_to_one_prompt_are_all_learned() -> None:
    async with serving("One.", "Two.", "Three.") as agent:
        answer = (await agent.post(USER, n=2)).json()
        texts = [choice["message"]["content"] for choice in answer["choices"]]
        assert texts == ["One.", "Two."]
        await agent.reply(USER, answer["choices"][0]["message"], USER)
        assert len(agent.require_exact()) == 2
        assert len({request.seed for request, _ in agent.engine.sampled}) == 3
        assert agent.session.tree.nodes[2].parent is agent.session.tree.nodes[0]


@in_loop
async def test_of_replies_that_differ_in_their_thoughts_the_one_with_the_calls_id_goes_on() -> None:
    texts = [f"<think>\n{thought}\n</think>\n\n{LS}" for thought in ("One.", "Two.")]
    async with serving(*texts, "Done.", template="qwen3") as agent:
        choices = (await agent.post(USER, n=2, tools=[BASH])).json()["choices"]
        second = choices[1]["message"]
        await agent.reply(USER, second, result(second["tool_calls"][0]), tools=[BASH])
        assert agent.session.tree.nodes[2].parent is agent.session.tree.nodes[1]
        agent.require_exact()


@in_loop
async def test_a_stream_is_the_whole_answer_in_events() -> None:
    async with serving(f"I look.\n{LS}\n{PWD}", "Done.") as agent:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        response = await agent.post(USER, tools=[BASH], **options)
        assert response.headers["content-type"].startswith("text/event-stream")
        *lines, last = [line[6:] for line in response.text.split("\n\n") if line]
        assert last == "[DONE]"
        chunks = [json.loads(line) for line in lines]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        assert deltas[0]["role"] == "assistant"
        assert "".join(delta.get("content") or "" for delta in deltas) == "I look."
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        assert [call["index"] for call in calls] == [0, 1]
        assert all(call["id"] and call["function"]["name"] == "bash" for call in calls)
        reasons = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
        assert [each for each in reasons if each] == ["tool_calls"]
        assert chunks[-1]["usage"]["completion_tokens"] == agent.engine.sampled[0][1].length
        plain = await agent.post(USER, stream=True)
        assert '"usage"' not in plain.text


@in_loop
async def test_a_retry_joins_a_call_that_still_runs_and_replays_one_that_was_answered() -> None:
    ready = asyncio.Event()
    async with serving((ready, "One."), "Two.") as agent:
        again = {"x-stainless-retry-count": "1"}
        first = asyncio.create_task(agent.reply(USER))
        await agent.engine.begun.acquire()
        joined = asyncio.create_task(agent.reply(USER, headers=again))
        await asyncio.sleep(0.05)
        ready.set()
        assert (await first) == (await joined)
        for number in range(2, 9):
            replayed = await agent.reply(USER, headers={"x-stainless-retry-count": str(number)})
            assert replayed["content"] == "One."
        assert len(agent.engine.sampled) == 1
        assert len(agent.require_exact()) == 1


@in_loop
async def test_a_retry_without_a_header_joins_a_call_whose_client_is_gone() -> None:
    ready = asyncio.Event()
    async with serving((ready, "One."), "Two.") as agent:
        await agent.hang_up_on(USER)
        again = asyncio.create_task(agent.reply(USER))
        await asyncio.sleep(0.05)
        ready.set()
        assert (await again)["content"] == "One."
        assert (await agent.reply(USER))["content"] == "Two."  # wanted on purpose
        assert len(agent.require_exact()) == 2


@in_loop
async def test_equal_calls_at_once_without_a_retrys_header_are_sampled_each() -> None:
    ready = asyncio.Event()
    async with serving((ready, "One."), (ready, "Two.")) as agent:
        both = [asyncio.create_task(agent.reply(USER)) for _ in range(2)]
        for _ in both:
            await agent.engine.begun.acquire()
        ready.set()
        texts = {message["content"] for message in await asyncio.gather(*both)}
        assert texts == {"One.", "Two."}
        assert len(agent.require_exact()) == 2


@in_loop
async def test_a_retry_of_a_call_that_failed_takes_no_equal_calls_reply() -> None:
    ready = asyncio.Event()
    async with serving(MachineError("no memory"), (ready, "One."), "Two.") as agent:
        wanted = asyncio.create_task(agent.post(USER))
        other = asyncio.create_task(agent.reply(USER))
        for _ in range(2):
            await agent.engine.begun.acquire()
        assert (await wanted).status_code == 503
        ready.set()
        assert (await other)["content"] == "One."
        again = await agent.reply(USER, headers={"x-stainless-retry-count": "1"})
        assert again["content"] == "Two."
        assert len(agent.require_exact()) == 2


@in_loop
async def test_calls_under_other_idempotency_keys_are_other_calls() -> None:
    async with serving("One.", "Two.") as agent:
        texts = [
            (await agent.reply(
                USER, headers={"Idempotency-Key": key, "x-stainless-retry-count": "1"}
            ))["content"]
            for key in "ab"
        ]  # fmt: skip
        assert texts == ["One.", "Two."]


@in_loop
async def test_an_idempotency_key_replays_its_answer_and_is_no_other_requests() -> None:
    async with serving("One.", "Two.") as agent:
        key = {"Idempotency-Key": "stainless-1"}
        assert await agent.reply(USER, headers=key) == await agent.reply(USER, headers=key)
        other = await agent.post(SYSTEM, USER, headers=key)
        assert other.status_code == 400
        assert len(agent.engine.sampled) == 1


@in_loop
async def test_a_client_that_is_gone_for_good_frees_the_engine_and_its_tokens_are_counted() -> None:
    async with serving((asyncio.Event(), ""), "Two.", grace_seconds=0.05) as agent:
        first = asyncio.create_task(agent.reply(USER))
        await agent.engine.begun.acquire()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        while not agent.engine.cancelled:
            await asyncio.sleep(0.01)
        assert (await agent.reply(USER))["content"] == "Two."
        agent.require_exact()
        assert agent.balance == {"client_gone": 7, "learned": agent.engine.sampled[0][1].length}


@in_loop
async def test_a_whole_reply_whose_client_was_gone_is_replayed_or_counted_as_abandoned() -> None:
    ready = asyncio.Event()
    async with serving((ready, "One."), "Two.") as agent:
        await agent.hang_up_on(USER)
        ready.set()
        while not agent.session.calls:
            await asyncio.sleep(0.01)
        assert agent.balance == {"abandoned": agent.engine.sampled[0][1].length, "learned": 0}
        assert (await agent.reply(USER))["content"] == "One."
        assert list(agent.balance) == ["learned"]


@in_loop
async def test_a_rollout_that_ends_while_it_samples_is_sealed() -> None:
    async with serving((asyncio.Event(), ""), "Two.") as agent:
        first = asyncio.create_task(agent.post(USER))
        await agent.engine.begun.acquire()
        await agent.session.seal()
        response = await first
        assert response.status_code == 409
        assert response.headers["x-should-retry"] == "false"
        assert (await agent.post(SYSTEM, USER)).status_code == 409
        assert agent.balance == {"sealed": 7, "learned": 0}


@in_loop
async def test_a_call_that_the_machine_failed_leaves_no_node_and_a_retry_makes_it_good() -> None:
    async with serving(MachineError("out of memory"), "One.", "Two.") as agent:
        response = await agent.post(USER)
        assert response.status_code == 503
        assert "out of memory" in response.json()["error"]["message"]
        assert not agent.session.tree.nodes
        failure: Any = agent.session.failure
        assert isinstance(failure, MachineError)
        again = await agent.reply(USER, headers={"x-stainless-retry-count": "1"})
        assert again["content"] == "One."
        assert agent.session.failure is None
        await agent.reply(USER, again, USER)
        assert len(agent.require_exact()) == 1


@in_loop
async def test_replies_that_are_cancelled_beside_a_failed_one_are_the_machines() -> None:
    async with serving((asyncio.Event(), ""), MachineError("no memory"), "One.") as agent:
        assert (await agent.post(USER, n=2)).status_code == 503
        await agent.reply(USER)
        learned = agent.engine.sampled[0][1].length
        assert agent.balance == {"machine": 7, "learned": learned}


@in_loop
async def test_a_fault_of_the_endpoint_fails_its_call_alone_and_its_tokens_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(RuntimeError("odd"), "Lost.", "One.") as agent:
        assert (await agent.post(USER)).status_code == 500
        with monkeypatch.context() as change:
            change.setattr("assay.agents.session.reply_of", lambda *_: 1 / 0)
            assert (await agent.post(SYSTEM, USER)).status_code == 500
        assert agent.session.failure is None
        assert (await agent.reply(USER))["content"] == "One."
        lost, learned = (completion.length for _, completion in agent.engine.sampled)
        assert agent.balance == {"machine": lost, "learned": learned}
        agent.require_exact()


@pytest.mark.parametrize("value", ["NaN", "-Infinity", '"\\ud800"'])
@in_loop
async def test_a_call_that_no_clients_json_can_hold_is_shown_as_text(value: str) -> None:
    async with serving(LS.replace('"ls"', value)) as agent:
        first = await agent.reply(USER, tools=[BASH])
        assert "tool_calls" not in first
        assert value in first["content"]


@pytest.mark.parametrize("limits", [{"calls": 1}, {"tokens": 1}])
@in_loop
async def test_a_budget_that_is_used_up_gets_a_polite_answer_that_is_not_recorded(
    limits: dict[str, Any],
) -> None:
    async with serving("One.", limits=limits) as agent:
        first = await agent.reply(USER, tools=[BASH])
        choice = (await agent.post(USER, first, USER, tools=[BASH])).json()["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert choice["message"]["content"]
        assert "tool_calls" not in choice["message"]
        stream = (await agent.post(USER, first, USER, stream=True)).text
        assert stream.endswith("data: [DONE]\n\n")
        both = (await agent.post(USER, first, USER, n=2)).json()["choices"]
        assert [choice["index"] for choice in both] == [0, 1]
        assert len(agent.session.tree.nodes) == 1
        for _ in range(60):
            response = await agent.post(USER, first, USER)
        assert response.status_code == 409  # a loop that insists is refused in the end


@in_loop
async def test_a_prompt_that_leaves_no_room_is_the_requests_error() -> None:
    async with serving("One.", context_length=12) as agent:
        response = await agent.post(USER)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "context_length_exceeded"
        assert agent.session.failure is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"), ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages"),
        ({"messages": [USER], "n": 0}, "n"), ({"messages": [USER], "n": "2"}, "n"),
        ({"messages": [USER], "stop": ["a"] * 17}, "stop"),
        ({"messages": [USER], "stop": "a" * 257}, "stop"),
        ({"messages": [USER], "stop": 3}, "stop"), ({"messages": [USER], "tools": [3]}, "tools"),
        ({"messages": [USER], "tools": {"a": 1}}, "tools"),
        ({"messages": [USER], "tools": [{"function": {
            "name": "f", "parameters": {"properties": 5}}}]}, "tools"),
    ],
)  # fmt: skip
@in_loop
async def test_a_request_that_cannot_be_answered_is_refused_in_openais_form(
    body: dict[str, Any], param: str
) -> None:
    async with serving() as agent:
        response = await agent.http.post(f"{agent.url}/chat/completions", json=body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert not agent.session.tree.nodes


@pytest.mark.parametrize("name", sorted(NO_TOOLS))
def test_tools_that_the_chat_template_cannot_show_are_refused_for_what_they_are(
    name: str, tmp_path: Path
) -> None:
    renderer = CallRenderer(chat_of(tmp_path, name))
    with pytest.raises(RefusedCallError, match=r"^tools: the model's chat template takes no tools"):
        renderer.call_format(model_call([USER], [BASH]))


@pytest.mark.parametrize("body", ["", "[]", "{", '{"messages": NaN', "[" * 5000])
@in_loop
async def test_a_body_that_is_no_object_of_json_is_refused(body: str) -> None:
    async with serving() as agent:
        url = f"{agent.url}/chat/completions"
        response = await agent.http.post(url, content=body)
        assert response.status_code == 400


@in_loop
async def test_a_connection_is_kept_for_longer_than_clients_keep_theirs() -> None:
    async with serving() as agent:
        assert agent.server._running
        ours = agent.server._running[0].config.timeout_keep_alive
        assert ours > 2 * (httpx2.Limits().keepalive_expiry or 0)


@in_loop
async def test_questions_before_the_work_leave_the_rollout_whole() -> None:
    async with serving("One.", context_length=500) as agent:
        models = (await agent.http.get(f"{agent.url}/models")).json()
        assert models["data"][0]["max_model_len"] == 500
        root = agent.url.partition("/rollout")[0]
        assert (await agent.http.get(f"{root}/health")).json() == {"ok": True}
        for path in ("api/tags", "version", "props", "v1"):
            assert (await agent.http.get(f"{root}/{path}")).status_code == 404
        await agent.reply(USER)
        assert len(agent.require_exact()) == 1


@in_loop
async def test_a_summary_that_replaces_the_history_leaves_both_chains_counted() -> None:
    async with serving(LS, "A summary.", "Done.", limits={"paid_roots": "all"}) as agent:
        first = await agent.reply(USER, tools=[BASH])
        talk = [USER, first, result(first["tool_calls"][0])]
        summary = await agent.reply(*talk, {"role": "user", "content": "Sum up."})
        await agent.reply({"role": "user", "content": summary["content"]}, tools=[BASH])
        assert list(agent.balance) == ["learned"]
        agent.require_exact()


@in_loop
async def test_a_retry_that_leaves_too_gets_its_own_time_for_a_further_one() -> None:
    async with serving((asyncio.Event(), ""), "Two.", grace_seconds=60.0) as agent:
        session = agent.session
        for departures in (1, 2):
            client = asyncio.create_task(agent.reply(USER))
            while not (session._pending and session._pending[0].waiting):
                await asyncio.sleep(0.01)
            client.cancel()
            await asyncio.gather(client, return_exceptions=True)
            while session._pending[0].departures < departures:
                await asyncio.sleep(0.01)
        (pending,) = session._pending
        session._give_up(pending, 1)  # as when the first client's time is over
        assert session._pending == [pending]
        session._give_up(pending, 2)
        assert not session._pending


@in_loop
async def test_a_retry_that_comes_when_its_call_was_just_given_up_is_sampled_anew() -> None:
    ready = asyncio.Event()
    async with serving((ready, "One."), "Two.", grace_seconds=0.0) as agent:
        session = agent.session
        first = asyncio.create_task(agent.reply(USER))
        await agent.engine.begun.acquire()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        while session._pending and session._pending[0].waiting:
            await asyncio.sleep(0.001)
        assert (await agent.reply(USER))["content"] == "Two."
        agent.require_exact()
