"""The models at which speeds are measured: two random ones, and pretrained ones in folders. A ratio
holds at its size only.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

SizeName = Literal["small", "large"]


LengthsName = Literal["66", "160", "mixed"]
LENGTHS: dict[LengthsName, tuple[int, ...]] = {
    "66": (66,) * 8,
    "160": (160,) * 8,
    "mixed": (160, 30, 38, 46, 54, 60, 66, 74),
}
"""Tokens of the 8 completions that an update of a pretrained model learns from. `mixed` has a mean
of 66, and the side that pads to the longest completion pays for the others."""


@dataclass(frozen=True)
class Size:
    """A random Llama with tied embeddings, or a pretrained model; and the lengths of what it
    generates and learns from.
    """

    label: str
    arguments: tuple[str, ...]
    """What names it on a command line."""
    shape: dict[str, int]
    prompts: int
    """Prompts of one batch that is generated."""
    max_tokens: int
    stop_tokens: int
    """Token ids below this end a completion of a random model."""
    lengths: tuple[int, ...]
    """Tokens of the 8 completions that one update learns from."""
    rounds: int
    folder: str = ""
    """Where the pretrained model is, in Hugging Face format; empty for a random one."""
    prompt: int = int(os.environ.get("PROMPT", "300"))
    """Tokens of each prompt that an update learns from; a variable of the environment."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.shape["vocab_size"]

    def model(self, dtype: str = "float32") -> Any:
        """The same weights at each call."""
        import torch
        from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

        kind: torch.dtype = getattr(torch, dtype)
        if self.folder:
            return AutoModelForCausalLM.from_pretrained(self.folder, dtype=kind)
        torch.manual_seed(0)
        config = LlamaConfig(
            **self.shape, tie_word_embeddings=True, max_position_embeddings=2048,
            bos_token_id=None, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        return LlamaForCausalLM(config).to(kind)


def pretrained(folder: str, lengths: LengthsName = "mixed") -> Size:
    """A model in Hugging Face format: 8 prompts x 8 completions of up to 160 tokens are generated,
    and an update learns from completions of these lengths behind prompts of 120 tokens.
    """
    from transformers import AutoConfig

    vocabulary = AutoConfig.from_pretrained(folder).get_text_config().vocab_size
    return Size(
        Path(folder).resolve().name, ("--model", folder, "--lengths", lengths),
        {"vocab_size": vocabulary}, prompts=8, max_tokens=160, stop_tokens=0,
        lengths=LENGTHS[lengths], rounds=3, folder=folder,
        prompt=int(os.environ.get("PROMPT", "120")),
    )  # fmt: skip


SIZES: dict[SizeName, Size] = {
    "small": Size(
        "small: 5.5M parameters, vocabulary 2,048", ("--size", "small"),
        {
            "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 736,
            "num_hidden_layers": 6, "num_attention_heads": 8,
        },
        prompts=64, max_tokens=128, stop_tokens=20,
        lengths=(256, 60, 75, 90, 100, 110, 125, 144), rounds=5,
    ),
    "large": Size(
        "large: 80M parameters, vocabulary 32,000", ("--size", "large"),
        {
            "vocab_size": 32_000, "hidden_size": 640, "intermediate_size": 1728,
            "num_hidden_layers": 12, "num_attention_heads": 10,
        },
        prompts=8, max_tokens=512, stop_tokens=100,
        lengths=(512, 120, 170, 220, 270, 320, 380, 450), rounds=3,
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--size`, `--model` and `--rounds`."""
    parser.add_argument("--size", choices=SIZES, nargs="+", default=list(SIZES))
    parser.add_argument(
        "--model", nargs="+", metavar="FOLDER", help="pretrained models instead of the random ones"
    )
    parser.add_argument("--rounds", type=int, help="default: 5 of small, else 3")


def sizes_of(
    arguments: argparse.Namespace, lengths: Sequence[LengthsName] = ("mixed",)
) -> list[Size]:
    """The sizes that the arguments name; a pretrained model with each of these lengths."""
    if not arguments.model:
        return [SIZES[name] for name in arguments.size]
    return [pretrained(folder, name) for folder in arguments.model for name in lengths]


def table(columns: Sequence[str], rows: dict[str, dict[str, str]]) -> str:
    """A Markdown table; `rows` maps a name to its cells by column."""
    lines = [f"| | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for name, cells in rows.items():
        lines.append(f"| {name} | {' | '.join(cells.get(column, '') for column in columns)} |")
    return "\n".join(lines)
