"""What a reasoning model thinks before it answers, in the tags of several families of models."""

from __future__ import annotations

import re

TAG = "(?i:think|thinking|thoughts?|reason|reasoning|seed:think|scratchpad)"
CHANNEL = r"<\|channel\|>[ \t]*(?:{})\b[^<\n]{{0,99}}(?:<\|constrain\|>\w{{0,20}})?<\|message\|>"
"""A channel of the harmony format: `analysis` and `commentary` are thoughts, `final` is not."""
OPENING = (
    rf"<{TAG}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|{CHANNEL.format('analysis|commentary')}"
)
CLOSING = rf"</{TAG}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|{CHANNEL.format('final')}"
THOUGHT = re.compile(rf"\s*(?:{OPENING})")
THOUGHT_END = re.compile(rf"(?<![\"'`])(?:{CLOSING})")
"""The end of a thought. Between quotes it is a program's own text."""
OPENED = re.compile(rf"(?:{OPENING})\s*\Z")
"""The end of a prompt that opens a thought."""
UNCLOSED = re.compile(rf"^[ \t]*+(?:{OPENING})", re.MULTILINE)
MARKS = re.compile(
    rf"<{TAG}>|</{TAG}>|\[/?THINK\]|◁/?think▷|<\|(?:begin|end)_of_thought\|>"
    r"|<\|(?:channel|message)\|>"
)
"""Special tokens that say where a thought is, so they stay in the text of a completion."""
BARE_ANALYSIS = re.compile(r"\s*analysis(?=[A-Z])")
"""How a reply in the harmony format begins whose special tokens were decoded away."""
END_TOKENS = (
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<|return|>",
    "<|EOT|>", "<|eom_id|>", "<end_of_turn>", "<eos>", "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip


def answer(reply: str) -> str:
    """The text after a reasoning model's thoughts; empty if they never end."""
    if BARE_ANALYSIS.match(reply) and not THOUGHT_END.search(reply):
        return reply.rpartition("assistantfinal")[2] if "assistantfinal" in reply else ""
    rest = THOUGHT_END.split(reply)[-1]
    opened = UNCLOSED.search(rest.partition("```")[0])
    return without_end(rest[: opened.start()] if opened else rest)


def without_end(text: str) -> str:
    """The text without the end tokens of models that it ends with."""
    while (bare := text.rstrip()).endswith(END_TOKENS):
        text = bare[: -next(len(one) for one in END_TOKENS if bare.endswith(one))]
    return text
