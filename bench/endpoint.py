"""What the policy's endpoint costs beside the engine's own call, and what its trees hold.

    python -m bench.endpoint                                        # assay alone
    python -m bench.endpoint --openenv /tmp/openenv/bin/python      # beside OpenEnv's CaptureServer

An agent calls the policy, runs what it says and calls again with the whole history: replies of 60
tokens with a call of a tool, results of 1,000 characters. The client is a process of its own. The
engine says one text: at once, or after 0.5 to 1.5 seconds, which are taken off. `http` is a route
that answers as much without reading anything. The sides take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.endpoint_engine import MEAN_SECONDS, seconds_of

ROOT = Path(__file__).parent.parent
SYSTEM = {"role": "system", "content": "You are a careful programmer. " * 30}
TASK = {"role": "user", "content": "The parser loses the last line of a file. " * 25}
OUTPUT = "\n".join(f"{n}: def parse_line_{n}(self, text): return text" for n in range(20))
TOOL = {"type": "function", "function": {
    "name": "bash", "description": "Runs a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}  # fmt: skip
HEAD = (
    "POST {} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {}\r\nX-Wait: {}\r\n"
    "Content-Length: {}\r\n\r\n"
)


@dataclass(slots=True)
class Side:
    """A server under measurement."""

    name: str
    process: subprocess.Popen[str]
    waits: bool = False
    """Whether the engine takes its time."""

    def order(self, **what: Any) -> dict[str, Any]:
        """Tell it something; its answer."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(what), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended early")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(slots=True)
class Round:
    """What one side did in a round."""

    added: list[float] = field(default_factory=list)
    """Seconds of each call without the engine's."""
    seconds: float = 0.0
    cpu: float = 0.0
    """Of the server's process."""
    mib: float = 0.0
    """By how much its memory grew."""

    def share(self, part: float) -> float:
        """A quantile of the added latency, in milliseconds."""
        return 1000 * sorted(self.added)[int(part * (len(self.added) - 1))]

    @property
    def cpu_per_call(self) -> float:
        """In milliseconds."""
        return 1000 * self.cpu / len(self.added)


async def agent(side: Side, address: dict[str, Any], number: int, calls: int) -> list[float]:
    """One rollout; the seconds of each call."""
    reader, writer = await asyncio.open_connection("127.0.0.1", address["port"], limit=2**24)
    talk: list[dict[str, Any]] = [SYSTEM, {**TASK, "content": f"{number} {TASK['content']}"}]
    times = []
    if side.waits:  # agents start within a second
        await asyncio.sleep(seconds_of(number) - MEAN_SECONDS / 2)
    for turn in range(calls):
        wait = seconds_of(1000 * number + turn) if side.waits else 0.0
        body: dict[str, Any] = {"model": "policy", "messages": talk, "tools": [TOOL]}
        if wait:
            body["user"] = str(wait)
        raw = json.dumps(body).encode()
        head = HEAD.format(address["path"], address["keys"][number], wait, len(raw)).encode()
        started = time.perf_counter()
        writer.write(head + raw)
        answer = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in answer.decode().lower().split("\r\n")[1:-2])
        content = await reader.readexactly(int(fields["content-length"]))
        times.append(time.perf_counter() - started - wait)
        assert answer[9:12] == b"200", content[:500]
        message = json.loads(content)["choices"][0]["message"]
        talk.append(message)
        results = [{"role": "tool", "tool_call_id": call["id"], "content": f"{turn}\n{OUTPUT}"}
                   for call in message.get("tool_calls") or ()]  # fmt: skip
        talk += results or [{"role": "user", "content": f"Go on. {turn}"}]
    writer.close()
    return times


async def rollouts(side: Side, count: int, calls: int, at_once: int) -> Round:
    """So many rollouts, of which so many run at once; all stay open till the end."""
    address = side.order(do="open", sessions=count, waits=side.waits)
    before = side.order(do="look")
    numbers, result = iter(range(count)), Round()
    began: dict[int, list[float]] = {}

    async def work() -> None:
        for number in numbers:
            began[number] = await agent(side, address, number, calls)

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    result.seconds = time.perf_counter() - started
    after = side.order(do="look")
    engine = after["engine"] or [[0.0] * calls] * count
    result.added = [
        total - inside
        for number in range(count)
        for total, inside in zip(began[number], engine[number], strict=True)
    ]
    result.cpu, result.mib = after["cpu"] - before["cpu"], after["mib"] - before["mib"]
    assert after["nodes"] in (0, count * calls), after
    return result


