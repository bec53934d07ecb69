"""One update (forward, backward, optimizer) compared with TRL's GRPOTrainer, on the same rollouts
of the same model.

    python -m pip install 'trl==1.16.0'                  # once; it is not a dependency
    python -m bench.step [--size small large]            # two CPU threads; PROMPT=150: prompts
    python -m bench.step --levers [--dry]                # one GPU, 1.3B parameters; --dry: on a CPU

First the gradients are compared, then tokens a second, then memory. TRL's trainer runs its own
`train()`; only its generation is replaced, by the rollouts. Each side is a process of its own,
TRL's with the defaults of OpenMP and glibc, ours with what `assay` sets. They take their updates in
turns, so both meet the same load, and medians count. Both start from the same weights, in float32
unless the row says bfloat16: then TRL computes under autocast, and ours is a policy with
`policy.dtype = "bfloat16"`. Memory is the peak of one step above model and optimizer.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.tuning import tune

os.environ.update(tune() if {"assay", "--levers"} & set(sys.argv) else {})

import torch

from assay.algorithms import algorithms
from assay.config.sections import RunSettings
from assay.policy.load import Policy
from assay.train.learner import Learner
from assay.types import Sample
from bench.sides import Step, alternate, ratio, turn
from bench.sizes import SIZES, Size, SizeName, add_arguments, table

OURS = "assay"
"""The side of this package; a process without it in its command keeps OpenMP's default."""
PROMPT = int(os.environ.get("PROMPT", "300"))
"""Tokens of each prompt; a variable, since each size runs in processes of its own."""
LORA = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
THEIRS: dict[str, dict[str, Any]] = {
    "TRL, its defaults in float32": {"bf16": False},
    "TRL, its defaults (bfloat16)": {},
    "TRL without checkpointing": {"bf16": False, "gradient_checkpointing": False},
    "TRL without checkpointing, whole step at once": {
        "bf16": False,
        "gradient_checkpointing": False,
        "whole": True,
    },
    "TRL without checkpointing, bfloat16": {"gradient_checkpointing": False},
}
"""TRL's settings; `whole` puts all rows of a step into one batch instead of eight."""
FLOAT32 = [name for name, changes in THEIRS.items() if "bf16" in changes and "whole" not in changes]
"""The settings that are measured at the large size."""


def make(size: Size, lora: bool, dtype: torch.dtype = torch.float32) -> Any:
    """The model of a size, the same at each call; with adapters that count."""
    from peft import LoraConfig, get_peft_model

    model = size.model().to(dtype)
    if not lora:
        return model
    model = get_peft_model(model, LoraConfig(**LORA))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def rollouts(tasks: int, size: Size) -> list[Sample]:
    """Groups of eight, half of them right."""
    draw = torch.Generator().manual_seed(1)
    samples = []
    for task in range(tasks):
        prompt = torch.randint(1, size.vocabulary, (PROMPT,), generator=draw).tolist()
        for number, length in enumerate(size.lengths):
            tokens = prompt + torch.randint(1, size.vocabulary, (length,), generator=draw).tolist()
            mask = (False,) * PROMPT + (True,) * length
            logprobs = tuple(-7.6 if trained else 0.0 for trained in mask)
            samples.append(
                Sample(tuple(tokens), mask, logprobs=logprobs, reward=number % 2, group=str(task))
            )
    return samples


class Ours:
    """The learner with GRPO, as in a run."""

    def __init__(self, model: Any, samples: Sequence[Sample], **changes: Any) -> None:
        # The rollouts' log-probabilities are invented.
        algorithm = {"name": "grpo", "importance_sampling": "none"}
        given = {"steps": 1000, "stage": "bench", "algorithm": algorithm, "optimizer": {"lr": 1e-6}}
        settings = RunSettings.model_validate(given | {"tasks": {"train": "none"}} | changes)
        chat: Any = None
        policy = Policy(model, chat, next(model.parameters()).device, 0)
        self.learner = Learner(
            settings, algorithms["grpo"].build(settings.algorithm), policy, 1000, 1.0
        )
        self.samples = samples
        self.done = 0

    def update(self) -> None:
        """One step of learning."""
        self.learner.step(self.samples, self.done)
        self.done += 1

    def gradients(self) -> dict[str, torch.Tensor]:
        """Those of the first step, before clipping; no parameter changes."""
        kept: dict[str, torch.Tensor] = {}
        optimizer = self.learner.optimizer

        def keep(step: int) -> float:
            kept.update(
                {n: p.grad.clone() for n, p in optimizer.parameters.items() if p.grad is not None}
            )
            optimizer.adamw.zero_grad()
            return 0.0

        optimizer.step, usual = keep, optimizer.step  # type: ignore[method-assign]
        self.learner.step(self.samples, 0)
        optimizer.step = usual  # type: ignore[method-assign]
        return kept

    def advantages(self) -> list[float]:
        """One for each sample."""
        return [
            max(one.advantages, key=abs)
            for one in self.learner.algorithm.compute_advantages(self.samples)
        ]


