"""The two sizes of model at which speeds are measured. A ratio holds at its size only."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

SizeName = Literal["small", "large"]


@dataclass(frozen=True)
class Size:
    """A random Llama with tied embeddings, and the lengths of what it generates and learns from."""

    label: str
    shape: dict[str, int]
    prompts: int
    """Prompts of one batch that is generated."""
    max_tokens: int
    stop_tokens: int
    """Token ids below this end a completion."""
    lengths: tuple[int, ...]
    """Tokens of the 8 completions that one update learns from."""
    rounds: int

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.shape["vocab_size"]

    def model(self) -> Any:
        """The same random weights at each call."""
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            **self.shape, tie_word_embeddings=True, max_position_embeddings=2048,
            bos_token_id=None, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        return LlamaForCausalLM(config)


SIZES: dict[SizeName, Size] = {
    "small": Size(
        "5.5M parameters, vocabulary 2,048",
        {
            "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 736,
            "num_hidden_layers": 6, "num_attention_heads": 8,
        },
        prompts=64, max_tokens=128, stop_tokens=20,
        lengths=(256, 60, 75, 90, 100, 110, 125, 144), rounds=5,
    ),
    "large": Size(
        "80M parameters, vocabulary 32,000",
        {
            "vocab_size": 32_000, "hidden_size": 640, "intermediate_size": 1728,
            "num_hidden_layers": 12, "num_attention_heads": 10,
        },
        prompts=8, max_tokens=512, stop_tokens=100,
        lengths=(512, 120, 170, 220, 270, 320, 380, 450), rounds=3,
    ),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--size` and `--rounds`."""
    parser.add_argument("--size", choices=SIZES, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, help="default: 5 of small, 3 of large")


def table(columns: Sequence[str], rows: dict[str, dict[str, str]]) -> str:
    """A Markdown table; `rows` maps a name to its cells by column."""
    lines = [f"| | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for name, cells in rows.items():
        lines.append(f"| {name} | {' | '.join(cells.get(one, '') for one in columns)} |")
    return "\n".join(lines)
