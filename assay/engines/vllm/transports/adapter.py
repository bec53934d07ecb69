"""LoRA adapters, each version under a name of its own.

vLLM could load one in place of another (`load_inplace`), but from then on it would read the file
again at every token.
"""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from assay.engines.vllm.client import Client

if TYPE_CHECKING:
    from assay.policy.load import Policy

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What `--max-lora-rank` may be."""


class Adapter:
    """The server holds the base model, and room for one adapter: a new one drives out the one
    before.
    """

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """Serve the base model from where the policy has it, with room for its adapter."""
        rank = policy.model.peft_config[policy.model.active_adapter].r
        room = next(most for most in RANKS if most >= rank)
        base = policy.model.get_base_model().name_or_path
        return ["--model", base, "--enable-lora", "--max-loras", "1", "--max-lora-rank", str(room)]

    def pack(self, policy: Policy, folder: Path) -> None:
        """The adapter's two files."""
        policy.model.save_pretrained(folder, save_embedding_layers=False)

    async def give(self, client: Client, folder: Path) -> str | None:
        """A few milliseconds."""
        name = f"policy-{token_hex(6)}"
        await client.call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        return name