class Theirs:
    """TRL's trainer; it gets the rollouts instead of generating them."""

    def __init__(
        self, model: Any, ours: Ours, steps: int, whole: bool = False, **changes: Any
    ) -> None:
        import trl
        from datasets import Dataset

        self.folder = tempfile.TemporaryDirectory()
        settings = {
            "output_dir": self.folder.name, "use_cpu": True, "report_to": [], "save_strategy": "no",
            "max_steps": steps,
            "logging_steps": 10_000, "disable_tqdm": True, "num_generations": 8,
            "max_completion_length": max(len(sample.tokens) for sample in ours.samples) - PROMPT,
            "per_device_train_batch_size": len(ours.samples) if whole else 8,
            "gradient_accumulation_steps": 1 if whole else len(ours.samples) // 8,
        } | changes  # fmt: skip
        self.trainer = trl.GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=trl.GRPOConfig(**settings),
            train_dataset=Dataset.from_list([{"prompt": "x"}] * len(ours.samples)),
            processing_class=_tokenizer(),
        )
        batch = _padded(ours.samples, ours.advantages())
        self.trainer._generate_and_score_completions = lambda inputs: dict(batch)

    def train(self, **events: Callable[[], None]) -> None:
        """Run its training loop; `events` are names of transformers' callbacks."""
        from transformers import TrainerCallback

        def calling(what: Callable[[], None]) -> Callable[..., None]:
            return lambda self, args, state, control, **given: what()

        self.trainer.add_callback(
            type("Events", (TrainerCallback,), {k: calling(v) for k, v in events.items()})()
        )
        with contextlib.redirect_stdout(sys.stderr):
            self.trainer.train()

    def gradients(self) -> dict[str, torch.Tensor]:
        """Those of its first step."""
        kept: dict[str, torch.Tensor] = {}

        def keep() -> None:
            found = self.trainer.model.named_parameters()
            kept.update(
                {n: p.grad.clone() for n, p in found if p.grad is not None} if not kept else {}
            )

        self.train(on_pre_optimizer_step=keep)
        return kept


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1, "x": 2}, unk_token="x"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")


def _padded(samples: Sequence[Sample], advantages: Sequence[float]) -> dict[str, torch.Tensor]:
    """What TRL's `_generate_and_score_completions` returns: the whole step padded to its longest
    completion.
    """
    completions = [torch.tensor(sample.tokens[PROMPT:]) for sample in samples]
    return {
        "prompt_ids": torch.tensor([sample.tokens[:PROMPT] for sample in samples]),
        "prompt_mask": torch.ones(len(samples), PROMPT, dtype=torch.int64),
        "completion_ids": torch.nn.utils.rnn.pad_sequence(completions, batch_first=True),
        "completion_mask": torch.nn.utils.rnn.pad_sequence(
            [torch.ones_like(c) for c in completions], batch_first=True
        ),
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": torch.tensor(sum(map(len, completions))),
    }


def compare(lora: bool, tasks: int, size: Size) -> float:
    """The largest difference of a gradient, as a share of the largest gradient."""
    ours = Ours(make(size, lora), rollouts(tasks, size))
    theirs = Theirs(make(size, lora), ours, 1, bf16=False, max_grad_norm=0.0).gradients()
    found = ours.gradients()
    assert found.keys() == theirs.keys()
    largest = max(float(slope.abs().max()) for slope in theirs.values())
    return max(float((found[name] - slope).abs().max()) for name, slope in theirs.items()) / largest


def take_turns(who: str, setting: str, lora: bool, tasks: int, size: Size, rounds: int) -> None:
    """The updates of one side, in this process."""
    changes = THEIRS[setting]
    dtype = torch.bfloat16 if changes.get("bf16", True) else torch.float32
    ours = Ours(make(size, lora, dtype), rollouts(tasks, size))
    if who == OURS:
        for _ in range(rounds):
            with turn():
                ours.update()
        return
    step = contextlib.ExitStack()

    def begin() -> None:
        step.enter_context(turn())

    Theirs(make(size, lora), ours, rounds, **changes).train(
        on_step_begin=begin, on_step_end=step.close
    )


