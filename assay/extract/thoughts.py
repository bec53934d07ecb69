"""What a reasoning model thinks before it answers, in the tags of several families of models."""

from __future__ import annotations

import re

TAG = "(?i:think|thinking|thoughts?|reason|reasoning|seed:think|scratchpad)"
CHANNEL = r"<\|channel\|>[ \t]*(?:{})\b[^<\n]{{0,99}}(?:<\|constrain\|>\w{{0,20}})?<\|message\|>"
"""A channel of the harmony format: `analysis` and `commentary` are thoughts, `final` is not."""
OPENING = (
    rf"<{TAG}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|{CHANNEL.format('analysis|commentary')}"
)
FINAL = rf"(?:<\|end\|>)?(?:<\|start\|>)?(?:assistant)?{CHANNEL.format('final')}"
CLOSING = rf"</{TAG}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|{FINAL}"
THOUGHT = re.compile(rf"\s*(?:{OPENING})")
THOUGHT_END = re.compile(rf"(?:(?<![\"'`])|(?<=```))(?:{CLOSING})")
"""The end of a thought. Between quotes it is a program's own text, but not behind a fence."""
OPENED = re.compile(rf"(?:{OPENING})\s*\Z")
"""The end of a prompt that opens a thought."""
UNCLOSED = re.compile(rf"^[ \t]*+(?:{OPENING})", re.MULTILINE)
MARKS = re.compile(
    rf"</?{TAG}>|\[/?THINK\]|◁/?think▷|<\|(?:(?:begin|end)_of_thought|channel|message)\|>"
)
"""Special tokens that say where a thought is, so they stay in the text of a completion."""
BARE_ANALYSIS = re.compile(r"\s*analysis(?=[A-Z])")
"""How a reply in the harmony format begins whose special tokens were decoded away."""
END = re.compile(
    r"<\|(?:endoftext|end_of_text|im_end|eot_id|eom_id|end|return|EOT)\|>|</s>|<eos>|<end_of_turn>"
    r"|<\uff5cend\u2581of\u2581sentence\uff5c>"
)
"""The end tokens of models, which are no longer than 30 characters."""


def answer(reply: str) -> str:
    """The text after a reasoning model's thoughts; empty if they never end."""
    if BARE_ANALYSIS.match(reply) and not THOUGHT_END.search(reply):
        return reply.rpartition("assistantfinal")[2] if "assistantfinal" in reply else ""
    rest = THOUGHT_END.split(reply)[-1]
    opened = UNCLOSED.search(rest.partition("```")[0])
    return without_end(rest[: opened.start()] if opened else rest)


def without_end(text: str) -> str:
    """The text without the end tokens of models that it ends with."""
    start, end = len(text), len(text.rstrip())
    while any((last := token).end() == end for token in END.finditer(text, max(0, end - 30), end)):
        start = end = last.start()
        while text[end - 1 : end].isspace():
            end -= 1
    return text[:start]


def first_thought(reply: str) -> str:
    """The first thought of a reply that ends; empty without one."""
    opened = THOUGHT.search(reply)
    closed = opened and THOUGHT_END.search(reply, opened.end())
    return reply[opened.end() : closed.start()] if opened and closed else ""
