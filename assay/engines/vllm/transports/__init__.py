"""How a policy's weights reach a server: one transport per file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay.engines.vllm.client import Client

if TYPE_CHECKING:
    from assay.policy.load import Policy

CURRENT = "current"
"""Leads, in the engine's folder, to what was packed last."""


class Transport(Protocol):
    """Gives the weights of a policy to servers."""

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """What a server is started with to take weights this way; `folder` is there for what it
        reads then.
        """

    def pack(self, policy: Policy, folder: Path) -> None:
        """Write to `folder` what servers read: they go on writing meanwhile."""

    async def give(self, client: Client, folder: Path) -> str | None:
        """Have a server, which does not write now, take what was packed. The model to ask it for;
        None is its own.
        """
