"""Latency of `assay serve` under many clients of whom some are hostile, against the same clients
alone, in turns on one service.

    python -m bench.crowd                         # 200 clients, 20 of them hostile
    python -m bench.crowd --hostile programs      # only those whose programs hold slots

Each of the others judges a small program, waits, and judges the next. Every answer of theirs is
compared with the right one. A hostile client asks without a pause, for as long as the turn takes.
Each client has an address of its own, of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from assay.sandbox import kernel
from bench.serve import DOUBLE, HttpRequest, answer, judged, send

Body = dict[str, Any]
RIGHT = "def double(x): return x + x"
ELIF = "def test_a(): double(1)\nif x == 0: pass\n" + "elif x == 1: pass\n" * 1500
READING: dict[str, tuple[str, Body]] = {
    "a module of 1 MB": ("/judge", {
        "tests": ["def test_a():\n" + "    assert double(1) == 2\n" * 37_000]}),
    "20,000 asserts": ("/judge", {"tests": ["assert double(1) == 2"] * 20_000}),
    "5,000 asserts": ("/judge", {"tests": ["assert double(1) == 2"] * 5_000}),
    "a chain of conditions": ("/judge", {"tests": [ELIF]}),
    "a billion tests": ("/judge", {
        "tests": ["@pytest.mark.parametrize('x', [1, 2])\n" * 30 + "def test_a(x): double(x)"]}),
    "100,000 names": ("/judge", {
        "tests": ["assert double(1) == 2"],
        "setup": "".join(f"v{n}=1\n" for n in range(100_000))}),
    "many calls": ("/judge", {"inputs": [[[n] * 20] for n in range(5_000)],
                              "expected": [[n] * 40 for n in range(5_000)]}),
    "deep JSON": ("/judge", {"inputs": json.loads("[" * 900 + "]" * 900), "expected": [1]}),
}  # fmt: skip
"""Requests that take long to read."""
FILES: dict[str, tuple[str, Body]] = {
    "files that no path names": ("/run_code", {"files": {"a": "", "a/b": ""}}),
    "a long name": ("/run_code", {"files": {"n" * 300: ""}}),
    "sixteen files": ("/run_code", {"fetch_files": [f"f{n}" for n in range(15)]}),
}
PROGRAMS = {
    "spins": "while True: pass",
    "takes memory": "x = []\nwhile True: x.append(bytearray(10**6))",
    "forks": "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "prints": "while True: print('x' * 10_000)",
    "sleeps": "import time\ntime.sleep(60)",
}
"""Programs that hold a slot for as long as their limits let them."""


KNOWN_SECONDS = 2
"""After so long it is known which clients use much."""


@dataclass(slots=True)
class Turn:
    """What the clients that are not hostile saw in one turn."""

    began: float
    """On the monotonic clock."""
    seconds: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    """Of these, those of requests that were sent after KNOWN_SECONDS."""
    wrong: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    """Statuses of the answers to the hostile ones."""

    def add(self, sent: float) -> None:
        """Add an answer to a request that was sent at this time, which has just come."""
        self.seconds.append(time.monotonic() - sent)
        if sent - self.began > KNOWN_SECONDS:
            self.late.append(self.seconds[-1])


def share(seconds: list[float], part: float) -> float:
    """A quantile of latencies in milliseconds."""
    return 1000 * sorted(seconds)[int(part * (len(seconds) - 1))]


def hard_to_read() -> list[HttpRequest]:
    """The requests of READING."""
    return [judging(path, {**task, "entry_point": "double"}) for path, task in READING.values()]


def judging(path: str, task: Body, program: str = RIGHT) -> HttpRequest:
    return HttpRequest(path, json.dumps({"task": task, "program": program}).encode(), 0, "")


def attacks(kind: str, seed: int, reading: list[HttpRequest]) -> Iterator[HttpRequest]:
    """Hostile requests without end."""
    draw = random.Random(seed)
    for number in itertools.count(1_000_000 * seed):
        rows: list[HttpRequest] = []
        if kind in ("reading", "all"):
            path, more = draw.choice([*FILES.values()])
            body = {"code": f"print({number})", "language": "python", **more}
            rows = [draw.choice(reading), HttpRequest(path, json.dumps(body).encode(), 0, "")]
        if kind in ("programs", "all"):
            code = f"{draw.choice([*PROGRAMS.values()])}\n# {number}"
            rows.append(judging("/judge", DOUBLE, code))
        yield draw.choice(rows)


async def exchange(port: int, request: HttpRequest, address: str) -> tuple[int, str]:
    """One request from this address, on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        await send(writer, request, "")
        status, text, _ = await answer(reader)
        return status, text
    finally:
        writer.close()


