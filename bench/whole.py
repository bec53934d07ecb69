"""A whole step (generate, judge, learn) beside TRL's GRPOTrainer: same model, prompts, sampling, stop rule and reward.

    python -m pip install 'trl==1.16.0'          # once; it is not a dependency
    python -m bench.whole

A Llama of 5M parameters with random weights, but that it ends a completion at one token in 110. Every completion is
judged: it goes on a program that already returns, and often breaks it. The reward of both is the judge's verdict, TRL's
through `assay.integrations.trl`, and a little for length, so that no group is flat and both learn from all they wrote.
Each of TRL's steps is followed by one of ours, so that both meet the same load; two threads, medians.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from assay import environments, prompts
from assay.algorithms import algorithms
from assay.config.sections import PolicySettings, RunSettings, TinySettings
from assay.engines.base import Sampling
from assay.engines.torch import TorchEngine
from assay.integrations.trl import code_reward
from assay.judge import Judge
from assay.policy.load import Policy, load_policy
from assay.policy.tiny import make_tiny
from assay.rollout.attempt import Means
from assay.tasks import load
from assay.train.learner import Learner
from assay.train.sources import RolloutSource
from assay.types import Check, Metrics, Rollout, Score, Task

TASKS, GROUP = 64, 8
ENDS = 1 / 110
"""Probability of the token that ends a completion."""
STUB = "def f(xs):\n    return xs  # "
SHAPE = {"vocabulary": 2048, "width": 256, "layers": 6, "heads": 8, "context": 1024}
THEIRS: dict[str, dict[str, Any]] = {
    "its defaults in float32": {"bf16": False},
    "its best": {"bf16": False, "gradient_checkpointing": False, "whole": True},
    "its own defaults (bfloat16)": {},
}
"""Settings of TRL's; `whole` puts all rows of a step into one batch instead of batches of eight."""


@dataclass(frozen=True)
class Size:
    """Of one step."""

    prompts: int
    tokens: int
    """Most new tokens of a completion."""
    prompt: int = 0
    """Tokens to which prompts are filled with worked examples."""


SIZES = (Size(4, 64), Size(8, 256, 300))


def make_model(folder: Path) -> Path:
    """A model directory. All hidden states agree in one direction, along which the end is made likelier."""
    made = make_tiny(folder / "model", load("drills:train"), TinySettings(**SHAPE), 0)
    policy = load_policy(PolicySettings(model=str(made), device="cpu"))
    weights = policy.model.get_input_embeddings().weight.data
    end, tokens = policy.chat.end_token, torch.arange(2, 300).unsqueeze(0)
    weights[:, 0] = 1.0
    for _ in range(4):
        with torch.no_grad():
            out = policy.model(tokens, output_hidden_states=True)
        found, along = out.logits.softmax(-1)[..., end].mean(), out.hidden_states[-1][..., 0].mean()
        weights[end, 0] += ((torch.logit(torch.tensor(ENDS)) - torch.logit(found)) / along).item()
    policy.save(made)
    return made


def tasks(policy: Policy, size: Size) -> list[Task]:
    """Drills of which only the end-of-sequence token ends a completion, behind as many worked examples as fit."""
    every = load("drills:train")
    found = []
    for place, task in enumerate(every[:TASKS]):
        shown, others = task.prompt + STUB, iter(every[TASKS + 16 * place :])
        while True:
            other = next(others)
            longer = other.prompt + (other.reference or "") + "\n" + shown
            if len(policy.chat.prompt(replace(task, prompt=longer))) > size.prompt:
                break
            shown = longer
        found.append(replace(task, prompt=shown, stub=shown, stop=()))
    return found


def reward(rollout: Rollout) -> Score:
    """The verdict, and a ten-thousandth for each character."""
    return Score(float(rollout.passed) + of_length([], [rollout.turns[-1].completion.text])[0])


