"""Load on `assay serve`: requests over many connections, with slow, malformed, oversized and
vanishing ones among them.

    python -m bench.serve                        # 10,000 requests over 64 connections

Every answer is compared with the one that is right. Printed while it runs: the memory of the server
and of the judge's processes (each one's resident memory added up, so that shared pages count many
times).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BODY_MB = 0.25
DOUBLE = {"tests": ["assert double(2) == 4", "assert double('a') == 'aa'"], "entry_point": "double"}
MIX = {
    "right": 40,
    "wrong": 20,
    "dies": 8,
    "prints": 16,
    "slow": 4,
    "malformed": 4,
    "fields": 3,
    "oversized": 3,
    "gone": 2,
}
"""Kinds of requests, in per cent."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, and what must come of it."""

    path: str
    body: bytes
    status: int
    content: str
    """What the answer must hold."""


@dataclass(slots=True)
class Load:
    """What was asked and answered."""

    seconds: list[float] = field(default_factory=list)
    """Of requests whose programs were run."""
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """Answers that were not the right ones."""


def request_of(kind: str, number: int) -> HttpRequest:
    """A request of a kind; the number keeps the judge from knowing the program already."""
    if kind in ("right", "slow", "gone"):
        return judged(f"def double(x): return x + x  # {number}", '"verdict": "pass"')
    if kind == "wrong":
        return judged(f"def double(x): return 4  # {number}", '"verdict": "wrong"')
    if kind == "dies":
        return judged(f"def double(x): {number} / 0", '"verdict": "error"')
    if kind == "prints":
        body = {"code": f"print(input() * 2, {number})", "language": "python", "stdin": "ab"}
        return HttpRequest(
            "/run_code", json.dumps(body).encode(), 200, f'"stdout": "abab {number}\\n"'
        )
    if kind == "malformed":
        return HttpRequest(
            "/judge", b'{"program": "def' + b"x" * (number % 2000), 400, "not valid JSON"
        )
    if kind == "fields":
        return HttpRequest(
            "/judge", json.dumps({"program": number, **DOUBLE}).encode(), 422, "program"
        )
    return HttpRequest("/judge", b" " * int((BODY_MB + 0.1) * 2**20), 413, "larger than")


def judged(program: str, verdict: str) -> HttpRequest:
    return HttpRequest(
        "/judge", json.dumps({"task": DOUBLE, "program": program}).encode(), 200, verdict
    )


async def client(port: int, kinds: list[tuple[int, str]], load: Load) -> None:
    """Take requests from the list, one after the other, over a connection that is kept as long as
    the server lets.
    """
    reader = writer = None
    while kinds:
        number, kind = kinds.pop()
        request = request_of(kind, number)
        if writer is None or writer.is_closing():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert reader
        started = time.perf_counter()
        await send(writer, request, kind)
        if kind == "gone":
            writer.close()
            continue
        status, text, reusable = await answer(reader)
        load.statuses[status] += 1
        if status == 200 and kind != "slow":
            load.seconds.append(time.perf_counter() - started)
        if status != request.status or request.content not in text:
            load.wrong.append(f"{kind}: {status} {text[:200]}")
        if not reusable:
            writer.close()
    if writer is not None:
        writer.close()


async def send(writer: asyncio.StreamWriter, request: HttpRequest, kind: str) -> None:
    head = f"POST {request.path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    data = head.encode() + f"Content-Length: {len(request.body)}\r\n\r\n".encode() + request.body
    step = max(1, len(data) // 5) if kind == "slow" else len(data)
    with suppress(ConnectionError):  # a server that refuses a large body need not read it
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            await asyncio.sleep(0.05 if kind == "slow" else 0)


async def answer(reader: asyncio.StreamReader) -> tuple[int, str, bool]:
    """Status, body, and whether the connection stays."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(
        int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length:")
    )
    body = await reader.readexactly(length)
    return int(head.split(" ", 2)[1]), body.decode(), "connection: close" not in head


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory in MiB of a process, and of all below it added up."""
    sizes: dict[int, float] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
            sizes[int(entry.name)] = int((entry / "statm").read_text().split()[1]) * 4096 / 2**20

    def below(process: int | None) -> bool:
        return process is not None and (parents.get(process) == pid or below(parents.get(process)))

    return sizes.get(pid, 0.0), sum(size for process, size in sizes.items() if below(process))


async def run(port: int, requests: int, connections: int, pid: int | None = None) -> Load:
    """Ask for everything; with the server's pid, print its memory at intervals."""
    draws = random.Random(0)
    kinds = list(enumerate(draws.choices(list(MIX), list(MIX.values()), k=requests)))
    load = Load()
    clients = asyncio.gather(*(client(port, kinds, load) for _ in range(connections)))
    next_look = requests
    while not clients.done():
        if pid is not None and len(kinds) <= next_look:
            server, judge = memory_mb(pid)
            print(
                f"{requests - len(kinds):6d} asked   server {server:6.1f} MiB   judge"
                f" {judge:7.1f} MiB",
                flush=True,
            )
            next_look -= requests // 10
        await asyncio.wait([clients], timeout=0.2)
    await clients
    return load


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    command = [sys.executable, "-m", "assay", "serve", "--port", "0", "--body-mb", str(BODY_MB)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            port = int(server.stdout.readline().rpartition(":")[2])
            started = time.perf_counter()
            load = asyncio.run(run(port, options.requests, options.connections, server.pid))
            seconds = time.perf_counter() - started
        finally:
            server.terminate()
            server.wait()
    report(load, options.requests, seconds)


def report(load: Load, requests: int, seconds: float) -> None:
    times = sorted(load.seconds)
    p50, p95, p99 = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.95, 0.99))
    print(
        f"{requests} requests in {seconds:.1f} s: {requests / seconds:.0f}/s,"
        f" {len(times) / seconds:.0f} programs/s"
    )
    print(f"latency of a program: p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms")
    print(
        "statuses: "
        + ", ".join(f"{status} x {count}" for status, count in sorted(load.statuses.items()))
    )
    print(f"wrong answers: {len(load.wrong)}" + "".join(f"\n  {line}" for line in load.wrong[:10]))


if __name__ == "__main__":
    main()
