"""Full weights from the trainer's GPU to the servers', by vLLM's native weight transfer. Never run:
no GPU was at hand.

The servers need GPUs of their own: NCCL has no two ranks on one. `tests/engines/vllm` run the other
transports only.
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
    """The weights are sent as they are at that moment: a server that is started again later gets
    the newest.
    """

    def __init__(self) -> None:
        self._policy: Any = None
        self._senders: dict[Client, Any] = {}

    def arguments(self, policy: Policy, folder: Path) -> list[str]:
        """As for files, and the way that weights come."""
        return [
            *super().arguments(policy, folder),
            "--load-format",
            "dummy",
            "--weight-transfer-config",
            BACKEND,
        ]

    def pack(self, policy: Policy, folder: Path) -> None:
        """The shape alone."""
        policy.model.config.save_pretrained(folder)
        self._policy = policy

    async def give(self, client: Client, folder: Path) -> str | None:
        """A broadcast to all workers of the server."""
        workers = (await client.call("/get_world_size", verb="GET"))["world_size"]
        try:
            await asyncio.to_thread(self._send, client, workers)
        except (
            Exception
        ) as error:  # vLLM's own half raises anything; the next attempt begins with a new group
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
    """A model that names tied weights under both names, as vLLM needs it; what vLLM's half asks of
    a module.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def named_parameters(self) -> Any:
        return self._model.named_parameters(remove_duplicate=False)


class _Calls:
    """The calls that vLLM's half makes of the server, from its own threads."""

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
