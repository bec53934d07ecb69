"""A whole step (generate, judge, learn) compared with TRL's GRPOTrainer: same model, prompts,
sampling, stop rule and reward.

    python -m pip install 'trl==1.16.0'          # once; it is not a dependency
    python -m bench.whole

The model is a Llama of 5M parameters with random weights that ends a completion at one token in
110. Every completion continues a program that already returns, and often breaks it; it is judged.
The reward of both is the judge's verdict (TRL's through `assay.integrations.trl`) and a small term
for length, so that no group has zero variance and both learn from all completions. Each side is a
process of its own with two threads, TRL's with OpenMP's default, ours with what `assay` sets. In
bfloat16 TRL computes under autocast, and ours is a policy with `policy.dtype = "bfloat16"`. They
take their steps in turns, so that both meet the same load. Medians. CPU time is that of the
process with its spinning threads, and without the judge's programs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.tuning import tune

os.environ.update(tune() if "--ours" in sys.argv else {})

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
from assay.rewards import Reward, Term
from assay.rollout.attempt import RolloutContext
from assay.rollout.prompter import Prompter
from assay.sync import in_own_thread
from assay.tasks import load
from assay.train.learner import Learner
from assay.train.sources import RolloutSource
from assay.types import Check, Metrics, Rollout, Task
from bench.sides import Step, alternate, ratio, turn

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
    """A model directory. All hidden states agree in one direction, along which the end is made
    likelier.
    """
    made = make_tiny(folder / "model", load("drills:train"), TinySettings(**SHAPE), 0)
    policy = load_policy(PolicySettings(model=str(made), device="cpu"))
    weights = policy.model.get_input_embeddings().weight.data
    end, tokens = policy.chat.end_token, torch.arange(2, 300).unsqueeze(0)
    weights[:, 0] = 0.5
    for _ in range(4):
        with torch.no_grad():
            out = policy.model(tokens, output_hidden_states=True)
        found, along = out.logits.softmax(-1)[..., end].mean(), out.hidden_states[-1][..., 0].mean()
        weights[end, 0] += ((torch.logit(torch.tensor(ENDS)) - torch.logit(found)) / along).item()
    policy.save(made)
    return made


def tasks(policy: Policy, size: Size) -> list[Task]:
    """Drills of which only the end-of-sequence token ends a completion, behind as many worked
    examples as fit.
    """
    every = load("drills:train")
    found = []
    for place, task in enumerate(every[:TASKS]):
        shown, others = task.prompt + STUB, iter(every[TASKS + 16 * place :])
        while True:
            other = next(others)
            longer = other.prompt + (other.reference or "") + "\n" + shown
            if len(Prompter(policy.chat).prompt(replace(task, prompt=longer))) > size.prompt:
                break
            shown = longer
        found.append(replace(task, prompt=shown, stub=shown, stop=()))
    return found


def reward(rollout: Rollout) -> float:
    """The verdict, and a ten-thousandth for each character."""
    return float(rollout.passed) + of_length([], [rollout.turns[-1].completion.text])[0]


def of_length(prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
    """The same as a function of TRL's."""
    return [len(text) / 10_000 for text in completions]


class Ours:
    """A run's source and learner, as the loop calls them."""

    def __init__(self, folder: Path, size: Size, judge: Judge, name: str) -> None:
        dtype = "bfloat16" if "bfloat16" in name else "float32"
        given = {"model": str(folder), "device": "cpu", "dtype": dtype}
        self.policy = load_policy(PolicySettings.model_validate(given))
        run = {
            "steps": 1000, "stage": "bench", "algorithm": {"name": "grpo"},
            "optimizer": {"lr": 1e-6},
            "tasks": {"train": "drills:train"},
            "rollout": {"tasks_per_step": size.prompts, "group_size": GROUP,
                        "max_tokens": size.tokens},
        }  # fmt: skip
        settings = RunSettings.model_validate(run)
        talk = environments.build({"name": "single_turn"})
        sampling = Sampling(size.tokens)
        context = RolloutContext(
            TorchEngine(self.policy),
            judge,
            Prompter(self.policy.chat),
            talk,
            Reward([Term("whole", reward, 1.0)]),
            sampling,
            self.policy.context,
        )
        self.tasks = tasks(self.policy, size)
        self.source = RolloutSource(settings, self.tasks, self.policy, context)
        self.learner = Learner(
            settings, algorithms["grpo"].build(settings.algorithm), self.policy, 1000, 1.0
        )
        self.done = 0

    async def step(self) -> Metrics:
        """One step of the loop."""
        await self.source.publish(self.learner, self.done)
        seen = await self.source.next(self.done)
        learned = await in_own_thread(self.learner.step, seen.samples, self.done)
        self.done += 1
        return seen.metrics | learned


