"""Steps an hour of a run that is one version behind, and of a synchronous one, where generation
takes as long as learning.

    python -m bench.lag                         # the engine only waits before it answers
    python -m bench.lag --vllm DIR/bin/python   # a vLLM server on one core, the run on the other
    python -m bench.lag --vllm DIR/bin/python --cores     # neither is pinned: both share a GPU

The learner and the judge are real in both: 32 drills x 8 answers, a GRPO step of the demo's policy.
The wait is as long as the learner's last step. With a server, a policy of 15M parameters learns
for two epochs, which takes about as long as generating. Runs alternate; the first two steps of each
are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.tuning import tune

os.environ.update(tune())

import torch

from assay import environments, rewards
from assay.algorithms import algorithms
from assay.config.sections import PolicySettings, RunSettings, TinySettings
from assay.engines.base import GenerationRequest, Sampling
from assay.judge import Judge
from assay.policy.load_model import Policy, load_policy
from assay.policy.tiny import make_tiny
from assay.rollout.attempt import RolloutContext
from assay.rollout.prompter import Prompter
from assay.sync import in_own_thread
from assay.tasks import load
from assay.train.learner import Learner
from assay.train.sources import RolloutSource
from assay.types import Completion, Metrics, Task
from bench.figures import Figure, add_json, write_figures

PROMPTS, GROUP = 32, 8
SHAPE = TinySettings(width=384, layers=8, heads=6)


class Clock:
    """An engine that answers each request with one of its task's demonstrations, after `seconds`
    spread by a fifth.
    """

    tokens_generated = 0
    max_concurrent = PROMPTS * GROUP

    def __init__(self, policy: Policy, tasks: list[Task], seconds: float) -> None:
        self.seconds = seconds
        self.version = 0
        self.metrics: Metrics = {}
        self.answers = {
            Prompter(policy.chat).prompt(task): [
                sample.tokens[len(Prompter(policy.chat).prompt(task)) :]
                for sample in Prompter(policy.chat).samples(task)
            ]
            for task in tasks
        }
        self.chat = policy.chat

    async def load(self, policy: Any, version: int) -> None:
        """What is under way goes on."""
        self.version = version

    async def generate(self, request: GenerationRequest, sampling: Sampling) -> Completion:
        """A demonstration, right or wrong."""
        draw, version = random.Random(request.seed), self.version
        tokens = tuple(draw.choice(self.answers[request.prompt]))
        await asyncio.sleep(self.seconds * draw.uniform(0.8, 1.0))
        versions = (version,) * len(tokens)
        return Completion(self.chat.text(tokens), tokens, (-1.0,) * len(tokens), "stop", versions)


class Clocked:
    """A run over the clock; `lag` is 0 or 1."""

    def __init__(self, model: Path, lag: int, judge: Judge) -> None:
        table = {
            "steps": 1000, "stage": "bench", "algorithm": {"name": "grpo"},
            "optimizer": {"lr": 1e-6},
            "tasks": {"train": "drills:train"},
            "rollout": {"max_staleness": lag, "tasks_per_step": PROMPTS, "group_size": GROUP,
                        "max_tokens": 96},
        }  # fmt: skip
        settings = RunSettings.model_validate(table)
        tasks = [replace(task, stop=()) for task in load("drills:train")]
        policy = self.policy = load_policy(PolicySettings(model=str(model), device="cpu"))
        self.engine = Clock(policy, tasks, 1.0)
        talk, reward = (
            environments.build({"name": "single_turn"}),
            rewards.build({"tests": {}, "length": {}}),
        )
        context = RolloutContext(
            self.engine, judge, Prompter(policy.chat), talk, reward, Sampling(96), policy.context
        )
        self.source = RolloutSource(settings, tasks, policy, context)
        self.learner = Learner(
            settings, algorithms["grpo"].build(settings.algorithm), policy, 1000, 1.0
        )
        self.numbers = itertools.count()

    async def step(self) -> Metrics:
        """One step, as the loop does it; what it took in `seconds`."""
        start, number = time.perf_counter(), next(self.numbers)
        await self.source.publish(self.learner, number)
        data = await self.source.next(number)
        learned = await in_own_thread(self.learner.step, data.samples, number)
        self.engine.seconds = learned["time/learn"]
        return data.metrics | learned | {"seconds": time.perf_counter() - start}


async def by_the_clock(rounds: int, steps: int) -> None:
    """Print steps an hour of both."""
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny(Path(folder) / "model", load("drills:train"), TinySettings(), 0)
        async with Judge(stop_early=False) as judge:
            ratios = []
            for _ in range(rounds):
                rates = {}
                for lag in (0, 1):
                    run = Clocked(model, lag, judge)
                    metrics = [await run.step() for _ in range(steps + 2)][2:]
                    await run.source.close()
                    mean = {
                        name: statistics.mean(row.get(name, 0.0) for row in metrics)
                        for name in (
                            "seconds",
                            "time/learn",
                            "time/wait",
                            "time/judge",
                            "staleness/mean",
                        )
                    }
                    rates[lag] = mean["seconds"]
                    print(
                        f"lag {lag}: {3600 / mean['seconds']:.0f} steps an hour, means of",
                        mean,
                        flush=True,
                    )
                ratios.append(rates[0] / rates[1])
            factor = (
                f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
            )
            print(f"one version behind: {factor} the steps an hour")


SERVED = """
name = "lag{lag}"
folder = "{folder}"
algorithm = {{ name = "grpo", epochs = 2 }}
stage = "grpo"
steps = {steps}
tasks.train = "drills:train"
optimizer.lr = 1e-6
rollout.max_staleness = {lag}
rollout.tasks_per_step = 32
rollout.group_size = {group}
rollout.max_tokens = {tokens}
engine = {{ name = "vllm", python = "{python}", arguments = {arguments} }}
[policy]
model = "{model}"
[rewards]
tests = {{}}
length = {{ alpha = 0.3, on_failure = true }}
"""


def by_a_server(arguments: argparse.Namespace) -> None:
    """Print steps an hour of both: the server has the first core, the run the second."""
    pins = [f"taskset -c {core} " for core in arguments.cores] or ["", ""]
    shared_gpu = ["--gpu-memory-utilization", "0.5"] if torch.cuda.is_available() else []
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or make_tiny(Path(folder) / "model", load("drills:train"), SHAPE, 0)
        python = Path(folder) / "python"
        python.write_text(f'#!/bin/sh\nexec {pins[0]}{arguments.vllm} "$@"\n')
        python.chmod(0o755)
        pinned = {"VLLM_CPU_OMP_THREADS_BIND": arguments.cores[0], "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **(pinned if arguments.cores else {})}
        for number, lag in itertools.product(range(arguments.rounds), (0, 1)):
            file = Path(folder) / f"lag{lag}.toml"
            shape = {
                "lag": lag,
                "folder": folder,
                "steps": arguments.steps + 2,
                "group": arguments.group,
                "tokens": arguments.tokens,
                "arguments": json.dumps(shared_gpu),
            }
            file.write_text(SERVED.format(**shape, python=python, model=model))
            command = [
                *pins[1].split(), sys.executable, "-m", "assay", "train", str(file), "--fresh",
            ]  # fmt: skip
            subprocess.run(command, env=environment, check=True)
            lines = (Path(folder) / f"lag{lag}/grpo/metrics.jsonl").read_text().splitlines()
            rows = [row for line in lines if "loss" in (row := json.loads(line))][2:]
            names = ("time/generate", "time/learn", "time/sync", "time/wait")
            writing, learning, syncing, waiting = (
                statistics.mean(row[name] for row in rows) for name in names
            )
            seconds = learning + syncing + waiting
            figures.append(
                Figure(f"round {number + 1}, {lag} versions behind", 3600 / seconds, "steps/hour")
            )
            write_figures(arguments.json, figures)
            print(
                f"round {number}, lag {lag}: {3600 / seconds:.0f} steps an hour, {seconds:.1f} s ="
                f" learning {learning:.1f}, syncing {syncing:.1f}, waiting {waiting:.1f}; writing"
                f" {writing:.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument(
        "--vllm", metavar="PYTHON", help="interpreter of an environment that has vllm"
    )
    parser.add_argument(
        "--cores", nargs="*", default=("0", "1"), help="of the server, and of the run; none: free"
    )
    parser.add_argument("--model", help="a model directory; else one with random weights")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    add_json(parser)  # with --vllm
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.vllm:
        by_a_server(arguments)
    else:
        asyncio.run(by_the_clock(arguments.rounds, arguments.steps))


if __name__ == "__main__":
    main()
