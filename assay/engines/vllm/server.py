"""Starts vLLM servers as processes on this machine, and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.config.generation import EngineSettings
from assay.engines.vllm.client import Client, GoneError
from assay.errors import SettingsError
from assay.policy.source import head_size

if TYPE_CHECKING:
    from assay.policy.load_model import Policy

MAX_NUM_SEQS = 256
"""Completions that one server generates at once."""
START_SECONDS = 1800.0
"""Time limit of a start: a large model on a slow disk takes minutes."""
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Attention head sizes of vLLM's CPU kernels. With others a server starts, and dies of the first
request."""
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(slots=True)
class ServerProcess:
    """A server behind a Unix socket, which no other user can reach. A reaper stops it together with
    this process.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path
    """Holds its socket; removed when this process is gone."""
    log: Path
    """Its standard output and error are appended here."""
    number: int = 0
    _reaper: subprocess.Popen[bytes] | None = None

    def numbered(self, number: int, gpus: Sequence[int]) -> ServerProcess:
        """Server `number` beside this one, which sees these `gpus` alone; all of them if empty."""
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}
        log = self.log.with_stem(f"{self.log.stem}-{number}") if number else self.log
        return replace(self, environment=self.environment | visible, log=log, number=number)

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / f"{self.number}.socket"

    async def start(self, client: Client, seed: int) -> None:
        """Return when it answers. Raises GoneError if it exits instead."""
        self.socket.unlink(missing_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        reaper = [sys.executable, "-m", "assay.engines.vllm.reaper"]
        owner, inner = [str(os.getpid()), str(self.folder)], ["0", ""]
        server = [*self.command, "--uds", str(self.socket), "--seed", str(seed % 2**31)]
        command = [*reaper, *owner, *reaper, *inner, *server]
        with self.log.open("ab") as log:
            self._reaper = subprocess.Popen(
                command, env=os.environ | self.environment,
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not (self.socket.exists() and await client.is_healthy()):
            if self._reaper.poll() is not None or time.monotonic() > deadline:
                raise GoneError("it did not start")
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        """Stop all its processes and wait for that. It may be called again."""
        if self._reaper:
            self._reaper.terminate()
            self._reaper.wait()

    def last_log_line(self) -> str:
        """The last line of its log, and where the log is."""
        lines = self.log.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        return f"the last line of {self.log} is: {last[:500]}"


def server_of(
    policy: Policy, settings: EngineSettings, more: Sequence[str], folder: Path, log: Path
) -> ServerProcess:
    """A server for `policy`, not started; `more` are arguments for the transport of its weights.

    Raises SettingsError without vLLM, and for a model that vLLM's CPU kernels do not support.
    """
    config = policy.model.config.get_text_config()
    python = settings.python or sys.executable
    width = _head_size(config)
    on_cpu = policy.device.type == "cpu"
    if on_cpu and width not in CPU_HEAD_SIZES:
        raise SettingsError(
            f"engine.name = 'vllm': vLLM on a CPU has no attention for heads of {width}, only of"
            f" {', '.join(map(str, CPU_HEAD_SIZES))}; for policy.model = 'tiny' change"
            " policy.tiny.width or .heads"
        )
    _check_vllm(python)
    dtype, cached = dtype_of(policy, settings), settings.kv_cache_tokens
    arguments = [
        "--dtype", dtype, "--max-model-len", min(policy.context or cached, cached),
        "--max-num-seqs", MAX_NUM_SEQS, "--tensor-parallel-size", settings.tensor_parallel,
        "--kv-cache-memory-bytes", kv_cache_bytes(config, dtype, settings),
        "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm",
        "--enable-scale-out", "--disable-uvicorn-access-log",
        *(["--enforce-eager"] if on_cpu else []),
    ]  # fmt: skip
    command = (
        python, "-m", "vllm.entrypoints.openai.api_server", *map(str, arguments), *more,
        *settings.arguments,
    )  # fmt: skip
    # On a CPU the first request would wait 15 seconds for a compilation.
    eager = {"TORCHDYNAMO_DISABLE": "1"} if on_cpu else {}
    sockets = {"VLLM_RPC_BASE_PATH": str(folder)}  # else its sockets stay in /tmp
    return ServerProcess(command, ENVIRONMENT | eager | sockets, folder, log)


def dtype_of(policy: Policy, settings: EngineSettings) -> str:
    """Data type of the servers' weights: `float32` or `bfloat16`."""
    dtype = str(policy.model.dtype).removeprefix("torch.")
    return "bfloat16" if settings.dtype == "bfloat16" else dtype


def _check_vllm(python: str) -> None:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    status = None
    with contextlib.suppress(OSError):
        status = subprocess.run(
            [python, "-c", code], check=False, stderr=subprocess.DEVNULL
        ).returncode
    if status != 0:
        raise SettingsError(
            f"engine.name = 'vllm', but {python!r} has no vLLM: pip install -e '.[vllm]' in assay's"
            " checkout, or set engine.python to the interpreter of an environment that has it, or"
            " engine.servers to the URLs of running servers"
        )


def _head_size(config: Any) -> int:
    if not hasattr(config, "num_attention_heads"):
        raise SettingsError(
            f"engine.name = 'vllm': assay starts no server for {config.model_type!r}, which has no"
            " attention heads to size its KV cache by; start one and set engine.servers"
        )
    return head_size(config)


def kv_cache_bytes(config: Any, dtype: str, settings: EngineSettings) -> int:
    """The argument `--kv-cache-memory-bytes`, which is of one GPU. In it, servers of several GPUs
    hold more tokens than `kv_cache_tokens`: each GPU has only its share of the heads.
    """
    return settings.kv_cache_tokens * bytes_per_token(config, dtype)


def bytes_per_token(config: Any, dtype: str, tensor_parallel: int = 1) -> int:
    """Size of a token's keys and values in the KV cache of one of so many GPUs, each of which has
    at least one head.
    """
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    heads = -(-int(heads) // tensor_parallel)
    values = 2 * int(config.num_hidden_layers) * heads * _head_size(config)
    return values * (4 if dtype == "float32" else 2)
