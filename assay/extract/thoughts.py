"""What a reasoning model thinks before it answers, in the tags of several families of models."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice

from assay.extract.fences import fenced_blocks

TAG = "(?i:think|thinking|thoughts?|reason|reasoning|seed:think|scratchpad)"
CHANNEL = r"<\|channel\|>[ \t]*(?:{})\b[^<\n]{{0,99}}(?:<\|constrain\|>\w{{0,20}})?<\|message\|>"
"""A channel of the harmony format: `analysis` and `commentary` are thoughts, `final` is not."""
OPENING = (
    rf"<{TAG}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>"
    rf"|{CHANNEL.format('analysis|commentary')}"
)
FINAL = rf"(?:<\|end\|>)?(?:<\|start\|>)?(?:assistant)?{CHANNEL.format('final')}"
CLOSING = rf"</{TAG}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>|{FINAL}"
THOUGHT = re.compile(rf"(?<!\s)\s*+(?:{OPENING})")
THOUGHT_END = re.compile(rf"(?:(?<![\"'`])|(?<=```))(?:{CLOSING})")
"""The end of a thought. Between quotes it is a program's own text, but not behind a fence."""
BEGINNING = re.compile(rf"[\s\ufeff]*+(?:{OPENING})")
OPENED = re.compile(rf"(?:{OPENING})\s*\Z")
"""The end of a prompt that opens a thought."""
UNCLOSED = re.compile(rf"^[ \t]*+(?:{OPENING})", re.MULTILINE)
MOST = 9
"""Opening tags of a thought without an end that are looked at."""
MARKS = re.compile(
    rf"</?{TAG}>|\[/?THINK\]|◁/?think▷"
    r"|<\|(?:(?:begin|end)_of_thought|(?:START|END)_THINKING|channel|message)\|>"
)
"""Special tokens that say where a thought is, so they stay in the text of a completion."""
BARE_ANALYSIS = re.compile(r"\s*analysis(?=[A-Z])")
"""How a reply in the harmony format begins whose special tokens were decoded away."""
END = re.compile(
    r"<\|(?:endoftext|end_of_text|im_end|eot_id|eom_id|end|return|EOT)\|>|</s>|<eos>|<end_of_turn>"
    r"|<\uff5cend\u2581of\u2581sentence\uff5c>"
)
"""The end tokens of models, which are no longer than 30 characters."""


def answer(reply: str, owned: Callable[[str], Sequence[str]] | None = None) -> str:
    """The text after a reasoning model's thoughts; empty if they never end.

    A thought ends at the first tag behind its opening tag. A tag that is left over ends a thought
    too, which the prompt opened or which quoted a tag; but not where all of them stand in the parts
    of the text that are a program's or a call's own, which `owned` gives (closed code blocks).
    """
    if BARE_ANALYSIS.match(reply) and not THOUGHT_END.search(reply):
        return reply.rpartition("assistantfinal")[2] if "assistantfinal" in reply else ""
    parts = owned or closed_blocks
    rest = behind_thoughts(reply).removeprefix("\ufeff")  # a byte order mark
    ends = [end.end() for end in THOUGHT_END.finditer(rest)]
    for start in dict.fromkeys((0, *ends[:1], *ends[-1:])):
        text = rest[start:]
        if is_own(THOUGHT_END, text, parts):
            break
    for opened in [] if is_own(UNCLOSED, text, parts) else islice(UNCLOSED.finditer(text), MOST):
        before = text[: opened.start()]
        if all(block.closed for block in fenced_blocks(before)):  # else it is a program's
            return without_end(before)
    return without_end(text)


def behind_thoughts(reply: str) -> str:
    """The reply behind the thoughts that it begins with and that end."""
    end = 0
    while (opened := BEGINNING.match(reply, end)) and (
        closed := THOUGHT_END.search(reply, opened.end())
    ):
        end = closed.end()
    return reply[end:]


def before_thought(reply: str) -> str:
    """The text before a thought that it ends with, as Command R7B's template writes an empty one
    behind calls; all of it where no thought ends, for a model that calls has ended its own.
    """
    if not THOUGHT_END.search(reply):
        return reply
    *_, last = [None, *THOUGHT.finditer(reply)]
    before = reply[: last.start()] if last else ""
    return "" if THOUGHT_END.search(before) else before


def is_own(tag: re.Pattern[str], text: str, parts: Callable[[str], Sequence[str]]) -> bool:
    """Whether all tags of a text stand in those parts of it."""
    count = len(tag.findall(text))
    return not count or sum(len(tag.findall(part)) for part in parts(text)) >= count


def closed_blocks(text: str) -> list[str]:
    """The code between fences."""
    return [block.code for block in fenced_blocks(text) if block.closed]


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
