"""How a policy's weights are synced to a server: one transport per file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay.engines.vllm.client import Client

if TYPE_CHECKING:
    from assay.policy.load import Policy

CURRENT = "current"
"""Symbolic link in the engine's folder to the last packed weights."""


class Transport(Protocol):
    """Syncs the weights of a policy to servers."""

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """The server arguments that this transport needs. It may put files for them in `folder`."""

    def pack(self, policy: Policy, folder: Path) -> None:
        """Write the files that servers load to `folder`; servers keep generating meanwhile."""

    async def send(self, client: Client, folder: Path) -> str | None:
        """Make a paused server load the packed weights. Returns the model name to ask it for; None
        is its own model.
        """
