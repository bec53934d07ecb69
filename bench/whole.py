"""A whole step (generate, judge, learn) compared with TRL's GRPOTrainer: same model, prompts,
sampling, stop rule and reward.

    python -m pip install 'trl==1.16.0'          # once; it is not a dependency
    python -m bench.whole
    python -m bench.whole --model FOLDER [--tasks mbpp:train] [--lora] [--apart]

The model is a Llama of 5M parameters with random weights that ends a completion at one token in
110. Every completion continues a program that already returns, and often breaks it; it is judged.
With `--model`, pretrained models in Hugging Face format take steps of 8 prompts x 8 completions of
up to 160 tokens (`--prompts`, `--tokens`) on a task set, asked through their chat template and
ended by their own stop tokens, against TRL's defaults alone. With `--device cuda` both sides are on
one GPU, and with `--vllm` TRL generates with vLLM in its own process (colocated). The reward of
both is the judge's verdict (TRL's through `assay.integrations.trl`) and a small term for length, so
that no group has zero variance and both learn from all completions. Each side is a process of its
own with two threads, TRL's with OpenMP's default, ours with what `assay` sets. In bfloat16 TRL
computes under autocast, and ours is a policy with `policy.dtype = "bfloat16"`. They take their
steps in turns, so that both meet the same load; `--apart` lets one side end before the other
starts, where two models do not fit into memory. Medians. CPU time is that of the process with its
spinning threads, and without the judge's programs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
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
from assay.integrations.trl import Messages, code_reward, text_of
from assay.judge import Judge
from assay.policy.chat import Chat, open_chat
from assay.policy.load_model import load_policy
from assay.policy.tiny import make_tiny
from assay.policy.tokenizer import load_tokenizer
from assay.rewards import Reward, Term
from assay.rollout.attempt import RolloutContext
from assay.rollout.prompter import Prompter
from assay.sync import in_own_thread
from assay.tasks import load
from assay.train.learner import Learner
from assay.train.sources import RolloutSource
from assay.types import Check, Metrics, Rollout, Task, as_dicts
from bench.figures import Figure, add_json, write_figures
from bench.sides import Step, alternate, peaks, ratio, turn
from bench.updates import LORA

TASKS, GROUP = 64, 8
ENDS = 1 / 110
"""Probability of the token that ends a completion."""
STUB = "def f(xs):\n    return xs  # "
SHAPE = {"vocabulary": 2048, "width": 256, "layers": 6, "heads": 8, "context": 1024}
THEIRS: dict[str, dict[str, Any]] = {
    "its defaults in float32": {"bf16": False},
    "its best": {"bf16": False, "gradient_checkpointing": False, "whole": True},
    "its own defaults (bfloat16)": {},
    "vLLM colocated (bfloat16)": {"use_vllm": True, "vllm_mode": "colocate"},
}
"""Settings of TRL's; `whole` puts all rows of a step into one batch instead of batches of eight."""
COLOCATED = "vLLM colocated"


@dataclass(frozen=True)
class Size:
    """Of one step."""

    prompts: int
    tokens: int
    """Most new tokens of a completion."""
    prompt: int = 0
    """Tokens to which prompts are filled with worked examples."""


SIZES = (Size(4, 64), Size(8, 256, 300))