def race(setting: str, lora: bool, tasks: int, size: SizeName, rounds: int) -> list[list[Step]]:
    """Our updates and TRL's, both in bfloat16 unless `setting` switches it off."""
    command = [sys.executable, "-m", "bench.step", "--size", size, "--setting", setting]
    command += ["--tasks", str(tasks), "--rounds", str(rounds + 1), *(["--lora"] if lora else [])]
    return alternate([[*command, "--side", who] for who in (OURS, "TRL")], rounds)


def status(key: str) -> float:
    """A line of /proc/self/status in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


class Peak:
    """Memory of one step above what is held before it, in MiB."""

    def __init__(self) -> None:
        self.held = 0.0
        self.found: list[float] = []

    def begin(self) -> None:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.held = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")

    def end(self) -> None:
        self.found.append(status("VmHWM") - self.held)


def measure_memory(who: str, lora: bool, size: Size) -> float:
    """The peak of the third step, in this process."""
    peak = Peak()
    ours = Ours(make(size, lora), rollouts(1, size))
    if who == OURS:
        for _ in range(3):
            peak.begin()
            ours.update()
            peak.end()
    else:
        theirs = Theirs(make(size, lora), ours, 3, **THEIRS[who])
        theirs.train(on_step_begin=peak.begin, on_step_end=peak.end)
    return peak.found[-1]


def memory(who: str, lora: bool, size: SizeName) -> float:
    """`measure_memory` in a process of its own, which returns freed memory to the system."""
    command = [sys.executable, "-m", "bench.step", "--memory-of", who, "--size", size]
    threshold = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        [*command, *(["--lora"] if lora else [])],
        env=os.environ | threshold, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout.splitlines()[-1]))


def speeds(tasks: int, size: Size, found: Sequence[Sequence[Step]]) -> str:
    """How many times as long TRL's update takes, by wall and by CPU time, and completion tokens a
    second of both.
    """
    tokens = tasks * sum(size.lengths)
    rates = [
        tokens / statistics.median(step["wall"] for step in side)
        for side in zip(*found, strict=True)
    ]
    speed = f"{rates[0]:,.0f} vs. {rates[1]:,.0f} tokens/s"
    return f"{ratio(found, 'wall')}; by CPU time {ratio(found, 'cpu')}; {speed}"


def side_by_side(given: argparse.Namespace) -> None:
    """Print gradients, tokens a second and memory, all sizes in one table."""
    rows: dict[str, dict[str, str]] = {}

    def note(name: str, column: str, cell: str) -> None:
        rows.setdefault(name, {})[column] = cell
        print(f"{column} | {name}: {cell}", file=sys.stderr, flush=True)

    labels = {name: f"{name} ({SIZES[name].label})" for name in given.size}
    for name, label in labels.items():
        size = SIZES[name]
        few = name == "large" or given.few
        for lora in (False, True):
            kind = "LoRA" if lora else "full"
            for tasks in (1,) if few else (1, 4):
                row = f"{kind}, {tasks} x 8"
                off = compare(lora, tasks, size)
                assert off < 1e-4
                note(f"{row}: largest difference of a gradient", label, f"{off:.0e}")
                for setting, changes in THEIRS.items():
                    if (few and setting not in FLOAT32) or (tasks > 1 and "whole" in changes):
                        continue
                    found = race(setting, lora, tasks, name, given.rounds or size.rounds)
                    note(f"{row}: {setting}", label, speeds(tasks, size, found))
            for who in [OURS, *FLOAT32]:
                peak = memory(who, lora, name)
                note(f"{kind}, 1 x 8: peak memory, {who}", label, f"{peak:,.0f} MiB")
    print(
        f"Time of TRL's update, in times of ours (range); {torch.get_num_threads()} threads,"
        f" torch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    print(table(list(labels.values()), rows))


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--few", action="store_true", help="at the small size too, only float32")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--setting", help=argparse.SUPPRESS)
    parser.add_argument("--tasks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lora", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--levers", action="store_true")
    parser.add_argument("--dry", action="store_true", help="with --levers: a tiny model on a CPU")
    parser.add_argument(
        "--peak", type=float, default=989e12, help="the card's flops in bfloat16 [1/s]"
    )
    given = parser.parse_args()
    torch.set_num_threads(2)
    if given.levers:
        from bench.levers import print_levers

        print_levers(given.dry, given.peak)
    elif given.side:
        size = SIZES[given.size[0]]
        take_turns(given.side, given.setting, given.lora, given.tasks, size, given.rounds)
    elif given.memory_of:
        print(json.dumps(measure_memory(given.memory_of, given.lora, SIZES[given.size[0]])))
    else:
        side_by_side(given)


if __name__ == "__main__":
    main()
