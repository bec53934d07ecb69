"""Full weights as safetensors in a folder, by default in shared memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from assay.engines.vllm.client import Client
from assay.engines.vllm.transports import CURRENT
from assay.errors import MachineError

if TYPE_CHECKING:
    from torch import Tensor

    from assay.policy.load import Policy


class Files:
    """The server starts without weights, and reads the ones of every version."""

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """The weights that were packed last: the checkpoint that the policy came from may be gone
        at a restart.
        """
        policy.chat.tokenizer.save_pretrained(folder / "tokenizer")
        policy.model.config.save_pretrained(
            folder / "tokenizer"
        )  # vLLM looks for it there, twice, with a pause
        return ["--model", str(folder / CURRENT), "--tokenizer", str(folder / "tokenizer")]

    def pack(self, policy: Policy, folder: Path) -> None:
        """The model's files. Raises MachineError when the folder has no room for them."""
        size = sum(p.numel() * p.element_size() for p in policy.model.parameters())
        if size > (free := shutil.disk_usage(folder).free):
            raise MachineError(
                f"the weights take {size >> 20} MiB, and {folder} has {free >> 20} left: give this"
                " machine more shared memory, or set engine.weights_folder to a folder on a fast"
                " disk"
            )
        weights: dict[int, Tensor] = {}
        state = policy.model.state_dict()
        for (
            name,
            tensor,
        ) in (
            state.items()
        ):  # without a head of its own in the file, vLLM keeps the old one of tied models
            if tensor is not weights.setdefault(tensor.data_ptr(), tensor):
                state[name] = tensor.clone()
        policy.model.save_pretrained(folder, state_dict=state)

    async def give(self, client: Client, folder: Path) -> str | None:
        """Read in place, as any checkpoint is."""
        await client.call(
            "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        )
        return None
