"""Which token ends a reply that calls tools, by how the chat template closes calls."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from assay.policy.chat import Chat, as_fields, open_chat
from assay.types import Message, ToolCall
from tests.policy.test_chat_templates import trained

EOS = "</s>"
TEMPLATE = (
    "{%- for message in messages %}{{ '<|' ~ message.role ~ '|>' }}"
    "{%- if message.tool_calls %}CALLS"
    "{%- else %}{{ message.content ~ (eos_token if message.role == 'assistant' else '') }}"
    "{%- endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CALL = "call.function.name ~ call.function.arguments | tojson"
EACH = f"{{%- for call in message.tool_calls %}}{{{{ {CALL} ~ '<|call_end|>' }}}}{{% endfor %}}"
PLAIN = EACH.replace("<|call_end|>", "")
ADDED = ("<|user|>", "<|assistant|>", "<|tool|>", "<|call|>", "<|call_end|>", "<|calls_end|>",
         "<|and|>", EOS)  # fmt: skip
ENDS = {
    "each call is closed": (EACH, EOS),
    "each call is closed, and white space follows": (EACH + "{{ '\n' }}", EOS),
    "each call is closed, and then all": (EACH + "<|calls_end|>", "<|calls_end|>"),
    "all calls are closed": (PLAIN + "<|calls_end|>", "<|calls_end|>"),
    "all calls are closed, and the reply ends": (PLAIN + "<|calls_end|>" + EOS, EOS),
    "each call is closed, and the reply ends": (EACH + EOS, EOS),
    "all calls are closed by text": (PLAIN + "</calls>", EOS),
    "no call is closed": (PLAIN.replace("{{ call", "{{ '<|call|>' ~ call"), EOS),
    "a token stands between calls": (
        EACH.replace("'<|call_end|>'", "('' if loop.last else '<|and|>')"), EOS),
    "the first call alone is shown": (
        EACH.replace("tool_calls", "tool_calls[:1]"), "<|call_end|>"),
    "several calls are refused": (
        "{%- if message.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}" + EACH,
        "<|call_end|>"),
}  # fmt: skip
"""How a template writes calls, and the token that ends such a reply."""
SINGLE = {"the first call alone is shown", "several calls are refused"}


def chat_of(folder: Path, calls: str) -> Chat:
    tokenizer = deepcopy(trained(folder))
    tokenizer.add_tokens([*ADDED], special_tokens=True)
    tokenizer.eos_token = EOS
    tokenizer.chat_template = TEMPLATE.replace("CALLS", calls)
    return open_chat(tokenizer, "auto", ())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


def calling(*cities: str) -> Message:
    calls = [ToolCall("weather", {"city": city}) for city in cities]
    return Message("assistant", "", fields={"tool_calls": as_fields(calls)})


@pytest.mark.parametrize("name", ENDS)
def test_each_reply_of_a_conversation_ends_at_its_first_stop_with_all_its_calls(
    folder: Path, name: str
) -> None:
    calls, end = ENDS[name]
    chat = chat_of(folder, calls)
    cities = ("Ulm",) if name in SINGLE else ("Ulm", "Bonn")
    talk = (
        Message("user", "Is it warm?"), calling(*cities), *[Message("tool", "22")] * len(cities),
        calling("Mainz"), Message("tool", "24"), Message("assistant", "It is."),
    )  # fmt: skip
    for at, message in enumerate(talk):
        if message.role != "assistant":
            continue
        _, tokens = chat.encode_turn(talk[:at], message, {})
        first = next(n for n, token in enumerate(tokens) if token in chat.stop_tokens)
        text = chat.tokenizer.decode(tokens[: first + 1])
        assert text.endswith(end if message.fields else EOS)
        assert not chat.tokenizer.decode(tokens[first + 1 :]).strip()
        if message.fields:
            assert all(city in text for city in (cities if at == 1 else ("Mainz",)))