@dataclass(frozen=True)
class Race:
    """Steps of both sides, TRL with one of its settings."""

    folder: str
    """Of the model."""
    size: Size
    setting: str
    tasks: str = ""
    """A task set; empty for drills that the random model continues."""
    lora: bool = False
    micro_batch_tokens: int | None = None
    """Of our learner; None for its default."""
    device: str = "cpu"

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return self.size.prompts * GROUP

    def command(self, side: str, rounds: int) -> list[str]:
        """That of the process of one side."""
        words = [side, json.dumps(asdict(self)), "--rounds", str(rounds)]
        return [sys.executable, "-m", "bench.whole", *words]

    def run(self, rounds: int, apart: bool) -> list[list[Step]]:
        """The steps of both sides."""
        commands = [self.command(side, rounds + 1) for side in ("--ours", "--trl")]
        return alternate(commands, rounds, apart)

    def wait_for_gpu(self) -> None:
        """Return when the device has done what it was given."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def tasks_for(self, chat: Chat) -> list[Task]:
        """Those of both sides."""
        if self.tasks:
            return random.Random(0).sample(load(self.tasks), TASKS)
        return continued(chat, self.size)


def race_of(text: str) -> Race:
    """The one that a process has on its command line."""
    fields = json.loads(text)
    return Race(**fields | {"size": Size(**fields["size"])})


def make_model(folder: Path) -> Path:
    """A model directory. All hidden states agree in one direction, along which the end is made
    likelier.
    """
    path = make_tiny(folder / "model", load("drills:train"), TinySettings(**SHAPE), 0)
    policy = load_policy(PolicySettings(model=str(path), device="cpu"))
    weights = policy.model.get_input_embeddings().weight.data
    end, tokens = policy.chat.end_token, torch.arange(2, 300).unsqueeze(0)
    weights[:, 0] = 0.5
    for _ in range(4):
        with torch.no_grad():
            out = policy.model(tokens, output_hidden_states=True)
        chance, along = (
            out.logits.softmax(-1)[..., end].mean(),
            out.hidden_states[-1][..., 0].mean(),
        )
        weights[end, 0] += ((torch.logit(torch.tensor(ENDS)) - torch.logit(chance)) / along).item()
    policy.save(path)
    return path


def continued(chat: Chat, size: Size) -> list[Task]:
    """Drills of which only the end-of-sequence token ends a completion, behind as many worked
    examples as fit.
    """
    every = load("drills:train")
    result = []
    for place, task in enumerate(every[:TASKS]):
        prompt, others = task.prompt + STUB, iter(every[TASKS + 16 * place :])
        while True:
            other = next(others)
            longer = other.prompt + (other.reference or "") + "\n" + prompt
            if len(Prompter(chat).prompt(replace(task, prompt=longer))) > size.prompt:
                break
            prompt = longer
        result.append(replace(task, prompt=prompt, stub=prompt, stop=()))
    return result


def reward(rollout: Rollout) -> float:
    """The verdict, and a ten-thousandth for each character."""
    return float(rollout.passed) + of_length([], [rollout.turns[-1].completion.text])[0]


def of_length(
    prompts: Sequence[Any], completions: Sequence[str | Messages], **_: Any
) -> list[float]:
    """The same as a function of TRL's."""
    return [len(text_of(completion)) / 10_000 for completion in completions]


class Ours:
    """A run's source and learner, as the loop calls them."""

    def __init__(self, race: Race, judge: Judge) -> None:
        size, dtype = race.size, "float32" if "float32" in race.setting else "bfloat16"
        policy = {"model": race.folder, "device": race.device, "dtype": dtype}
        run: dict[str, Any] = {
            "steps": 1000, "stage": "bench", "algorithm": {"name": "grpo"},
            "optimizer": {"lr": 1e-6}, "tasks": {"train": "drills:train"},
            "policy": policy | ({"lora": {}} if race.lora else {}),
            "rollout": {"tasks_per_step": size.prompts, "group_size": GROUP,
                        "max_tokens": size.tokens},
        }  # fmt: skip
        if race.micro_batch_tokens:
            run["learner"] = {"micro_batch_tokens": race.micro_batch_tokens}
        settings = RunSettings.model_validate(run)
        self.policy = load_policy(settings.policy)
        context = RolloutContext(
            TorchEngine(self.policy),
            judge,
            Prompter(self.policy.chat),
            environments.build({"name": "single_turn"}),
            Reward([Term("whole", reward, 1.0)]),
            Sampling(size.tokens),
            self.policy.context,
        )
        tasks = race.tasks_for(self.policy.chat)
        self.source = RolloutSource(settings, tasks, self.policy, context)
        self.learner = Learner(
            settings, algorithms["grpo"].build(settings.algorithm), self.policy, 1000, 1.0
        )
        self.done = 0

    async def step(self) -> Metrics:
        """One step of the loop."""
        await self.source.publish(self.learner, self.done)
        data = await self.source.next(self.done)
        learned = await in_own_thread(self.learner.step, data.samples, self.done)
        self.done += 1
        return data.metrics | learned


