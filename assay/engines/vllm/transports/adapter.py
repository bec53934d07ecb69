"""LoRA adapters, each version under a name of its own.

vLLM can replace an adapter (`load_inplace`), but then it reads the file again for every token.
"""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from assay.engines.vllm.client import Client

if TYPE_CHECKING:
    from assay.policy.load_model import Policy

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Allowed values of `--max-lora-rank`."""


class Adapter:
    """The server holds the base model and one adapter; a new adapter evicts the previous one."""

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """Serve the policy's base model, with room for its adapter."""
        rank = policy.model.peft_config[policy.model.active_adapter].r
        max_rank = next(most for most in RANKS if most >= rank)
        base = policy.model.get_base_model().name_or_path
        return [
            "--model", base, "--enable-lora", "--max-loras", "1", "--max-lora-rank", str(max_rank)
        ]  # fmt: skip

    def pack(self, policy: Policy, folder: Path) -> None:
        """Save the adapter's two files."""
        policy.model.save_pretrained(folder, save_embedding_layers=False)

    async def send(self, client: Client, folder: Path) -> str | None:
        """Load the adapter, which takes a few milliseconds."""
        name = f"policy-{token_hex(6)}"
        await client.call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        return name
