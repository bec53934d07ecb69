"""Starts one vLLM server as a process of this machine, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.config.sections import EngineSettings
from assay.engines.vllm.client import Client, LostError
from assay.errors import SettingsError

if TYPE_CHECKING:
    from assay.policy.load import Policy

MAX_NUM_SEQS = 256
"""Completions that one server writes at once."""
START_SECONDS = 1800.0
"""A large model on a slow disk takes minutes."""
HEADS_ON_CPU = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Sizes of an attention head that vLLM's CPU kernels have; others start, and die of the first
request."""
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """What it takes to start a server."""

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path
    """Holds its socket; removed when this process is gone."""
    log: Path
    """Where it writes what it has to say; appended to."""


class Process:
    """A server behind a Unix socket, where no other user reaches it; its reaper ends it with this
    process.
    """

    def __init__(self, launch: Launch, number: int) -> None:
        self.launch = launch
        self.socket = launch.folder / f"{number}.socket"
        self._keeper: subprocess.Popen[bytes] | None = None

    async def start(self, client: Client, seed: int) -> None:
        """Return when it answers. Raises LostError when it ends instead."""
        self.socket.unlink(missing_ok=True)
        self.launch.log.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.launch.command, "--uds", str(self.socket), "--seed", str(seed % 2**31)]
        reaper = [
            sys.executable,
            "-m",
            "assay.engines.vllm.reaper",
            str(os.getpid()),
            str(self.launch.folder),
        ]
        with self.launch.log.open("ab") as log:
            self._keeper = subprocess.Popen(
                [*reaper, *command], env=os.environ | self.launch.environment,
                start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not (self.socket.exists() and await client.is_healthy()):
            if self._keeper.poll() is not None or time.monotonic() > deadline:
                raise LostError("it did not start")
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        """End all its processes and wait for that; harmless when repeated."""
        if self._keeper:
            self._keeper.terminate()
            self._keeper.wait()

    def last_words(self) -> str:
        """The last line of its log, and where that is."""
        lines = self.launch.log.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        return f"the last line of {self.launch.log} is: {last[:500]}"


def plan(
    policy: Policy, settings: EngineSettings, more: Sequence[str], folder: Path, log: Path
) -> Launch:
    """How a server for `policy` is started; `more` are arguments that the transport of its weights
    needs.

    Raises SettingsError without vLLM, and for a model that its CPU kernels have no attention for.
    """
    config = policy.model.config.get_text_config()
    python = settings.python or sys.executable
    width = _head(config)
    on_cpu = policy.device.type == "cpu"
    if on_cpu and width not in HEADS_ON_CPU:
        raise SettingsError(
            f"engine.name = 'vllm': vLLM on a CPU has no attention for heads of {width}, only of"
            f" {', '.join(map(str, HEADS_ON_CPU))}; for policy.model = 'tiny' change"
            " policy.tiny.width or .heads"
        )
    _check_vllm(python)
    cached = settings.kv_cache_tokens
    longest = min(policy.context or cached, cached)
    arguments = [
        "--dtype", dtype_of(policy, settings), "--max-model-len", longest,
        "--max-num-seqs", MAX_NUM_SEQS,
        "--kv-cache-memory-bytes", cached * _bytes_a_token(config, dtype_of(policy, settings)),
        "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm",
        "--enable-scale-out",
        "--disable-uvicorn-access-log", *(["--enforce-eager"] if on_cpu else []),
    ]  # fmt: skip
    command = (
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *map(str, arguments),
        *more,
        *settings.arguments,
    )
    eager = (
        {"TORCHDYNAMO_DISABLE": "1"} if on_cpu else {}
    )  # or the first request is compiled for, 15 seconds
    return Launch(command, ENVIRONMENT | eager, folder, log)


def dtype_of(policy: Policy, settings: EngineSettings) -> str:
    """The type of the servers' weights: `float32` or `bfloat16`."""
    return (
        "bfloat16"
        if settings.dtype == "bfloat16"
        else str(policy.model.dtype).removeprefix("torch.")
    )


def _check_vllm(python: str) -> None:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    found = None
    with contextlib.suppress(OSError):
        found = subprocess.run(
            [python, "-c", code], check=False, stderr=subprocess.DEVNULL
        ).returncode
    if found != 0:
        raise SettingsError(
            f"engine.name = 'vllm', but {python!r} has no vLLM: pip install 'assay[vllm]', or give"
            " the interpreter of an environment that has it as engine.python, or the URLs of"
            " running servers as engine.servers"
        )


def _head(config: Any) -> int:
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def _bytes_a_token(config: Any, dtype: str) -> int:
    """Of keys and values in the cache."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return (
        2
        * int(config.num_hidden_layers)
        * int(heads)
        * _head(config)
        * (4 if dtype == "float32" else 2)
    )
