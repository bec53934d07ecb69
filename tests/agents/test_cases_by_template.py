"""What of the endpoint depends on a chat template, under those of twenty families of models: the
learner gets the engine's tokens, and the next prompt has them or is the template's own rendering.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest

from assay.agents.replies import tools_of
from assay.engines.base import Sampling
from assay.policy.chat import CHANNEL, Chat, as_fields
from assay.policy.tokenizer import encode_within
from assay.types import Message, ToolCall
from tests.agents.served import BASH, Agent, serving
from tests.agents.test_endpoint import in_loop, result
from tests.policy import test_chat_templates as of_text
from tests.policy import test_tool_templates as of_tools

TEXT_ONLY = ("deepseek_r1_distill", "gemma3", "llama2", "phi4", "smollm2", "zephyr")
"""Templates that show no tools."""
TOOL_NAMES = (
    "apertus", "command_r7b", "deepseek_v3_2", "gemma4_v5", "glm4_6", "glm4_7",
    "gptoss", "granite4", "kimi_k2", "lfm2_v2", "llama3_1", "minimax_m2", "mistral_small3_2",
    "nemotron_3_nano", "qwen2_5", "qwen3", "qwen3_5_think", "seed_oss",
)  # fmt: skip
NAMES = (*TEXT_ONLY, *TOOL_NAMES)
USER = {"role": "user", "content": "What is 2+2?"}
MORE = {"role": "user", "content": "And 3+3?"}
FOUR, HM, OPENS = "It is four.", "Hm.", "<think>\n"
LS = ToolCall("bash", {"command": "ls -la"})
TOOLS: dict[str, Any] = {"tools": [BASH]}


@cache
def chat(name: str) -> Chat:
    templates: Any = of_text if name in TEXT_ONLY else of_tools
    opened: Chat = templates.chat_of(folder(), name)
    return opened


@cache
def folder() -> Path:
    made = mkdtemp(prefix="templates-")
    atexit.register(rmtree, made, ignore_errors=True)
    return Path(made)


def odd(using: Chat, tokens: Sequence[int]) -> tuple[int, ...]:
    """The tokens of a reply in pieces that no tokenizer gives: one for each character."""
    added, pieces, plain = using.tokenizer.added_tokens_decoder, list[int](), list[int]()
    for token in (*tokens, None):
        if token is not None and token not in added:
            plain.append(token)
            continue
        for character in using.tokenizer.decode(plain):
            pieces += encode_within(using.tokenizer, character)
        plain.clear()
        pieces += [] if token is None else [token]
    return tuple(pieces)


def spoken(
    using: Chat, talk: Sequence[dict[str, Any]], text: str, *calls: ToolCall,
    thought: str = "", tools: Sequence[Any] = (),
) -> tuple[int, ...]:  # fmt: skip
    """What a model says that was trained on the template: the reply as the template renders it, up
    to the first token that ends it; behind a thought where the prompt opens one.
    """
    arguments = {"tools": list(tools)} if tools else {}
    messages = [Message(each["role"], each["content"]) for each in talk]
    prompt = using.encode_prompt(messages, arguments)
    opened, end = using.opened(prompt), using.call_end_token if calls else using.end_token
    fields = {"tool_calls": as_fields(calls)} if calls else {}
    begun, tokens = using.encode_turn(
        messages, Message("assistant", text, fields=fields), arguments
    )
    if thought or opened or len(begun) < len(prompt):
        if calls:
            text += using.call_format(tools_of(tools), arguments).write(calls)
        if thought or opened:
            text = ("" if opened else OPENS) + f"{thought or HM}\n</think>\n\n{text}"
        return odd(using, (*encode_within(using.tokenizer, text), end))
    length = next(n for n, token in enumerate(tokens, 1) if token in using.stop_tokens)
    return odd(using, tokens[:length])


def squeezed(text: str) -> str:
    return "".join(text.split())


def prompts(agent: Agent) -> list[tuple[int, ...]]:
    return [request.prompt for request, _ in agent.engine.sampled]


def told(agent: Agent, number: int) -> str:
    """The prompt of a call as text."""
    return str(agent.engine.chat.tokenizer.decode(prompts(agent)[number]))


def stays(agent: Agent, before: int, after: int) -> bool:
    """Whether a call's prompt begins with the ids of an earlier call's prompt and reply."""
    request, completion = agent.engine.sampled[before]
    ids = request.prompt + tuple(completion.tokens)
    return prompts(agent)[after][: len(ids)] == ids


def rendered(using: Chat, *talk: dict[str, Any], **how: Any) -> str:
    """Transformers' own rendering."""
    options = {"add_generation_prompt": True, "tokenize": False, **how}
    return str(using.tokenizer.apply_chat_template([*talk], **options))