def theirs(race: Race, steps: int, output: str, whole: bool = False, **changes: Any) -> Any:
    """TRL's trainer over the same tasks. It gets the model in float32, as TRL loads it by
    default.
    """
    import trl
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM

    rows = race.rows
    settings = {
        "output_dir": output, "use_cpu": race.device == "cpu", "report_to": [],
        "save_strategy": "no", "max_steps": steps,
        "logging_steps": 10_000, "disable_tqdm": True, "num_generations": GROUP,
        "max_completion_length": race.size.tokens,
        "per_device_train_batch_size": rows if whole else 8,
        "gradient_accumulation_steps": 1 if whole else rows // 8,
    } | changes  # fmt: skip
    tokenizer = load_tokenizer(race.folder, False)
    chat = open_chat(tokenizer, "auto", ())
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(race.folder, dtype=torch.float32),
        reward_funcs=[code_reward(), of_length],
        args=trl.GRPOConfig(**settings),
        train_dataset=Dataset.from_list([row_of(chat, task) for task in race.tasks_for(chat)]),
        processing_class=tokenizer,
        peft_config=LoraConfig(**LORA) if race.lora else None,
    )
    stops = open_chat(tokenizer, "auto", trainer.eos_token_ids).stop_tokens
    assert stops == set(trainer.eos_token_ids), "both sides stop at the same tokens"
    return trainer


def row_of(chat: Chat, task: Task) -> dict[str, Any]:
    """A task as TRL's trainer takes it, with the same tokens as prompt."""
    prompt = Prompter(chat).prompt(task)
    row = {
        "stub": task.stub,
        "tests": [check.source for check in task.checks if isinstance(check, Check)],
        "entry_point": task.entry_point,
        "setup": task.setup,
    }
    if not chat.has_template:
        text = prompts.text(task)
        assert tuple(chat.tokenizer(text)["input_ids"]) == prompt
        return row | {"prompt": text}
    messages = as_dicts(prompts.messages(task))
    encoded = chat.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert tuple(encoded["input_ids"]) == prompt
    return row | {"prompt": messages}


def our_steps(race: Race, steps: int) -> None:
    """The side of this package, with the data type of TRL's side."""

    async def take() -> None:
        async with Judge(stop_early=False) as judge:
            ours = await in_own_thread(Ours, race, judge)
            for _ in range(steps):
                with turn() as numbers:
                    numbers |= await ours.step()
                    race.wait_for_gpu()

    asyncio.run(take())


def their_steps(race: Race, steps: int) -> None:
    """TRL's side."""
    from transformers import TrainerCallback

    step = contextlib.ExitStack()
    now: list[Step] = []

    def begin(*_: Any, **__: Any) -> None:
        now[:] = [step.enter_context(turn())]

    def end(*_: Any, **__: Any) -> None:
        metrics = trainer._metrics["train"]
        now[0]["rollout/length"] = metrics["completions/mean_length"][-1]
        now[0]["reward/pass_rate"] = metrics["rewards/passes_tests/mean"][-1]
        race.wait_for_gpu()
        step.close()

    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(sys.stderr):
        trainer = theirs(race, steps, output, **THEIRS[race.setting])
        trainer.add_callback(
            type("Events", (TrainerCallback,), {"on_step_begin": begin, "on_step_end": end})()
        )
        trainer.train()


