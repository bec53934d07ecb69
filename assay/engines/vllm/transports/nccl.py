"""Full weights from the trainer's GPU to the servers' GPUs, with vLLM's native weight transfer.

NOT TESTED: this transport has never run, for lack of GPUs. The servers need GPUs of their own,
because NCCL allows one rank per GPU. `tests/engines/vllm` covers the other transports only.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from assay.engines.vllm.client import CALL, Client, LostError
from assay.engines.vllm.transports.files import Files

if TYPE_CHECKING:
    from assay.policy.load import Policy

BACKEND = '{"backend": "nccl"}'


class Nccl(Files):
    """Sends the current weights, so a server that restarts later gets the newest ones."""

    def __init__(self) -> None:
        self._policy: Any = None
        self._senders: dict[Client, Any] = {}

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """The arguments of `Files`, and the transfer's own."""
        return [
            *super().arguments(policy, folder),
            "--load-format",
            "dummy",
            "--weight-transfer-config",
            BACKEND,
        ]

    def pack(self, policy: Policy, folder: Path) -> None:
        """Save the configuration only."""
        policy.model.config.save_pretrained(folder)
        self._policy = policy

    async def send(self, client: Client, folder: Path) -> str | None:
        """Broadcast the weights to all workers of the server."""
        workers = (await client.call("/get_world_size", verb="GET"))["world_size"]
        try:
            await asyncio.to_thread(self._send, client, workers)
        except (
            Exception
        ) as error:  # vLLM's side raises anything; the next attempt makes a new group
            self._senders.pop(client, None)
            raise LostError(f"weights by NCCL: {error}") from error
        return None

    def _send(self, client: Client, workers: int) -> None:
        from vllm.distributed.weight_transfer.base import ModuleSource
        from vllm.distributed.weight_transfer.nccl_engine import (
            NCCLTrainerInitInfo,
            NCCLTrainerWeightTransferEngine,
        )

        if client not in self._senders:
            with socket.socket() as free:
                free.bind(("", 0))
                port = free.getsockname()[1]
            address = "127.0.0.1" if client.socket else socket.gethostname()
            self._senders[client] = NCCLTrainerWeightTransferEngine.trainer_init(
                NCCLTrainerInitInfo(address, port, workers + 1, rank=0),
                client=_Calls(client), source=ModuleSource(_Untied(self._policy.model)),
            )  # fmt: skip
        self._senders[client].send_weights()


class _Untied:
    """A model whose tied weights appear under both names, as vLLM needs them."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def named_parameters(self) -> Any:
        return self._model.named_parameters(remove_duplicate=False)


class _Calls:
    """The HTTP calls that vLLM's side makes to the server, from its own threads."""

    def __init__(self, client: Client) -> None:
        transport = httpx2.HTTPTransport(uds=client.socket)
        self._http = httpx2.Client(base_url=client.url, transport=transport, timeout=CALL)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._post("/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self._post("/start_weight_update", None)

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        self._post("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._post("/finish_weight_update", {"weight_version": weight_version})

    def _post(self, path: str, body: Any) -> None:
        self._http.post(path, json=body).raise_for_status()