def require_own_rendering(agent: Agent, *renderings: str) -> None:
    """Check the second prompt: the stored ids stay if one of the template's own renderings begins
    with their text, and the prompt says what one of these says. Each token is learned once.
    """
    using, (request, completion) = agent.engine.chat, agent.engine.sampled[0]
    last = completion.tokens[-1] in using.stop_tokens
    said = completion.tokens[: len(completion.tokens) - last]
    before = squeezed(using.tokenizer.decode((*request.prompt, *said)))
    has_channels = CHANNEL in using.tokenizer.get_vocab()  # which are written anew
    may_stay = not has_channels and any(squeezed(each).startswith(before) for each in renderings)
    assert stays(agent, 0, 1) == may_stay
    assert squeezed(told(agent, 1)) in map(squeezed, renderings)
    assert len(agent.require_exact()) == (1 if may_stay else 2)
    assert list(agent.balance) == ["learned"]


def limited(agent: Agent, tokens: int) -> None:
    """Let the engine sample only so many tokens."""
    served = agent.session.policy
    agent.session.policy = replace(served, sampling=Sampling(tokens))


def test_there_are_templates_of_at_least_ten_families() -> None:
    assert len({name.rstrip("_0123456789v").partition("_")[0] for name in NAMES}) >= 10
    assert len(TOOL_NAMES) >= 10


@pytest.mark.parametrize("name", NAMES)
@in_loop
async def test_odd_tokens_of_a_reply_stay_and_a_turn_ends_once_as_the_template_ends_it(
    name: str,
) -> None:
    using = chat(name)
    answer = {"role": "assistant", "content": FOUR}
    first = spoken(using, [USER], FOUR)
    assert first != (*encode_within(using.tokenizer, using.tokenizer.decode(first)),)
    async with serving(first, "x", template=using) as agent:
        reply = await agent.reply(USER)
        assert reply["content"].strip() == FOUR
        await agent.reply(USER, reply, MORE)
        thinking = {**answer, "content": f"<think>\n{HM}\n</think>\n\n{FOUR}"}
        own = [rendered(using, USER, each, MORE) for each in (answer, thinking)]
        require_own_rendering(agent, *own)


@pytest.mark.parametrize("name", NAMES)
@in_loop
async def test_a_reply_that_was_cut_off_is_closed_by_context_that_is_not_learned(
    name: str,
) -> None:
    using = chat(name)
    whole = spoken(using, [USER], FOUR)
    said = whole[: -3 - (whole[-1] in using.stop_tokens)]
    async with serving((*said, 5, 5, 5), "x", template=using) as agent:
        limited(agent, len(said))
        choice = (await agent.post(USER)).json()["choices"][0]
        assert choice["finish_reason"] == "length"
        await agent.reply(USER, choice["message"], MORE)
        text = choice["message"]["content"].strip()
        assert FOUR.startswith(text)
        content = (text, f"<think>\n{HM}\n</think>\n\n{text}")
        talks = [[USER, {"role": "assistant", "content": each}, MORE] for each in content]
        require_own_rendering(agent, *(rendered(using, *talk) for talk in talks))
        (sample, *_) = agent.require_exact()
        assert not any(sample.mask[len(prompts(agent)[0]) + len(said) : len(prompts(agent)[1])])


@pytest.mark.parametrize("name", NAMES)
@in_loop
async def test_a_reply_cut_off_in_its_thoughts_is_reasoning_and_stays_among_the_thoughts(
    name: str,
) -> None:
    using = chat(name)
    tag = using.opened(using.encode_prompt([Message("user", USER["content"])], {}))
    said = odd(using, encode_within(using.tokenizer, ("" if tag else OPENS) + "I wonder"))
    async with serving((*said, 5, 5), "x", template=using) as agent:
        limited(agent, len(said))
        reply = await agent.reply(USER)
        assert reply["content"] == ""
        assert reply["reasoning_content"].endswith("I wonder")
        await agent.reply(USER, reply, MORE)
        agent.require_exact()
        assert list(agent.balance) == ["learned"]
        before, thought, _ = told(agent, 1).partition("I wonder")
        assert not thought or before.rstrip().endswith("<think>")


@pytest.mark.parametrize("name", NAMES)
@in_loop
async def test_another_end_token_or_a_control_token_in_a_reply_costs_no_token(name: str) -> None:
    using = chat(name)
    said, eos = spoken(using, [USER], FOUR), using.tokenizer.eos_token_id
    added = using.tokenizer.added_tokens_decoder
    control = next(t for t in sorted(added) if added[t].special and t not in using.stop_tokens)
    for odd_one in ((*said[:-1], eos), (*said[:-3], control, *said[-3:])):
        async with serving(odd_one, "x", template=using) as agent:
            reply = await agent.reply(USER)
            assert reply["content"].replace(added[control].content, "").strip() == FOUR
            await agent.reply(USER, reply, MORE)
            samples = agent.require_exact()
            assert len(samples) == (1 if stays(agent, 0, 1) else 2)
            assert list(agent.balance) == ["learned"]
            twice = using.tokenizer.decode([eos, using.end_token])
            assert twice not in squeezed(told(agent, 1))


