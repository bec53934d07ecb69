"""Chat templates that show each message by itself: a later prompt is the same whether the whole
conversation is rendered or its last messages alone.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SettingsError
from assay.policy import chat as chat_file
from assay.policy.chat import Chat
from assay.policy.local_template import is_local
from assay.types import Completion, Message, Turn
from tests.policy.test_chat_templates import FOLDER, NAMES, chat_of

LOCAL = {"gptoss", "granite3", "llama3", "mistral_v7", "phi3", "phi4", "qwen2_5", "qwen3_coder",
         "smollm2", "starcoder2", "tulu3", "zephyr"}  # fmt: skip
TEXTS = ("It is 4.", " spaced \n", "<think>\nHm.\n</think>\n\nFour.", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizer")


def talks(seed: int) -> tuple[list[Message], Message, list[Message]]:
    """A conversation, a reply and what follows it, at random."""
    draw = random.Random(seed)
    before = [Message("system", "Be brief.")] * draw.randint(0, 1) + [Message("user", "2+2?")]
    for _ in range(draw.randint(2, 5)):
        before += [Message("assistant", draw.choice(TEXTS))]
        before += [Message(draw.choice(("user", "tool", "user")), f"{draw.random()}")
                   for _ in range(draw.choice((1, 1, 2)))]  # fmt: skip
    following = [Message(draw.choice(("user", "tool")), f"{n}") for n in range(draw.randint(1, 2))]
    return before, Message("assistant", draw.choice(TEXTS[:3])), following


def next_prompt(chat: Chat, seed: int) -> tuple[int, ...] | str:
    """The prompt after a random conversation; the error of a template that refuses it."""
    before, reply, following = talks(seed)
    try:
        prompt = chat.encode_prompt(before, {})
        tokens = chat.encode_reply(reply.content, ended=bool(seed % 3))
        completion = Completion("", tokens, (-0.5,) * len(tokens), "stop", (0,) * len(tokens))
        return chat.encode_next(Turn(prompt, completion), before, reply, following, {})
    except SettingsError:
        return "refused"


@pytest.mark.parametrize("name", NAMES)
def test_the_last_messages_alone_give_the_prompt_that_the_whole_conversation_gives(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = chat_of(folder, name)
    assert is_local((FOLDER / f"{name}.jinja").read_text()) == (name in LOCAL)
    ours = [next_prompt(chat, seed) for seed in range(40)]
    monkeypatch.setattr(chat_file, "is_local", lambda template: False)
    assert ours == [next_prompt(chat, seed) for seed in range(40)]


@pytest.mark.parametrize("name", sorted(LOCAL))
def test_the_template_is_shown_as_many_messages_in_the_80th_turn_as_in_the_third(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, sizes = chat_of(folder, name), list[int]()
    render = chat.tokenizer.apply_chat_template

    def counted(messages: list[Any], **options: Any) -> Any:
        sizes.append(len(messages))
        return render(messages, **options)

    talk = [Message("user", "2+2?")]
    tokens = chat.encode_reply("It is 4.")
    completion = Completion("", tokens, (-0.5,) * len(tokens), "stop", (0,) * len(tokens))
    reply, more = Message("assistant", "It is 4."), [Message("user", "And now?")]
    prompt = chat.encode_prompt(talk, {})
    for _ in range(80):
        monkeypatch.setattr(chat.tokenizer, "apply_chat_template", counted)
        following = chat.encode_next(Turn(prompt, completion), talk, reply, more, {})
        monkeypatch.undo()
        if name == "gptoss":  # it shows an earlier reply otherwise than the last
            return
        assert following[: len(prompt) + len(tokens)] == prompt + tokens
        talk, prompt = [*talk, reply, *more], following
    assert max(sizes) <= 6


LOOP = "{% for m in messages %}"


@pytest.mark.parametrize(
    "template",
    [
        LOOP + "{{ m.content }}{% endfor %}{{ messages[-1].role }}",
        LOOP + "{{ m.content }}{% endfor %}{{ messages|length }}",
        LOOP + "{{ loop.length }}{% endfor %}", LOOP + "{{ loop.index0 % 2 }}{% endfor %}",
        LOOP + "{{ loop.index0 }}{% endfor %}", LOOP + "{{ loop['index0'] }}{% endfor %}",
        LOOP + "{{ loop.revindex }}{% endfor %}", LOOP + "{{ loop.cycle(1, 2) }}{% endfor %}",
        LOOP + "{{ loop.changed(m.role) }}{% endfor %}",
        LOOP + "{{ messages[loop.index0 + 2].role }}{% endfor %}",
        LOOP + "{% for x in range(loop.index0) %}{{ x }}{% endfor %}{% endfor %}",
        LOOP + "{% for n in messages %}{{ n.role }}{% endfor %}{% endfor %}",
        LOOP + "{{ m.role }}{% endfor %}" + LOOP + "{{ m.content }}{% endfor %}",
        LOOP + "{% if m.role == 'x' %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
        "{% set s = namespace(n=0) %}" + LOOP + "{% set s.n = s.n + 1 %}{{ s.n }}{% endfor %}",
        "{% set c = cycler(1, 2) %}" + LOOP + "{{ c.next() }}{% endfor %}",
        "{% for m in messages[::-1] %}{{ m.content }}{% endfor %}",
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
        "{% for m in messages|reverse %}{{ m.content }}{% endfor %}",
        "{% for t in tools %}" + LOOP + "{{ m.content }}{% endfor %}{% endfor %}",
        "{% macro all() %}" + LOOP + "{{ m.content }}{% endfor %}{% endmacro %}{{ all() }}",
        "{% set rest = messages[1:] %}{% for m in rest %}{{ rest[0].role }}{% endfor %}",
        "{% set last = messages[messages|length - 1] %}" + LOOP + "{{ last.role }}{% endfor %}",
        "{% set messages = tools %}" + LOOP + "{{ m.content }}{% endfor %}",
        LOOP + "{% include 'x' %}{% endfor %}", "{{ messages }}", "no messages", LOOP,
    ],
)  # fmt: skip
def test_a_template_that_may_show_a_message_by_others_than_its_neighbours_is_not_local(
    template: str,
) -> None:
    assert not is_local(template)


@pytest.mark.parametrize(
    "template",
    [
        LOOP + "{{ m.role }}{{ m.content }}{% endfor %}",
        "{% set rest = messages %}{% if messages[0].role == 'system' %}"
        "{% set rest = messages[1:] %}{% endif %}"
        "{% for m in rest %}{{ loop.previtem.role }}{{ m.content }}{% endfor %}",
        "{% macro shown(x) %}<{{ x }}>{% endmacro %}" + LOOP + "{{ shown(m.content) }}{% endfor %}",
        LOOP + "{% if loop.index0 == 0 %}<s>{% endif %}{% for c in m.tool_calls %}"
        "{{ loop.index0 }}{{ c.name }}{% endfor %}{% endfor %}",
    ],
)
def test_a_template_that_shows_a_message_by_its_neighbours_is_local(template: str) -> None:
    assert is_local(template)
