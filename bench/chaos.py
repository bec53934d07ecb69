"""A run whose processes are killed at random: two ranks, two vLLM servers, two judge services.

    python -m bench.chaos --minutes 10 --python .venv-vllm/bin/python

The demo trains on two ranks, generates with two vLLM servers that it starts, one version behind,
and asks two `assay serve` for verdicts. Evaluations take two samples of each task, and none is made
before SFT. Every 20 to 60 seconds (`--pause`) a process of the next kind gets SIGKILL: torchrun,
the leader, the follower, a vLLM server, its engine, its reaper, a judge service, one of its
workers. A kind that does not run then has its turn later. What a user's supervisor would do is done
here: a job that ended is started again with the same command, a service that died on the same port.

In the end every step must be there once, each with all its rollouts and none that failed, every
task as often as the others, and training must have raised the pass rate.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import parquet

ROOT = Path(__file__).parent.parent
MARK = "ASSAY_CHAOS"
"""The environment variable by which the processes of the job are known."""
STALENESS, GROUPS, SAMPLES = 1, 32, 8
LEAVE = 300.0
"""Seconds in which what a killed process leaves must end by itself."""
MOST = 60
"""Starts of the job after which it is given up."""


def processes() -> dict[int, tuple[str, str]]:
    """The job's processes: command line and rank, by pid. vLLM's engines overwrite the memory that
    holds their environment; they are known by their parents.
    """
    marked = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (folder / "environ").read_bytes().split(b"\0")
            if f"{MARK}={os.getpid()}".encode() in environment:
                rank = next(
                    (variable[5:] for variable in environment if variable.startswith(b"RANK=")), b""
                )
                marked[int(folder.name)] = rank.decode()
    below = {pid: "" for child in marked for pid in descendants(child)}
    return {pid: (command_line(pid), rank) for pid, rank in (below | marked).items()}


def command_line(pid: int) -> str:
    """Empty where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def descendants(pid: int) -> list[int]:
    """All processes that a process has started, directly or not."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid for child in children for pid in (int(child), *descendants(int(child)))]
    return []


@dataclass
class Service:
    """One `assay serve`, started again on the same port when it died."""

    process: subprocess.Popen[str] | None = None
    port: str = "0"

    def keep(self) -> None:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-m", "assay", "serve", "--port", self.port]
            self.process = subprocess.Popen(
                [*command, "--memory-mb", "512"], stdout=subprocess.PIPE, text=True
            )
            assert self.process.stdout
            self.port = self.process.stdout.readline().split()[-1].rpartition(":")[2].strip("/")

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait()


@dataclass
class Job:
    """The job, started again when it ended early."""

    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def keep(self) -> bool:
        """Start it where it does not run; whether it has not done its work yet."""
        if self.process and self.process.poll() is None:
            return True
        if self.process and self.process.returncode == 0:
            return False
        assert self.starts < MOST, f"the job does not come up; see {self.log}"
        deadline = time.monotonic() + LEAVE
        while left := processes():
            assert time.monotonic() < deadline, f"these processes of a dead job stay: {left}"
            time.sleep(0.2)
        with self.log.open("ab") as log:
            environment = os.environ | {MARK: str(os.getpid()), "OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=environment, cwd=ROOT
            )
        self.starts += 1
        return True


@dataclass
class Killer:
    """Kills a process of one kind after another, in random order and at random moments."""

    job: Job
    services: list[Service]
    random: random.Random
    pause: tuple[float, float]
    """Least and most seconds between two kills."""
    killed: Counter[str] = field(default_factory=Counter)
    due: float = 0.0
    left: list[str] = field(default_factory=list)

    def victims(self, kind: str) -> list[int]:
        commands = processes()
        matchers: dict[str, Callable[[str, str], bool]] = {
            "follower": lambda command, rank: "assay train" in command and rank == "1",
            "leader": lambda command, rank: "assay train" in command and rank == "0",
            "vLLM server": lambda command, _: "api_server" in command and "reaper" not in command,
            "vLLM engine": lambda command, _: "EngineCore" in command,
            "reaper": lambda command, _: "vllm.reaper" in command,
        }
        if kind in matchers:
            return [pid for pid, command in commands.items() if matchers[kind](*command)]
        if kind == "torchrun":
            return [self.job.process.pid] if self.job.process else []
        running = [service.process.pid for service in self.services if service.process]
        workers = [pid for parent in running for pid in descendants(parent)]
        return running if kind == "judge service" else workers

    def kill(self) -> None:
        """Kill one if it is time; a kind that does not run now keeps its turn."""
        if time.monotonic() < self.due:
            return
        if not self.left:
            self.left = self.random.sample(KINDS, len(KINDS))
        for kind in self.left:
            if victims := self.victims(kind):
                os.kill(self.random.choice(victims), signal.SIGKILL)
                print(f"{time.strftime('%H:%M:%S')} killed: {kind}", flush=True)
                self.killed[kind] += 1
                self.left.remove(kind)
                self.due = time.monotonic() + self.random.uniform(*self.pause)
                break


KINDS = ("torchrun", "leader", "follower", "vLLM server", "vLLM engine", "reaper",
         "judge service", "judge worker")  # fmt: skip


def steps_of(stage: Path) -> Iterator[dict[str, float]]:
    """What was recorded of each step of learning, in order."""
    for line in (stage / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "loss" in row:
            yield row


def check(run: Path, steps: int) -> str:
    """Raises AssertionError for anything lost or done twice; otherwise says what was found."""
    rates, counts = [], Counter[str]()
    for stage in ("sft", "grpo"):
        numbers = [int(row["step"]) for row in steps_of(run / stage)]
        assert numbers == [*range(1, len(numbers) + 1)], f"{stage}: steps {numbers}"
    rows = [*steps_of(run / "grpo")]
    assert len(rows) == steps, f"{len(rows)} steps of {steps}"
    files = sorted((run / "grpo" / "rollouts").glob("step_*.parquet"))
    assert [int(file.stem[5:]) for file in files] == [*range(1, steps + 1)], files
    for number, file in enumerate(files, 1):
        table = parquet.read_table(file).to_pylist()
        places = Counter((row["group"], row["index"]) for row in table)
        assert len(places) == len(table), f"step {number}: {places}"
        assert len(table) == GROUPS * SAMPLES, f"step {number}: {len(table)} rollouts"
        assert not [row for row in table if row["failure"]], f"step {number}: failures"
        assert all(row["version"] >= number - 1 - STALENESS for row in table), f"step {number}: old"
        counts.update(row["task_id"] for row in table if row["index"] == 0)
        rates.append(statistics.mean(row["verdict"] == "pass" for row in table))
    assert max(counts.values()) - min(counts.values()) <= 1, "tasks were lost or came twice"
    first, last = statistics.mean(rates[:5]), statistics.mean(rates[-5:])
    assert last > first + 0.1, f"pass rate {first:.3f} to {last:.3f}"
    report = json.loads((run / "report.json").read_text())["evaluations"]
    scores = ", ".join(f"{row['name']} {100 * row['pass_at']['1']:.1f} %" for row in report)
    total = sum(counts.values())
    return (
        f"{steps} steps of {total // steps} groups, {len(counts)} tasks {min(counts.values())} to"
        f" {max(counts.values())} times; pass rate of training {100 * first:.1f} % to"
        f" {100 * last:.1f} %; pass@1 {scores}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of kills; then the run ends")
    parser.add_argument("--pause", type=float, nargs=2, default=(20.0, 60.0), help="in seconds")
    parser.add_argument("--steps", type=int, default=50, help="of GRPO")
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--python", default=".venv-vllm/bin/python", help="with vLLM")
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    options = parser.parse_args()
    if not Path(options.python).exists():
        sys.exit(
            f"{options.python} is not there; `make test-vllm` makes it, --python names another"
        )
    run, services = options.folder.resolve() / "chaos", [Service(), Service()]
    run.parent.mkdir(parents=True, exist_ok=True)
    log = run.parent / "chaos.log"
    log.unlink(missing_ok=True)
    with contextlib.ExitStack() as closing:
        for service in services:
            closing.callback(service.stop)
            service.keep()
        command = [
            str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node", "2",
            "--no-python", str(Path(sys.executable).parent / "assay"), "train", "recipes/demo.toml",
            "--name", run.name, "--folder", str(run.parent), "--save.every", "1",
            "--engine.name", "vllm", "--engine.python", str(Path(options.python).absolute()),
            "--engine.data_parallel", "2", "--rollout.max_staleness", str(STALENESS),
            "--judge.servers", json.dumps([f"http://127.0.0.1:{it.port}" for it in services]),
            "--stages.grpo.steps", str(options.steps), "--evaluate.samples", "2",
            "--stages.sft.evaluate.before", "false",
        ]  # fmt: skip
        job = Job(command, log)
        killer = Killer(job, services, random.Random(options.seed), tuple(options.pause))
        start = time.monotonic()
        killer.due, end = start + 30, start + 60 * options.minutes
        while job.keep():
            for service in services:
                service.keep()
            if time.monotonic() < end:
                killer.kill()
            time.sleep(0.5)
    minutes = (time.monotonic() - start) / 60
    kills = ", ".join(f"{kind} {count}" for kind, count in sorted(killer.killed.items()))
    print(f"killed in {min(minutes, options.minutes):.1f} of {minutes:.1f} minutes: {kills};")
    print(f"the job was started {job.starts} times")
    print(check(run, options.steps))


if __name__ == "__main__":
    main()