def of_length(prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
    """The same as a function of TRL's."""
    return [len(text) / 10_000 for text in completions]


class Ours:
    """A run's source and learner, as the loop calls them."""

    def __init__(self, folder: Path, size: Size, judge: Judge) -> None:
        self.policy = load_policy(PolicySettings(model=str(folder), device="cpu"))
        given = {
            "steps": 1000, "stage": "bench", "algorithm": {"name": "grpo"}, "optimizer": {"lr": 1e-6},
            "tasks": {"train": "drills:train"},
            "rollout": {"tasks_per_step": size.prompts, "group": GROUP, "max_tokens": size.tokens},
        }  # fmt: skip
        settings = RunSettings.model_validate(given)
        talk = environments.build({"name": "single_turn"})
        sampling = Sampling(size.tokens)
        means = Means(TorchEngine(self.policy), judge, self.policy.chat, talk, reward, sampling, self.policy.context)
        self.tasks = tasks(self.policy, size)
        self.source = RolloutSource(settings, self.tasks, self.policy, means)
        self.learner = Learner(settings, algorithms["grpo"].build(settings.algorithm), self.policy, 1000, 1.0)
        self.done = 0

    async def step(self) -> Metrics:
        """One step of the loop."""
        await self.source.publish(self.policy, self.done)
        seen = await self.source.next(self.done)
        learned = await asyncio.to_thread(self.learner.step, seen.samples, self.done)
        self.done += 1
        return seen.metrics | learned


def theirs(folder: Path, size: Size, ours: Ours, steps: int, output: str, whole: bool = False, **changes: Any) -> Any:
    """TRL's trainer over the same tasks."""
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rows = size.prompts * GROUP
    settings = {
        "output_dir": output, "use_cpu": True, "report_to": [], "save_strategy": "no", "max_steps": steps,
        "logging_steps": 10_000, "disable_tqdm": True, "num_generations": GROUP, "max_completion_length": size.tokens,
        "per_device_train_batch_size": rows if whole else 8, "gradient_accumulation_steps": 1 if whole else rows // 8,
    } | changes  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked = [
        {
            "prompt": prompts.text(task),
            "stub": task.stub,
            "tests": [check.source for check in task.checks if isinstance(check, Check)],
            "entry_point": task.entry_point,
        }
        for task in ours.tasks
    ]
    for row, task in zip(asked, ours.tasks, strict=True):
        assert tuple(tokenizer(row["prompt"])["input_ids"]) == ours.policy.chat.prompt(task)
    return trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=[code_reward(), of_length],
        args=trl.GRPOConfig(**settings),
        train_dataset=Dataset.from_list(asked),
        processing_class=tokenizer,
    )


@dataclass(frozen=True)
class Seconds:
    """Of one step."""

    wall: float
    own: float
    """Of the process's own time, which other work disturbs less; the judge's processes are not in it."""


def since(start: Seconds | None = None) -> Seconds:
    """The time from `start`, or the clocks as they stand."""
    start = start or Seconds(0.0, 0.0)
    return Seconds(time.perf_counter() - start.wall, time.process_time() - start.own)


def race(folder: Path, size: Size, rounds: int, judge: Judge, runner: asyncio.Runner, **changes: Any) -> Race:
    """Their steps, and one of ours after each; the first is left out."""
    from transformers import TrainerCallback

    ours, found, begun = Ours(folder, size, judge), Race([], [], []), [since()]

    def begin(*_: Any, **__: Any) -> None:
        begun[0] = since()

    def end(*_: Any, **__: Any) -> None:
        found.theirs.append(since(begun[0]))
        start = since()
        found.told.append(runner.run(ours.step()))
        found.ours.append(since(start))

    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(sys.stderr):
        trainer = theirs(folder, size, ours, rounds + 1, output, **changes)
        trainer.add_callback(type("Events", (TrainerCallback,), {"on_step_begin": begin, "on_step_end": end})())
        trainer.train()
    return Race(found.theirs[1:], found.ours[1:], found.told[1:])


@dataclass(frozen=True)
class Race:
    """Seconds of each step, and our numbers."""

    theirs: list[Seconds]
    ours: list[Seconds]
    told: list[Metrics]

    def line(self, rows: int) -> str:
        """Samples a second of both, their ratio with its range, and where our time goes."""
        rates = [rows / statistics.median(one.wall for one in them) for them in (self.ours, self.theirs)]
        parts = [statistics.median(told[name] for told in self.told) for name in ("time/generate", "time/learn")]
        return (
            f"{rates[0]:.1f} samples/s beside {rates[1]:.1f}: {self.ratio('wall')}, by CPU time {self.ratio('own')}; "
            f"ours {rows / rates[0]:.2f} s = generate {parts[0]:.2f}, learn {parts[1]:.2f}; mean length "
            f"{statistics.mean(told['rollout/length'] for told in self.told):.0f}"
        )

    def ratio(self, clock: str) -> str:
        """How many times as long theirs takes: the median, and the range."""
        found = [getattr(t, clock) / getattr(o, clock) for t, o in zip(self.theirs, self.ours, strict=True)]
        return f"**{statistics.median(found):.2f}** times ({min(found):.2f} to {max(found):.2f})"


@contextlib.contextmanager
def judging(runner: asyncio.Runner) -> Iterator[Judge]:
    """A judge in the runner's loop."""
    judge = runner.run(Judge(stop_early=False).__aenter__())
    try:
        yield judge
    finally:
        runner.run(judge.__aexit__())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", nargs="*", type=int, default=[0, 1], help="which of the sizes")
    parser.add_argument("--without", nargs="*", default=(), help="words in the names of settings to leave out")
    given = parser.parse_args()
    torch.set_num_threads(2)
    print(f"load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as kept, asyncio.Runner() as runner, judging(runner) as judge:
        folder = make_model(Path(kept))
        for size in (SIZES[number] for number in given.sizes):
            for name, changes in THEIRS.items():
                if not any(word in name for word in given.without):
                    found = race(folder, size, given.rounds, judge, runner, **changes)
                    print(f"{size}, TRL with {name}: {found.line(size.prompts * GROUP)}", flush=True)


if __name__ == "__main__":
    main()
