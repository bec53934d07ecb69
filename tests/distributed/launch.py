"""Starts a module alone, or on several ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def started(ranks: int, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process, or torchrun with that many, which prints both streams to one pipe."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    many = ["torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port]
    command = [sys.executable, "-m", *(many if ranks > 1 else []), *(["-m"] * (ranks > 1)), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()


def run(ranks: int, *words: str) -> str:
    """What it printed; it must end well."""
    with started(ranks, *words) as process:
        printed, _ = process.communicate()
        assert process.returncode == 0, printed[-4000:]
        return str(printed)


def ranks_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """The pids of the ranks that torchrun has started, by rank."""
    found = {}
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        rank = next((word for word in words if word.startswith(b"RANK=")), None)
        if rank:
            found[int(rank[5:])] = int(pid)
    return found
