"""Loads the tokenizer of a model, and refuses one that loses spaces."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.errors import ModelError
from assay.registry import one_line

ANCHOR = "x"
"""Stands before what is decoded: sentencepiece models drop a space at the very start of a text."""
HEADS = ("\n", ANCHOR)
"""Texts that a continuation is encoded behind; the second serves where the first melts into one
token with it."""
SNIPPET = "def f(xs):\n    for x in xs:\n\t\tprint(x,  'two spaces')\n        return xs\n"
"""Comes back unchanged from every tokenizer that is fit for code."""


def load_tokenizer(name: str, trust_remote_code: bool) -> Any:
    """The tokenizer of a model directory or hub name. Raises ModelError without one, or for one
    unfit for code.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    except Exception as error:  # broken files and remote code raise anything
        raise ModelError(f"no tokenizer for model {found_at(name)}: {one_line(error)}") from error
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of {name!r} has no end-of-sequence token; set eos_token in"
            " tokenizer_config.json"
        )
    if not keeps_spaces(tokenizer):
        tokenizer = _as_it_stands(name, tokenizer)
    if not keeps_spaces(tokenizer):
        raise ModelError(
            f"the tokenizer of {name!r} does not give back indented code as it was; "
            "check tokenizer_class in tokenizer_config.json, or take a model made for code"
        )
    return tokenizer


def found_at(name: str) -> str:
    """The name, with where it is looked for unless it is a directory."""
    return (
        repr(name)
        if Path(name).is_dir()
        else f"{name!r} (not a directory here; as a hub name it needs the network)"
    )


def keeps_spaces(tokenizer: Any) -> bool:
    """Whether indented code is the same after encoding and decoding."""
    return (
        decode_within(tokenizer, encode(tokenizer, ANCHOR), encode_within(tokenizer, SNIPPET))
        == SNIPPET
    )


def encode(tokenizer: Any, text: str, *, special: bool = False) -> tuple[int, ...]:
    """Token ids of a whole text; `special` adds what the tokenizer puts around one."""
    return tuple(tokenizer(text, add_special_tokens=special)["input_ids"])


def encode_within(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a text that continues another: without the space that sentencepiece models begin
    with.
    """
    for head in HEADS:
        before, both = encode(tokenizer, head), encode(tokenizer, head + text)
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(tokenizer, text)


def decode_within(tokenizer: Any, anchor: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of tokens that continue others, with every space; `anchor` are the tokens of
    ANCHOR.
    """
    text = tokenizer.decode(
        [*anchor, *tokens], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return str(text).removeprefix(ANCHOR)


def _as_it_stands(name: str, otherwise: Any) -> Any:
    """What tokenizer.json says: transformers 5 rebuilds every "LlamaTokenizerFast", byte-level or
    not, as Llama 2's.
    """
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(name)
    except (OSError, ValueError):
        return otherwise
    logging.getLogger(__name__).info(
        "%s: its tokenizer loses spaces as the class it names; tokenizer.json is used", name
    )
    return tokenizer