def figures_of(name: str, rounds: list[list[Step]], rows: int) -> list[Figure]:
    """Median samples a second of both sides, and the median ratio."""
    rates = [[rows / step["wall"] for step in side] for side in zip(*rounds, strict=True)]
    ratios = [ours / theirs for ours, theirs in zip(*rates, strict=True)]
    return [
        *(
            Figure(f"{name}: {side}", statistics.median(rate), "samples/s")
            for side, rate in zip(("assay", "TRL"), rates, strict=True)
        ),
        Figure(f"{name}: assay / TRL", statistics.median(ratios), "times"),
    ]


def line(rounds: list[list[Step]], rows: int) -> str:
    """Samples a second of both, their ratio with its range, where our time goes, and what shows
    that both did the same.
    """
    ours, theirs = (
        {name: statistics.median(step[name] for step in side) for name in side[0]}
        for side in zip(*rounds, strict=True)
    )
    length, passed = (
        f"{ours[name]:{form}} vs. {theirs[name]:{form}}"
        for name, form in (("rollout/length", ".0f"), ("reward/pass_rate", ".1%"))
    )
    return (
        f"{rows / ours['wall']:.1f} samples/s vs. {rows / theirs['wall']:.1f}:"
        f" {ratio(rounds, 'wall')}, by CPU time {ratio(rounds, 'cpu')}; ours {ours['wall']:.2f} s ="
        f" generate {ours['time/generate']:.2f}, learn {ours['time/learn']:.2f}; mean length"
        f" {length}, passed {passed}; {peaks(rounds)}"
    )


def races_of(arguments: argparse.Namespace, folder: Path) -> Iterator[Race]:
    """Those that the arguments name; the random model is made in a folder."""
    if not arguments.model:
        path = str(make_model(folder))
        for number, setting in itertools.product(arguments.sizes, THEIRS):
            if COLOCATED not in setting:
                yield Race(path, SIZES[number], setting)
    for model, setting in itertools.product(arguments.model or (), THEIRS):
        if "whole" not in THEIRS[setting] and (COLOCATED in setting) == arguments.vllm:
            size = Size(arguments.prompts, arguments.tokens)
            more = (
                arguments.tasks, arguments.lora, arguments.micro_batch_tokens, arguments.device
            )  # fmt: skip
            yield Race(model, size, setting, *more)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", nargs="*", type=int, default=[0, 1], help="which of the sizes")
    parser.add_argument(
        "--model", nargs="+", metavar="FOLDER", help="pretrained models instead of the random one"
    )
    parser.add_argument(
        "--tasks", default="drills:train", help="task set of steps of a pretrained model"
    )
    parser.add_argument("--prompts", type=int, default=8, help="of a step of a pretrained model")
    parser.add_argument("--tokens", type=int, default=160, help="limit of its completions")
    parser.add_argument("--lora", action="store_true", help="train adapters of a pretrained model")
    parser.add_argument("--micro-batch-tokens", type=int, help="of our learner; its default if not")
    parser.add_argument("--apart", action="store_true", help="one side ends, then the other starts")
    parser.add_argument("--device", default="cpu", help="of a pretrained model on both sides")
    parser.add_argument(
        "--vllm", action="store_true", help="TRL generates with vLLM in its process, on a GPU"
    )
    add_json(parser)
    parser.add_argument(
        "--without", nargs="*", default=(), help="words in the names of settings to leave out"
    )
    parser.add_argument("--ours", type=race_of, help=argparse.SUPPRESS)
    parser.add_argument("--trl", type=race_of, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.ours:
        return our_steps(arguments.ours, arguments.rounds)
    if arguments.trl:
        return their_steps(arguments.trl, arguments.rounds)
    print(
        f"load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads, torch"
        f" {torch.__version__}"
    )
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for race in races_of(arguments, Path(folder)):
            if not any(word in race.setting for word in arguments.without):
                rounds = race.run(arguments.rounds, arguments.apart)
                name = f"{Path(race.folder).name}, {race.size}"
                name = f"{name}, TRL with {race.setting}"
                figures += figures_of(name, rounds, race.rows)
                write_figures(arguments.json, figures)
                print(f"{name}: {line(rounds, race.rows)}", flush=True)
    return None


if __name__ == "__main__":
    main()
