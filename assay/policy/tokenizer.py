"""Load the tokenizer of a model, and refuse one that loses spaces."""

import logging
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from assay.errors import ModelError
from assay.extract.call_formats import marks
from assay.extract.thoughts import MARKS
from assay.hub import hub_or_copies, why_no_copy
from assay.registry import one_line

ANCHOR = "x"
"""Text put before tokens to decode: SentencePiece drops a space at the very start of a text."""
PREFIXES = ("\n", ANCHOR)
"""Texts that a continuation is encoded after. The second is used if the first merges into one
token with it."""
REMOTE_CODE = (
    "it brings Python code of its own, which runs only where you set policy.trust_remote_code ="
    " true (assay eval --policy.trust_remote_code true, assay export --trust-remote-code)"
)
SNIPPET = "def f(xs):\n    for x in xs:\n\t\tprint(x,  'two spaces')\n        return xs\n"
"""Every tokenizer that is fit for code gives this back unchanged."""


def load_tokenizer(name: str, trust_remote_code: bool) -> Any:
    """The tokenizer of a model directory or hub name.

    Raises ModelError if there is none, or if it cannot reproduce indented code.
    """
    from transformers import AutoTokenizer

    try:
        with hub_or_copies(name):
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    except Exception as error:  # broken files and remote code raise anything
        if why := why_no_copy(error):
            raise ModelError(f"no tokenizer for model {name!r}: {why}") from error
        raise ModelError(
            f"no tokenizer for model {describe_source(name)}: {why_not_loaded(error)}"
        ) from error
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of {name!r} has no end-of-sequence token; set eos_token in"
            " tokenizer_config.json"
        )
    if not keeps_spaces(tokenizer):
        tokenizer = _load_file(name, tokenizer)
    if not keeps_spaces(tokenizer):
        raise ModelError(
            f"the tokenizer of {name!r} does not reproduce indented code; "
            "check tokenizer_class in tokenizer_config.json, or use a model made for code"
        )
    return tokenizer


def why_not_loaded(error: Exception) -> str:
    """An error of transformers in one line."""
    return REMOTE_CODE if "trust_remote_code" in str(error) else one_line(error)


def describe_source(name: str) -> str:
    """The model's name and, unless it is a directory, where it is looked up."""
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
    """Token ids of a whole text; `special` adds the tokenizer's special tokens around it."""
    return tuple(tokenizer(text, add_special_tokens=special)["input_ids"])


def encode_within(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a text that continues another, without the space that SentencePiece adds."""
    for prefix in PREFIXES:
        before, both = encode(tokenizer, prefix), encode(tokenizer, prefix + text)
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(tokenizer, text)


def decode_within(tokenizer: Any, anchor: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of tokens that continue others, with every space; `anchor`: the tokens of ANCHOR."""
    text = tokenizer.decode(
        [*anchor, *tokens], skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return str(text).removeprefix(ANCHOR)


@cache
def kept_marks(tokenizer: Any) -> dict[int, str]:
    """The special tokens that say where a thought or a tool call is, which decoding would leave
    out.
    """
    added = tokenizer.added_tokens_decoder.items()  # all_special_ids lacks gpt-oss's channels
    return {
        number: text.content
        for number, text in added
        if text.special and (MARKS.fullmatch(text.content) or text.content in marks())
    }


def vocabulary(tokenizer: Any) -> list[bytes]:
    """The bytes that each token id stands for inside a text, special tokens included.

    A token of a byte-level vocabulary may be a part of a character.
    """
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    anchor, ids = encode(tokenizer, ANCHOR), range(len(tokenizer))
    texts = tokenizer.batch_decode(
        [[*anchor, number] for number in ids], clean_up_tokenization_spaces=False
    )
    names = tokenizer.convert_ids_to_tokens(list(ids))
    tokens = []
    for name, text in zip(names, texts, strict=True):
        if "\ufffd" not in text:
            tokens.append(text.removeprefix(ANCHOR).encode())
        elif escaped := re.fullmatch(r"<0x([0-9A-F]{2})>", name):
            tokens.append(bytes.fromhex(escaped[1]))
        else:
            tokens.append(bytes(byte_of[character] for character in name if character in byte_of))
    return tokens


def _load_file(name: str, otherwise: Any) -> Any:
    """The tokenizer as tokenizer.json defines it: transformers 5 rebuilds every
    "LlamaTokenizerFast" as Llama 2's, even a byte-level one.
    """
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(name)
    except (OSError, ValueError):
        return otherwise
    logging.getLogger(__name__).info(
        "%s: the tokenizer loses spaces if loaded by its class; tokenizer.json is loaded instead",
        name,
    )
    return tokenizer
