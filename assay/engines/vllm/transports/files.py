"""Full weights as safetensors files in a folder, by default in shared memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from assay.engines.vllm.client import Client
from assay.errors import MachineError

if TYPE_CHECKING:
    from torch import Tensor

    from assay.policy.load_model import Policy


CURRENT = "current"
"""Symbolic link in the engine's folder to the last packed weights."""


class Files:
    """The server loads the files of every version, the first one included."""

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """Serve the last packed weights: at a restart the policy's first checkpoint may be gone."""
        policy.chat.tokenizer.save_pretrained(folder / "tokenizer")
        # vLLM looks for the configuration there, twice, with a pause.
        policy.model.config.save_pretrained(folder / "tokenizer")
        return ["--model", str(folder / CURRENT), "--tokenizer", str(folder / "tokenizer")]

    def pack(self, policy: Policy, folder: Path) -> None:
        """Save the model's files. Raises MachineError if the folder has no space for them."""
        size = sum(p.numel() * p.element_size() for p in policy.model.parameters())
        if size > (free := shutil.disk_usage(folder).free):
            raise MachineError(
                f"the weights take {size >> 20} MiB, and {folder} has {free >> 20} MiB left: give"
                " this machine more shared memory, or set engine.weights_folder to a folder on a"
                " fast disk"
            )
        weights: dict[int, Tensor] = {}
        state = policy.model.state_dict()
        # Tied weights are saved under both names: without a head in the files vLLM keeps its old.
        for name, tensor in state.items():
            if tensor is not weights.setdefault(tensor.data_ptr(), tensor):
                state[name] = tensor.clone()
        policy.model.save_pretrained(folder, state_dict=state)

    async def send(self, client: Client, folder: Path) -> str | None:
        """Reload the weights in place."""
        await client.call(
            "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        )
        return None