def theirs(
    folder: Path,
    size: Size,
    policy: Policy,
    steps: int,
    output: str,
    whole: bool = False,
    **changes: Any,
) -> Any:
    """TRL's trainer over the same tasks."""
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rows = size.prompts * GROUP
    settings = {
        "output_dir": output, "use_cpu": True, "report_to": [], "save_strategy": "no",
        "max_steps": steps,
        "logging_steps": 10_000, "disable_tqdm": True, "num_generations": GROUP,
        "max_completion_length": size.tokens,
        "per_device_train_batch_size": rows if whole else 8,
        "gradient_accumulation_steps": 1 if whole else rows // 8,
    } | changes  # fmt: skip
    tokenizer, given = AutoTokenizer.from_pretrained(folder), tasks(policy, size)
    asked = [
        {
            "prompt": prompts.text(task),
            "stub": task.stub,
            "tests": [check.source for check in task.checks if isinstance(check, Check)],
            "entry_point": task.entry_point,
        }
        for task in given
    ]
    for row, task in zip(asked, given, strict=True):
        assert tuple(tokenizer(row["prompt"])["input_ids"]) == Prompter(policy.chat).prompt(task)
    return trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        reward_funcs=[code_reward(), of_length],
        args=trl.GRPOConfig(**settings),
        train_dataset=Dataset.from_list(asked),
        processing_class=tokenizer,
    )


def our_steps(folder: Path, size: Size, steps: int, name: str) -> None:
    """The side of this package, with the data type of TRL's side."""

    async def take() -> None:
        async with Judge(stop_early=False) as judge:
            ours = await in_own_thread(Ours, folder, size, judge, name)
            for _ in range(steps):
                with turn() as found:
                    found |= await ours.step()

    asyncio.run(take())


def their_steps(folder: Path, size: Size, steps: int, name: str) -> None:
    """TRL's side."""
    from transformers import TrainerCallback

    policy = load_policy(PolicySettings(model=str(folder), device="cpu"))
    step = contextlib.ExitStack()

    def begin(*_: Any, **__: Any) -> None:
        step.enter_context(turn())

    def end(*_: Any, **__: Any) -> None:
        step.close()

    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(sys.stderr):
        trainer = theirs(folder, size, policy, steps, output, **THEIRS[name])
        trainer.add_callback(
            type("Events", (TrainerCallback,), {"on_step_begin": begin, "on_step_end": end})()
        )
        trainer.train()


def race(folder: Path, number: int, name: str, rounds: int) -> str:
    """Our steps, and one of theirs after each."""
    common = [sys.executable, "-m", "bench.whole", "--folder", str(folder), "--sizes", str(number)]
    common += ["--rounds", str(rounds + 1)]
    found = alternate([[*common, side, name] for side in ("--ours", "--trl")], rounds)
    return line(found, SIZES[number].prompts * GROUP)


def line(found: list[list[Step]], rows: int) -> str:
    """Samples a second of both, their ratio with its range, and where our time goes."""
    rates = [
        rows / statistics.median(step["wall"] for step in side) for side in zip(*found, strict=True)
    ]
    names = "wall", "time/generate", "time/learn", "rollout/length"
    middle = {name: statistics.median(ours[name] for ours, _ in found) for name in names}
    return (
        f"{rates[0]:.1f} samples/s vs. {rates[1]:.1f}: {ratio(found, 'wall')}, by CPU time"
        f" {ratio(found, 'cpu')}; ours {middle['wall']:.2f} s = generate"
        f" {middle['time/generate']:.2f}, learn {middle['time/learn']:.2f}; mean length"
        f" {middle['rollout/length']:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", nargs="*", type=int, default=[0, 1], help="which of the sizes")
    parser.add_argument(
        "--without", nargs="*", default=(), help="words in the names of settings to leave out"
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ours", help=argparse.SUPPRESS)
    parser.add_argument("--trl", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(2)
    if given.ours:
        return our_steps(given.folder, SIZES[given.sizes[0]], given.rounds, given.ours)
    if given.trl:
        return their_steps(given.folder, SIZES[given.sizes[0]], given.rounds, given.trl)
    print(
        f"load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads, torch"
        f" {torch.__version__}"
    )
    with tempfile.TemporaryDirectory() as kept:
        folder = make_model(Path(kept))
        for number in given.sizes:
            for name in THEIRS:
                if not any(word in name for word in given.without):
                    print(
                        f"{SIZES[number]}, TRL with {name}:"
                        f" {race(folder, number, name, given.rounds)}",
                        flush=True,
                    )
    return None


if __name__ == "__main__":
    main()