def interleaved(
    sides: Sequence[Side], rounds: int, count: int, calls: int, at_once: int
) -> list[list[Round]]:
    """The rounds of each side, which take turns; the first of each warms up and is left out."""
    done: list[list[Round]] = [[] for _ in sides]
    for _ in range(rounds + 1):
        for mine, side in zip(done, sides, strict=True):
            mine.append(asyncio.run(rollouts(side, count, calls, at_once)))
    return [each[1:] for each in done]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the lowest and the highest."""
    numbers = [f"{value:.{digits}f}" for value in
               (statistics.median(values), min(values), max(values))]  # fmt: skip
    return "{} ({} to {})".format(*numbers)


def latencies(sides: Sequence[Side], options: argparse.Namespace) -> None:
    """The added latency at one call and at many at once."""
    print("| side | engine | at once | p50, ms | p99, ms | CPU ms a call | calls/s |")
    print("|---|---|---|---|---|---|---|")
    plans = [(False, 1, options.calls), (False, options.at_once, options.calls),
             (True, options.at_once, min(options.calls, 10))]  # fmt: skip
    for waits, at_once, calls in plans:
        group = [replace(side, waits=waits) for side in sides]
        done = interleaved(group, options.rounds, at_once, calls, at_once)
        for side, rounds in zip(group, done, strict=True):
            row = [side.name, "waits" if waits else "instant", at_once,
                   spread([each.share(0.5) for each in rounds]),
                   spread([each.share(0.99) for each in rounds]),
                   spread([each.cpu_per_call for each in rounds]),
                   spread([len(each.added) / each.seconds for each in rounds], 0)]  # fmt: skip
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


def growth(sides: Sequence[Side], options: argparse.Namespace) -> None:
    """The cost of a call in long rollouts, and the memory of their trees."""
    print("\n| side | calls a rollout | CPU ms a call | MiB a rollout |")
    print("|---|---|---|---|")
    for calls in options.turns:
        for side in sides:
            rounds = [asyncio.run(rollouts(side, 16, calls, 4)) for _ in range(options.rounds)]
            cpu = spread([each.cpu_per_call for each in rounds])
            mib = max(each.mib for each in rounds) / 16
            print(f"| {side.name} | {calls} | {cpu} | {mib:.2f} |", flush=True)


def many(sides: Sequence[Side], options: argparse.Namespace) -> None:
    """Many rollouts, all kept open."""
    print()
    for side in sides:
        done = asyncio.run(rollouts(side, options.rollouts, options.calls, options.at_once))
        rate, mib = len(done.added) / done.seconds, done.mib / options.rollouts
        what = (
            f"{side.name}: {options.rollouts} rollouts of {options.calls} calls: {rate:.0f} calls/s"
        )
        print(f"{what}, {done.cpu_per_call:.2f} ms of CPU time a call, {mib:.2f} MiB a rollout")


def torch(sides: Sequence[Side], options: argparse.Namespace) -> None:
    """The added latency before a small model of this process."""
    print("\n| side | at once | p50, ms | p99, ms |\n|---|---|---|---|")
    with running("torch", sys.executable, "-m", "bench.endpoint_servers", "torch") as side:
        for at_once in (1, options.at_once):
            (rounds,) = interleaved([side], options.rounds, at_once, 5, at_once)
            p50, p99 = (spread([each.share(part) for each in rounds]) for part in (0.5, 0.99))
            print(f"| torch | {at_once} | {p50} | {p99} |", flush=True)


PARTS = {"latencies": latencies, "growth": growth, "many": many, "torch": torch}


@contextmanager
def running(name: str, *words: str) -> Iterator[Side]:
    """A side in a process of its own."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([*words], stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
    try:
        yield Side(name, process)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--openenv", help="a Python that has the package openenv")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=20, help="of a rollout")
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=500)
    parser.add_argument("--turns", type=int, nargs="*", default=[20, 40, 80])
    parser.add_argument("--only", choices=("latencies", "growth", "many", "torch"))
    options = parser.parse_args()
    here, parts = (sys.executable, "-m"), [options.only] if options.only else [*PARTS]
    with ExitStack() as stack:
        sides = [
            stack.enter_context(running(name, *here, "bench.endpoint_servers", kind))
            for name, kind in (("assay", "text"), ("http", "http"))
        ]
        if options.openenv:
            engine = stack.enter_context(running("engine", *here, "bench.endpoint_engine"))
            assert engine.process.stdout
            port = engine.process.stdout.readline().strip()
            script = str(ROOT / "bench" / "endpoint_openenv.py")
            sides.insert(1, stack.enter_context(running("openenv", options.openenv, script, port)))
        for part in parts:
            PARTS[part](sides, options)


if __name__ == "__main__":
    main()
