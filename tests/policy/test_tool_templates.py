"""What SFT, DPO and prompts hold of tool calls under the chat templates of public models: what the
template renders of the parsed call, up to the token that ends the turn.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assay.engines.openai import hosted_chat
from assay.errors import SettingsError, UserError
from assay.policy.chat import Chat, open_chat
from assay.prompts import CARD, transformers_code
from assay.rollout.pairs import read_pairs
from assay.rollout.prompter import Prompter
from assay.tasks import load, rows
from assay.types import Task
from tests.policy import test_chat_templates as bare
from tests.policy.test_tokens_over_turns import BASH, with_bash
from tests.tasks.test_load import ROW, write

FOLDER = Path(__file__).parent / "tool_templates"
SHARED = ("deepseek_r1_distill", "deepseekv3", "glm4moe", "qwen2_5", "qwen3")
"""Templates of chat_templates/ that render calls."""
NAMES = [*sorted(file.stem for file in FOLDER.glob("*.jinja")), *SHARED]
MARKER = re.compile(
    rf"{bare.MARKER.pattern}|\[/?[A-Z_]+\]|</?tool_calls?>|\[e~\[|\]~b\]|\]~!b\[|</?think>|<turn\|>"
    r"|<(?:beginning|end)_of_sentence>|</?minimax:tool_call>|<seed:\w+>|<\|tool_call>|<tool_call\|>"
    r"|<\|turn>|<\|tool_response>|<tool_response\|>|</?tool_response>"
)
TEXT = {"deepseek_r1_distill", "deepseekv3", "functionary3_2"}
"""Templates that take arguments as JSON text."""
NULL = {"deepseek_r1_distill"}
"""Templates that show no call beside a content that is a text, even an empty one."""
IDS = {"apriel1_5", "command_r7b"}
"""Templates that refuse calls without an id, or cannot tell their results apart."""
NINE = {"mistral_nemo", "mistral_small3_2"}
"""Templates that refuse ids of other than nine letters and digits."""
SINGLE = {"llama3_1", "llama3_2"}
"""Templates that refuse several calls in a reply."""
FIRST = {"gptoss"}
"""Templates that show the first of several calls."""
NOT_PREFIX = {"apertus", "hermes2_pro"}
"""Templates whose rendering of an answer to results does not begin with its prompt."""
NO_CALLS = {"granite3_3"}
NO_TOOLS = {"deepseek_r1_distill", "deepseek_v3_1", "deepseekv3"}
ENDS = {
    "apertus": "<|tools_suffix|>", "functionary3_1": "<|eom_id|>", "gemma4_v5": "<|tool_response>",
    "glm4_6": "<|observation|>", "glm4_7": "<|observation|>", "glm4moe": "<|observation|>",
    "gptoss": "<|call|>",
}  # fmt: skip
"""The tokens that end a call, where another ends a reply."""
REPLY_ENDS = {
    "<|im_end|>": ("hermes2_pro", "kimi_k2", "lfm2_2_5", "lfm2_v2", "minicpm5", "nemotron_3_nano",
                   "qwen2_5", "qwen3", "qwen3_5_think", "qwen3_coder", "qwen3_instruct_2507"),
    "</s>": ("devstral", "mistral_nemo", "mistral_small3_2"),
    "<|eot_id|>": ("functionary3_1", "functionary3_2", "llama3_1", "llama3_2"),
    "<\uff5cend\u2581of\u2581sentence\uff5c>": (
        "deepseek_r1_distill", "deepseek_v3_1", "deepseek_v3_2", "deepseekv3"),
    "<|user|>": ("glm4_6", "glm4_7", "glm4moe"), "<|end_of_text|>": ("granite3_3", "granite4"),
    "<|assistant_end|>": ("apertus",), "<|end|>": ("apriel1_5",), "<turn|>": ("gemma4_v5",),
    "<|END_OF_TURN_TOKEN|>": ("command_r7b",), "<|return|>": ("gptoss",),
    "<end_of_sentence>": ("minimax_m1",), "[e~[": ("minimax_m2",), "<seed:eos>": ("seed_oss",),
}  # fmt: skip
"""The tokens that end a reply, as each template writes them or begins the next turn."""

ASK = {"role": "user", "content": "Is it warm in Ulm?"}
LAST = {"role": "assistant", "content": "It is."}
ID, MORE = "a1B2c3D4e", "f5G6h7I8j"
ARGUMENTS = {"city": "Ulm \u00fc", "days": 2, "units": {"wind": ["m/s"]}, "now": True}
WEATHER = {"name": "weather", "arguments": ARGUMENTS}
SEARCH = {"name": "search", "arguments": {"query": "Ulm"}}


def schema(name: str, **kinds: str) -> dict[str, Any]:
    properties = {key: {"type": kind, "description": f"The {key}."} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": [*kinds][:1]}
    function = {"name": name, "description": f"Does {name}.", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    schema("weather", city="string", days="integer", units="object", now="boolean"),
    schema("search", query="string"),
]


def call(function: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": ID, "type": "function", "function": dict(function), **fields}


def calling(*calls: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [*calls], **fields}


def without(key: str, item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != key}


AS_TEXT = {"name": "weather", "arguments": json.dumps(ARGUMENTS, ensure_ascii=False)}
FILLED = {"name": "weather", "arguments": {**ARGUMENTS, "query": None,
          "units": {"wind": ["m/s"], "rain": None}}}  # fmt: skip
OLD = {"role": "assistant", "content": None, "function_call": AS_TEXT}
FORMS = {
    "an object": calling(call(WEATHER)),
    "JSON text": calling(call(AS_TEXT)),
    "JSON text of another writer": calling(
        call({**WEATHER, "arguments": json.dumps(ARGUMENTS, indent=1)})
    ),
    "null content": calling(call(AS_TEXT), content=None),
    "no content": without("content", calling(call(WEATHER))),
    "no parts of content": calling(call(WEATHER), content=[]),
    "no type": calling(without("type", call(WEATHER))),
    "no function": calling({"id": ID, **AS_TEXT}),
    "calls as JSON text": calling() | {"tool_calls": json.dumps([call(AS_TEXT)])},
    "each call as JSON text": calling() | {"tool_calls": [json.dumps(call(AS_TEXT))]},
    "filled by a table": calling(call(FILLED, index=None), function_call=None),
    "no id": calling(without("id", call(WEATHER))),
    "an old call": OLD,
    "an old call of a table": OLD | {"tool_calls": None},
}
"""The same call in forms that rows have it."""


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_warned", set())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


@cache
def chat_of(folder: Path, name: str) -> Chat:
    file = (bare.FOLDER if name in SHARED else FOLDER) / f"{name}.jinja"
    tokenizer = deepcopy(bare.trained(folder))
    template = file.read_text()
    eos = "<|END_OF_TURN_TOKEN|>" if name == "command_r7b" else bare.ENDS.get(name, "</s>")
    marks = {*MARKER.findall(template), "<s>", eos}
    tags = {mark for mark in marks if mark.strip("</").startswith(("tool", "think", "minimax"))}
    tokenizer.add_tokens(sorted(marks - tags), special_tokens=True)
    tokenizer.add_tokens(sorted(tags))
    tokenizer.bos_token, tokenizer.eos_token = "<s>", eos
    plain = (bare.FOLDER / "smollm2.jinja").read_text()
    tokenizer.chat_template = (
        {"default": plain, "tool_use": template} if name == "hermes2_pro" else template
    )
    return open_chat(tokenizer, "auto", ())


def parsed(name: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as the template takes it."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    as_text = name in TEXT
    return {
        **message,
        "content": message["content"] or (None if name in NULL else ""),
        "tool_calls": [
            {**call, "function": {**call["function"], "arguments": json.dumps(
                call["function"]["arguments"], ensure_ascii=False
            ) if as_text else call["function"]["arguments"]}}
            for call in calls
        ],
    }  # fmt: skip


def expected(chat: Chat, name: str, *messages: Mapping[str, Any]) -> tuple[list[int], list[bool]]:
    """The template's own rendering with the tools, learned from where it leaves the prompt, up to
    the token that ends the turn.
    """
    dicts = [parsed(name, message) for message in messages]
    prompt = bare.ids(chat, dicts[:-1], tools=TOOLS, add_generation_prompt=True)
    whole = bare.ids(chat, dicts, tools=TOOLS)
    pairs = zip(prompt, whole, strict=False)
    start = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(whole)))
    end = end_of(chat, name, messages[-1])
    ended = whole if end in whole[start:] else [*whole, end]
    return ended, [False] * start + [True] * (len(ended) - start)


def end_mark(name: str, reply: Mapping[str, Any]) -> str:
    """The text of the token that ends a reply."""
    if "tool_calls" in reply and name in ENDS:
        return ENDS[name]
    return next(end for end, names in REPLY_ENDS.items() if name in names)


def end_of(chat: Chat, name: str, reply: Mapping[str, Any]) -> int:
    """The token that ends a reply."""
    return int(chat.tokenizer.convert_tokens_to_ids(end_mark(name, reply)))


def test_there_are_at_least_eighteen_templates_that_show_calls() -> None:
    assert len({*NAMES}.difference(NO_CALLS)) >= 18


@pytest.mark.parametrize("name", NAMES)
def test_the_ends_that_are_expected_are_those_that_the_template_writes(
    folder: Path, name: str
) -> None:
    chat = chat_of(folder, name)

    def written(*messages: Mapping[str, Any]) -> str:
        dicts = [parsed(name, message) for message in messages]
        return str(chat.tokenizer.apply_chat_template(dicts, tools=TOOLS, tokenize=False))

    alone = written(ASK, LAST).rpartition(LAST["content"])[2]
    following = written(ASK, LAST, ASK).rpartition(LAST["content"])[2]
    assert end_mark(name, LAST) in alone or following.startswith(end_mark(name, LAST))
    if name not in NO_CALLS:
        calls = calling(call(WEATHER)) if name in SINGLE else BOTH
        call_and_result = written(ASK, calls, RESULTS[0])
        behind = call_and_result.partition(RESULTS[0]["content"])[0].rpartition("m/s")[2]
        assert end_mark(name, calling()) in behind


def task_of(folder: Path, *messages: Mapping[str, Any], **fields: Any) -> Task:
    row = {"messages": [*messages], "tools": TOOLS, **fields}
    (task,) = load(write(folder / "rows.jsonl", row), judged=False)
    return task


@pytest.mark.parametrize("name", NAMES)
def test_a_call_in_any_form_is_learned_as_the_template_renders_it_parsed(
    folder: Path, tmp_path: Path, name: str
) -> None:
    chat, differ = chat_of(folder, name), []
    for form, message in FORMS.items():
        has_id = ID in json.dumps(message)
        if not has_id and name in IDS | NINE:
            continue
        reply = calling(call(WEATHER) if has_id else without("id", call(WEATHER)))
        (sample,) = Prompter(chat).samples(task_of(tmp_path, ASK, message))
        if bare.learned(sample) != expected(chat, name, ASK, reply):
            differ.append(form)
        shown = bare.text_of(chat, sample)
        assert ("weather" in shown and "2" in shown) == (name not in NO_CALLS), form
        assert "None" not in shown
        assert "null" not in shown
    assert differ == []


BOTH = calling(call(WEATHER), call(SEARCH, id=MORE), content=None)
SEARCH_AS_TEXT = {"name": "search", "arguments": json.dumps(SEARCH["arguments"])}
BOTH_AS_TEXT = calling(call(AS_TEXT), call(SEARCH_AS_TEXT, id=MORE))
RESULTS = [
    {"role": "tool", "name": "weather", "tool_call_id": ID, "content": "22 degrees"},
    {"role": "tool", "name": "search", "tool_call_id": MORE, "content": "A city."},
]


@pytest.mark.parametrize("name", NAMES)
def test_several_calls_their_results_and_the_answer_are_the_templates_rendering(
    folder: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat = chat_of(folder, name)
    one = name in SINGLE
    calls, results = (calling(call(WEATHER)), RESULTS[:1]) if one else (BOTH, RESULTS)
    talk = [ASK, calls, *results, LAST]
    if one:
        with pytest.raises(SettingsError, match=r"refuses the messages .*single tool-call"):
            Prompter(chat).samples(task_of(tmp_path, ASK, BOTH))
    with caplog.at_level(logging.WARNING):
        samples = [*map(bare.learned, Prompter(chat).samples(task_of(tmp_path, *talk)))]
    as_text = calling(call(AS_TEXT)) if one else BOTH_AS_TEXT
    of_texts = Prompter(chat).samples(task_of(tmp_path, ASK, as_text, *results, LAST))
    assert [*map(bare.learned, of_texts)] == samples
    assert any("all but the first" in line for line in caplog.messages) == (name in FIRST)
    first, (tokens, mask) = expected(chat, name, *talk[:2]), expected(chat, name, *talk)
    if name in NOT_PREFIX:
        prompt = Prompter(chat).prompt(task_of(tmp_path, *talk))
        said = list(chat.encode_reply(LAST["content"]))
        tokens, mask = [*prompt, *said], [False] * len(prompt) + [True] * len(said)
    joined = [(tokens, first[1] + mask[len(first[1]) :])]
    assert samples in ([first, (tokens, mask)], joined)


@pytest.mark.parametrize("name", NAMES)
def test_the_stop_that_the_template_writes_behind_a_call_is_learned_and_sampled(
    folder: Path, tmp_path: Path, name: str
) -> None:
    chat = chat_of(folder, name)
    for reply in (calling(call(WEATHER)), LAST):
        (sample,) = Prompter(chat).samples(task_of(tmp_path, ASK, reply))
        tokens, mask = bare.learned(sample)
        end = end_of(chat, name, reply)
        own = [token for token, on in zip(tokens, mask, strict=True) if on]
        stops = [token for token in own if token in chat.stop_tokens]
        assert stops[:1] == [end], "generation goes on to where the learned reply ends"
        assert end != chat.tokenizer.bos_token_id


@pytest.mark.parametrize("name", NAMES)
def test_the_tools_of_a_task_are_in_its_prompt_or_the_user_is_told_once(
    folder: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat = chat_of(folder, name)
    file = write(tmp_path / "tasks.jsonl", {**ROW, "prompt": [ASK], "tools": json.dumps(TOOLS)},
                 {**ROW, "task_id": "other", "prompt": [ASK]})  # fmt: skip
    with caplog.at_level(logging.WARNING):
        prompts = [[*Prompter(chat).prompt(task)] for task in load(file) * 2]
    for prompt, tools in zip(prompts, [TOOLS, None] * 2, strict=True):
        assert prompt == bare.ids(chat, [ASK], tools=tools, add_generation_prompt=True)
    assert ("search" in chat.tokenizer.decode(prompts[0])) == (name not in NO_TOOLS)
    assert sum("shows no tools" in line for line in caplog.messages) == (name in NO_TOOLS)


@pytest.mark.parametrize("name", NAMES)
def test_pairs_of_calls_are_made_as_rows_are(folder: Path, tmp_path: Path, name: str) -> None:
    prompter = Prompter(chat_of(folder, name))
    chosen, rejected = calling(call(AS_TEXT), content=None), LAST
    pairs = tmp_path / "pairs.jsonl"
    row = {"prompt": [ASK], "chosen": [chosen], "rejected": [rejected], "tools": TOOLS}
    pairs.write_text(json.dumps(row, ensure_ascii=False))
    ((right, wrong),) = read_pairs(pairs, [], prompter)
    for sample, reply in ((right, chosen), (wrong, rejected)):
        (same,) = prompter.samples(task_of(tmp_path, ASK, reply))
        assert bare.learned(sample) == bare.learned(same)


SHOWN = {
    "apriel1_5": r'"id": "(\w+)"', "command_r7b": r'"tool_call_id": "(\d)"',
    "mistral_nemo": r'"(?:call_)?id": "(\w+)"',
    "mistral_small3_2": r"\[(?:CALL_ID|TOOL_RESULTS)\](\w+)",
}  # fmt: skip
"""How templates that need ids show them."""


@pytest.mark.parametrize("name", sorted(NINE | IDS))
@pytest.mark.parametrize("ids", [(), ("call_0a1B2c3D4e5F6g7H8i9J0k1L", "call_2"), (ID, MORE)])
def test_calls_get_ids_that_the_template_takes_and_their_results_the_same(
    folder: Path, tmp_path: Path, name: str, ids: tuple[str, ...]
) -> None:
    chat = chat_of(folder, name)
    calls = [{"id": new} | without("id", call(WEATHER)) for new in ids] or [
        without("id", call(WEATHER))
    ] * 2
    results = [{**result, "tool_call_id": new} for result, new in zip(RESULTS, ids, strict=False)]
    results = results or [without("tool_call_id", result) for result in RESULTS]
    (*_, sample) = Prompter(chat).samples(task_of(tmp_path, ASK, calling(*calls), *results, LAST))
    text = chat.tokenizer.decode(sample.tokens)
    shown = re.findall(SHOWN[name], text[text.rindex("weather") - 200 :])
    first, second = dict.fromkeys(shown)
    assert shown == [first, second] * (1 if name == "apriel1_5" else 2)
    if name in NINE:
        assert len(first) == len(second) == 9
    if ids == (ID, MORE) and name != "command_r7b":
        assert (first, second) == ids, "ids that the template takes stay"


def test_text_beside_a_call_that_the_template_drops_is_named(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reply = calling(call(WEATHER), content="I look.")
    for name, drops in (("llama3_2", True), ("qwen2_5", False)):
        chat = chat_of(folder, name)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            (sample,) = Prompter(chat).samples(task_of(tmp_path, ASK, reply))
        assert ("I look." in bare.text_of(chat, sample)) != drops
        assert any("text beside tool calls" in line for line in caplog.messages) == drops


def test_thoughts_beside_a_call_are_learned(folder: Path, tmp_path: Path) -> None:
    for name in ("qwen3", "glm4_6", "qwen3_5_think", "minimax_m2", "nemotron_3_nano"):
        chat = chat_of(folder, name)
        reply = calling(call(WEATHER), reasoning_content="I look it up.", content=None)
        samples = Prompter(chat).samples(task_of(tmp_path, ASK, reply))
        assert [*map(bare.learned, samples)] == [expected(chat, name, ASK, reply)]
        assert "I look it up." in bare.text_of(chat, samples[0])


def test_a_template_that_refuses_tools_is_told_in_one_line(folder: Path, tmp_path: Path) -> None:
    tokenizer = deepcopy(bare.tokenizer_of(folder, "qwen2_5"))
    tokenizer.chat_template = (
        "{% if tools %}{{ raise_exception('no\ntools') }}{% endif %}" + tokenizer.chat_template
    )
    prompter = Prompter(open_chat(tokenizer, "auto", ()))
    with pytest.raises(UserError, match=r"task 'line 1'.*template refuses the tools: .*no") as told:
        prompter.samples(task_of(tmp_path, ASK, LAST))
    assert "\n" not in str(told.value)
    assert prompter.samples(task_of(tmp_path, ASK, LAST, tools=[]))


def test_in_plain_text_tools_and_calls_are_left_out_and_named(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chat = open_chat(bare.tokenizer_of(folder, "qwen2_5"), "text", ())
    with caplog.at_level(logging.WARNING):
        (sample,) = Prompter(chat).samples(task_of(tmp_path, ASK, calling(call(AS_TEXT))))
    assert sum(sample.mask) == 1
    assert any("no tools" in line for line in caplog.messages)
    assert any("'tool_calls'" in line for line in caplog.messages)


def test_tools_of_the_environment_and_of_the_task_are_shown_together(
    folder: Path, tmp_path: Path
) -> None:
    chat = chat_of(folder, "qwen2_5")
    prompter = Prompter(chat, with_bash("template"))
    ours = {"type": "function", "function": {"name": "bash", "description": "Another."}}
    task = task_of(tmp_path, ASK, LAST, tools=[*TOOLS, ours])
    shown = bare.ids(chat, [ASK], tools=[BASH.schema(), *TOOLS], add_generation_prompt=True)
    assert list(prompter.prompt(task)) == shown
    text = Prompter(chat, with_bash("text")).prompt(task)
    assert list(text) == bare.ids(chat, [ASK], tools=[*TOOLS, ours], add_generation_prompt=True)


def test_an_endpoint_gets_the_tools_and_arguments_as_json_text(
    folder: Path, tmp_path: Path
) -> None:
    talk = [ASK, calling(call(WEATHER), content=None), RESULTS[0], LAST]
    fields = json.loads(bytes(Prompter(hosted_chat("auto")).prompt(task_of(tmp_path, *talk))))
    assert fields["tools"] == TOOLS
    assert fields["messages"] == [ASK, calling(call(AS_TEXT)), RESULTS[0]]


def test_the_card_of_a_checkpoint_renders_its_prompt_with_tools(
    folder: Path, tmp_path: Path
) -> None:
    chat = chat_of(folder, "qwen2_5")
    task = task_of(tmp_path, ASK, calling(call(AS_TEXT)), RESULTS[0], LAST)
    (tmp_path / CARD).write_text(Prompter(chat).card(task))
    code = transformers_code(tmp_path).partition("text = ")[2].partition("\ntokens =")[0]
    text = eval(code, {"tokenizer": chat.tokenizer})  # noqa: S307  our own line, of our own row
    assert chat.tokenizer(text, add_special_tokens=False)["input_ids"] == list(
        Prompter(chat).prompt(task)
    )