async def attack(
    port: int, requests: Iterator[HttpRequest], seed: int, statuses: Counter[str]
) -> None:
    """One hostile client."""
    for request in requests:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            status, _ = await exchange(port, request, f"127.1.0.{seed + 1}")
            statuses[str(status)] += 1


def attack_all(port: int, kind: str, hostile: int, parent: Connection) -> None:
    """Hostile clients, until the parent says something; then it gets the statuses of answers."""
    os.setsid()  # they would be other machines
    kernel.give_way(os.getpid(), 19)
    reading = hard_to_read()
    parent.send("ready")

    async def until_told() -> Counter[str]:
        statuses: Counter[str] = Counter()
        attackers = [
            asyncio.create_task(attack(port, attacks(kind, seed, reading), seed, statuses))
            for seed in range(hostile)
        ]
        await asyncio.to_thread(parent.recv)
        for task in attackers:
            task.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
        return statuses

    parent.send(asyncio.run(until_told()))


async def client(port: int, number: int, pause: float, turn: Turn, end: float) -> None:
    """One that is not hostile."""
    address = f"127.2.{number // 250}.{number % 250 + 1}"
    await asyncio.sleep(random.Random(number).uniform(0, pause))
    while (started := time.monotonic()) < end:
        request = judged(f"{RIGHT}  # {number} {started}", '"verdict": "pass"')
        try:
            status, text = await exchange(port, request, address)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            turn.wrong[type(error).__name__] += 1
        else:
            turn.add(started)
            if status != 200 or request.content not in text:
                turn.wrong[f"{status} {text[:80]}"] += 1
        await asyncio.sleep(pause)


async def take_turn(port: int, options: argparse.Namespace, hostile: int) -> Turn:
    """Let the clients ask for a while, beside so many hostile ones, which are a process of their
    own: what it costs to be hostile shall slow nobody.
    """
    here = multiprocessing.get_context("spawn")
    ours, theirs = here.Pipe()
    attackers = here.Process(target=attack_all, args=(port, options.hostile, hostile, theirs))
    attackers.start()
    await asyncio.to_thread(ours.recv)
    turn = Turn(time.monotonic())
    end, others = turn.began + options.seconds, options.clients - options.hostiles
    await asyncio.gather(*(client(port, n, options.pause, turn, end) for n in range(others)))
    ours.send("end")
    turn.statuses = await asyncio.to_thread(ours.recv)
    attackers.join()
    return turn


async def compare(port: int, options: argparse.Namespace) -> None:
    """Turns without and with the hostile clients, one after the other."""
    for hostile in (0, options.hostiles):  # processes start with the first that needs them
        await take_turn(port, argparse.Namespace(**{**vars(options), "seconds": 3}), hostile)
    ratios, late = [], []
    for _ in range(options.turns):
        quiet = await take_turn(port, options, 0)
        crowd = await take_turn(port, options, options.hostiles)
        ratios.append(share(crowd.seconds, 0.99) / share(quiet.seconds, 0.99))
        late.append(share(crowd.late, 0.99) / share(quiet.late, 0.99))
        for name, turn in (("quiet", quiet), ("hostile", crowd)):
            print(
                f"{name:8s} {len(turn.seconds):6d} answers   p50"
                f" {share(turn.seconds, 0.5):5.0f} ms   p99 {share(turn.seconds, 0.99):5.0f} ms,"
                f" after {KNOWN_SECONDS} s {share(turn.late, 0.99):5.0f} ms"
                f"   wrong {sum(turn.wrong.values())} {dict(turn.wrong.most_common(3))}"
                f"   hostile {dict(turn.statuses)}",
                flush=True,
            )
    print(
        "p99 beside hostile clients, times the quiet one:"
        f" {statistics.median(ratios):.2f} in the median of {options.turns} turns,"
        f" {statistics.median(late):.2f} after the first {KNOWN_SECONDS} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--hostiles", type=int, default=20)
    parser.add_argument("--hostile", choices=("reading", "programs", "all"), default="all")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pause", type=float, default=5)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "assay", "serve", "--port", "0", "--cpu-seconds", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            port = int(server.stdout.readline().rpartition(":")[2])
            asyncio.run(compare(port, options))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
