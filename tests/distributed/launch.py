"""Starts a module alone, or on several ranks."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def started(ranks: int, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process, or torchrun with that many, which prints both streams to one pipe."""
    many = ["--nproc-per-node", str(ranks), "--master-port", free_port()] if ranks > 1 else []
    with _begun(many, words, variables) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def two_machines(*words: str) -> Iterator[list[subprocess.Popen[str]]]:
    """One torchrun of two ranks for each of two machines, which are this one."""
    both = ["--nnodes", "2", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    both += ["--master-port", free_port()]
    processes = [_begun([*both, "--node-rank", str(n)], words, {}) for n in range(2)]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def free_port() -> str:
    """One below those the kernel gives away, so that nobody takes it before torchrun does."""
    lowest, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    while True:
        port = random.randrange(10_000, int(lowest))
        with suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return str(port)


def _begun(
    many: Sequence[str], words: Sequence[str], variables: Mapping[str, str]
) -> subprocess.Popen[str]:
    torchrun = ["torch.distributed.run", *many, "-m"] if many else []
    return subprocess.Popen(
        [sys.executable, "-m", *torchrun, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


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