@pytest.mark.parametrize("name", NAMES)
@in_loop
async def test_thoughts_that_the_template_drops_begin_a_sample_and_others_stay(name: str) -> None:
    using = chat(name)
    said = spoken(using, [USER], FOUR, thought=HM)
    async with serving(said, "x", template=using) as agent:
        reply = await agent.reply(USER)
        assert (reply["reasoning_content"], reply["content"].strip()) == (HM, FOUR)
        await agent.reply(USER, reply, MORE)
        content = f"<think>\n{HM}\n</think>\n\n{FOUR}"
        talk = [USER, {"role": "assistant", "content": content}, MORE]
        plain = [USER, {"role": "assistant", "content": FOUR}, MORE]
        require_own_rendering(agent, *(rendered(using, *each) for each in (talk, plain)))


def rewritten(reply: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The reply as clients send it back."""
    (call,) = reply["tool_calls"]
    arguments = call["function"]["arguments"]

    def with_call(arguments: Any, **fields: Any) -> dict[str, Any]:
        function = {"name": "bash", "arguments": arguments}
        return {**reply, "tool_calls": [{**call, "function": function, **fields}]}

    bare = {key: value for key, value in reply.items() if key != "reasoning_content"}
    return {
        "as it was": reply,
        "other spaces": with_call(json.dumps(json.loads(arguments), indent=3)),
        "an object": with_call(json.loads(arguments)),
        "another id": with_call(arguments, id="toolu_9", index=0),
        "an empty text": {**reply, "content": reply["content"] or ""},
        "parts": {**reply, "content": [{"type": "text", "text": reply["content"] or ""}]},
        "fields of others": {**reply, "refusal": None, "annotations": [], "audio": None,
                             "function_call": None, "provider_specific_fields": {"x": 1}},
        "no thoughts": bare,
        "thoughts by another name": {**bare, "reasoning": reply.get("reasoning_content", "")},
    }  # fmt: skip


@pytest.mark.parametrize("name", TOOL_NAMES)
@in_loop
async def test_a_call_that_comes_back_rewritten_has_the_same_prompt_as_one_that_does_not(
    name: str,
) -> None:
    using = chat(name)
    async with serving(spoken(using, [USER], "", LS, **TOOLS), *["x"] * 9, template=using) as agent:
        reply = await agent.reply(USER, **TOOLS)
        for message in rewritten(reply).values():
            await agent.reply(USER, message, result(message["tool_calls"][0]), **TOOLS)
        first, *others = prompts(agent)[1:]
        assert others == [first] * 8
        root, *nodes = agent.session.tree.nodes
        assert {node.parent for node in nodes} == {root}
        agent.require_exact()
        assert list(agent.balance) == ["learned"]


ANEW = {"command_r7b", "qwen3"}
"""Templates that show a call otherwise once it is answered, or whose model began with an empty
thought that the template then leaves out."""


@pytest.mark.parametrize("name", TOOL_NAMES)
@in_loop
async def test_the_result_of_a_call_stands_behind_it_as_the_template_shows_results(
    name: str,
) -> None:
    using = chat(name)
    said = spoken(using, [USER], "", LS, **TOOLS)
    async with serving(said, "x", template=using) as agent:
        reply = await agent.reply(USER, **TOOLS)
        assert [call["function"]["name"] for call in reply["tool_calls"]] == ["bash"]
        await agent.reply(USER, reply, result(reply["tool_calls"][0]), **TOOLS)
        assert stays(agent, 0, 1) == (name not in ANEW)
        (call,) = agent.session.tree.nodes[0].calls
        fields = as_fields([replace(call, id=call.id or reply["tool_calls"][0]["id"])])
        named = {"name": "bash", "tool_call_id": fields[0]["id"]}
        messages = [
            Message("user", USER["content"]),
            Message("assistant", "", fields={"tool_calls": fields}),
            Message("tool", "a.py", fields=named),
        ]
        own = squeezed(using.render(messages, TOOLS)).rpartition("-la")[2]
        assert squeezed(told(agent, 1)).rpartition("-la")[2] == own
        assert len(agent.require_exact()) == (2 if name in ANEW else 1)


@pytest.mark.parametrize(
    ("name", "its_id"), [("kimi_k2", "functions.bash:0"), ("mistral_small3_2", "54dd52769")]
)
@in_loop
async def test_a_result_names_the_id_that_the_policy_gave_its_call(name: str, its_id: str) -> None:
    using = chat(name)
    async with serving(spoken(using, [USER], "", LS, **TOOLS), "x", template=using) as agent:
        reply = await agent.reply(USER, **TOOLS)
        assert reply["tool_calls"][0]["id"] != its_id, "the client's ids cannot be the policy's"
        await agent.reply(USER, reply, result(reply["tool_calls"][0]), **TOOLS)
        assert told(agent, 1).count(its_id) == 2


@pytest.mark.parametrize("name", TOOL_NAMES)
@in_loop
async def test_a_stream_has_the_calls_of_the_whole_answer(name: str) -> None:
    using = chat(name)
    said = spoken(using, [USER], "", LS, **TOOLS)
    async with serving(said, said, template=using) as agent:
        reply = await agent.reply(USER, **TOOLS)
        options: Any = {"stream": True, **TOOLS}
        text = (await agent.post(USER, **options)).text
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        deltas = [each["delta"] for chunk in chunks for each in chunk["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        functions = [call["function"] for call in reply["tool_calls"]]
        assert [call["function"] for call in calls] == functions
        assert json.loads(functions[0]["arguments"]) == LS.arguments
        assert len(agent.require_exact()) == 2


@pytest.mark.parametrize("name", TOOL_NAMES)
@in_loop
async def test_a_broken_call_is_text_and_learned_whether_the_agent_keeps_or_drops_it(
    name: str,
) -> None:
    using = chat(name)
    whole = spoken(using, [USER], "", LS, **TOOLS)
    broken = (*whole[:-8], whole[-1])
    async with serving(whole, broken, "x", "x", template=using) as agent:
        reply = await agent.reply(USER, **TOOLS)
        talk = [USER, reply, result(reply["tool_calls"][0])]
        message = await agent.reply(*talk, **TOOLS)
        assert "tool_calls" not in message
        error = {"role": "user", "content": "That is no call."}
        statuses = [(await agent.post(*talk, *each, error, **TOOLS)).status_code
                    for each in ([message], [])]  # fmt: skip
        alternates = not using.takes_users_in_a_row
        assert statuses == [200, 400 if alternates else 200]
        agent.require_exact()
        assert list(agent.balance) == ["learned"]


@pytest.mark.parametrize("name", NAMES)
@in_loop
async def test_a_summary_in_place_of_the_history_begins_a_conversation_and_all_is_learned_once(
    name: str,
) -> None:
    using = chat(name)
    said = spoken(using, [USER], FOUR)
    async with serving(said, said, said, template=using, limits={"paid_roots": "all"}) as agent:
        reply = await agent.reply(USER)
        summary = await agent.reply(USER, reply, MORE)
        await agent.reply({"role": "user", "content": f"So far: {summary['content']}"})
        first, second, third = agent.session.tree.nodes
        assert (second.parent, third.parent) == (first, None)
        assert len(agent.require_exact()) == (2 if stays(agent, 0, 1) else 3)
        assert list(agent.balance) == ["learned"]


@pytest.mark.parametrize("name", NAMES)
@in_loop
async def test_a_stop_string_cuts_what_is_shown_and_no_token_and_begins_a_sample(name: str) -> None:
    using = chat(name)
    said = spoken(using, [USER], f"{FOUR}\nObservation: mine")
    async with serving(said, "x", template=using) as agent:
        reply = await agent.reply(USER, stop=["Observation:"])
        assert reply["content"].strip() == FOUR
        await agent.reply(USER, reply, MORE, stop=["Observation:"])
        assert "Observation" in using.text(agent.engine.sampled[0][1].tokens)
        assert "Observation" not in told(agent, 1)
        own = rendered(using, USER, {"role": "assistant", "content": FOUR}, MORE)
        assert squeezed(told(agent, 1)) == squeezed(own)
        assert len(agent.require_exact()) == 2


@pytest.mark.parametrize("name", TOOL_NAMES)
@in_loop
async def test_a_spent_budget_is_a_text_that_is_no_reply_of_the_policy(name: str) -> None:
    using = chat(name)
    said = spoken(using, [USER], "", LS, **TOOLS)
    async with serving(said, template=using, limits={"calls": 1}) as agent:
        reply = await agent.reply(USER, **TOOLS)
        talk = [USER, reply, result(reply["tool_calls"][0])]
        polite = await agent.reply(*talk, **TOOLS)
        assert polite["content"]
        assert "tool_calls" not in polite
        again = await agent.reply(*talk, polite, MORE, **TOOLS)
        assert again == polite
        (sample,) = agent.require_exact()
        assert sum(sample.mask) == len(said)
