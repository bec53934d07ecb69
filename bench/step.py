"""One update (forward, backward, optimizer) beside TRL's GRPOTrainer, on the same rollouts of the
same model.

    python -m pip install 'trl==1.16.0'          # once; it is not a dependency python -m bench.step
    # two CPU threads: gradients compared, then tokens a second and memory python -m bench.step
    --large [--dry]         # one GPU, 1.3B parameters, every lever alone; --dry: tiny, on the CPU

TRL's trainer runs its own `train()`; only its generation is replaced, by the rollouts. Each of its
steps is followed by one of ours, so that both meet the same load, and medians count. Both start
from the same weights, in float32 unless said otherwise, and the gradients are compared before
anything is timed. Memory is the peak of one step above what the process holds before it, model and
optimizer loaded, each in a process of its own.
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
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.openmp import waiting

os.environ.update(waiting())

import torch

from assay.algorithms import algorithms
from assay.config.sections import RunSettings
from assay.policy.load import Policy
from assay.train.learner import Learner
from assay.types import Sample

PROMPT, LENGTHS = 300, (256, 60, 75, 90, 100, 110, 125, 144)
"""Tokens of each prompt, and of its 8 completions: 120 on average."""
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
"""Settings of TRL's; `whole` puts all rows of a step into one batch instead of eight."""


def small_model(vocabulary: int, lora: bool) -> Any:
    """A random Llama of 5.5M parameters at a vocabulary of 2,048, the same at each call."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {
        "hidden_size": 256,
        "intermediate_size": 736,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
    }
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=vocabulary, **shape, tie_word_embeddings=True, pad_token_id=0)
    )
    if not lora:
        return model
    model = get_peft_model(model, LoraConfig(**LORA))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def rollouts(tasks: int, vocabulary: int) -> list[Sample]:
    """Groups of eight, half of them right."""
    draw = torch.Generator().manual_seed(1)
    samples = []
    for task in range(tasks):
        prompt = torch.randint(1, vocabulary, (PROMPT,), generator=draw).tolist()
        for number, length in enumerate(LENGTHS):
            tokens = prompt + torch.randint(1, vocabulary, (length,), generator=draw).tolist()
            mask = (False,) * PROMPT + (True,) * length
            logprobs = tuple(-7.6 if trained else 0.0 for trained in mask)
            samples.append(
                Sample(tuple(tokens), mask, logprobs=logprobs, reward=number % 2, group=str(task))
            )
    return samples


class Ours:
    """The learner with GRPO, as a run has it."""

    def __init__(self, model: Any, samples: Sequence[Sample], **changes: Any) -> None:
        algorithm = {
            "name": "grpo",
            "importance_sampling": "none",
        }  # the rollouts' log-probabilities are made up
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
        """Those of the first step, before they are clipped; nothing is learned."""
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
    """TRL's trainer, which is handed the rollouts instead of generating them."""

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
            "max_completion_length": 256,
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


def compare(lora: bool, tasks: int, vocabulary: int) -> float:
    """The largest difference of a gradient, as a share of the largest gradient."""
    samples = rollouts(tasks, vocabulary)
    ours = Ours(small_model(vocabulary, lora), samples)
    right = Theirs(
        small_model(vocabulary, lora), ours, 1, bf16=False, max_grad_norm=0.0
    ).gradients()
    found = ours.gradients()
    assert found.keys() == right.keys()
    largest = max(float(slope.abs().max()) for slope in right.values())
    return max(float((found[name] - slope).abs().max()) for name, slope in right.items()) / largest


def race(lora: bool, tasks: int, rounds: int, **changes: Any) -> tuple[list[float], list[float]]:
    """Seconds of each of TRL's updates, and of ours after it, both in bfloat16 unless `changes`
    have it off.
    """
    ours = Ours(small_model(2048, lora), rollouts(tasks, 2048))
    theirs = Theirs(small_model(2048, lora), ours, rounds + 2, **changes)
    their_seconds: list[float] = []
    our_seconds: list[float] = []
    begun = [0.0]

    def begin() -> None:
        begun[0] = time.perf_counter()

    def end() -> None:
        their_seconds.append(time.perf_counter() - begun[0])
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=changes.get("bf16", True)):
            ours.update()
        our_seconds.append(time.perf_counter() - start)

    theirs.train(on_step_begin=begin, on_step_end=end)
    return their_seconds[2:], our_seconds[2:]


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


def measure_memory(who: str, lora: bool, vocabulary: int) -> float:
    """The peak of the third step, in this process."""
    peak = Peak()
    ours = Ours(small_model(vocabulary, lora), rollouts(1, vocabulary))
    if who == "assay":
        for _ in range(3):
            peak.begin()
            ours.update()
            peak.end()
    else:
        theirs = Theirs(small_model(vocabulary, lora), ours, 3, **THEIRS[who])
        theirs.train(on_step_begin=peak.begin, on_step_end=peak.end)
    return peak.found[-1]


def memory(who: str, lora: bool, vocabulary: int) -> float:
    """`measure_memory` in a process of its own, where what is freed is given back."""
    command = [
        sys.executable,
        "-m",
        "bench.step",
        "--memory-of",
        who,
        "--vocabulary",
        str(vocabulary),
    ]
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [*command, *(["--lora"] if lora else [])],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def side_by_side(rounds: int) -> None:
    """Print gradients, tokens a second and memory."""
    print(
        f"load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads, torch"
        f" {torch.__version__}"
    )
    for lora in (False, True):
        kind = "LoRA" if lora else "full"
        for tasks in (1, 4):
            off = compare(lora, tasks, 2048)
            assert off < 1e-4
            print(f"{kind}, {tasks} x 8: no gradient differs by more than {off:.0e} of the largest")
            for name, changes in THEIRS.items():
                if tasks > 1 or "whole" not in changes:
                    print(
                        f"{kind}, {tasks} x 8:"
                        f" {speeds(name, tasks, *race(lora, tasks, rounds, **changes))}",
                        flush=True,
                    )
        names = ["assay", "TRL, its defaults in float32", "TRL without checkpointing"]
        found = {name: memory(name, lora, 32_000) for name in names}
        print(f"{kind}, 1 x 8, vocabulary 32,000, peak above model and optimizer:", end=" ")
        print(", ".join(f"{name} {mib:.0f} MiB" for name, mib in found.items()), flush=True)


def speeds(name: str, tasks: int, theirs: Sequence[float], ours: Sequence[float]) -> str:
    """Medians of both, and of their ratios with the range."""
    ratios = [t / o for t, o in zip(theirs, ours, strict=True)]
    rates = [tasks * sum(LENGTHS) / statistics.median(seconds) for seconds in (ours, theirs)]
    return (
        f"{rates[0]:.0f} completion tokens/s, {name} {rates[1]:.0f}:"
        f" {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
        + (", both in bfloat16" if "bfloat16" in name else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory-of", metavar="WHO")
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--dry", action="store_true", help="with --large: a tiny model on the CPU")
    parser.add_argument(
        "--peak", type=float, default=989e12, help="the card's flops in bfloat16 [1/s]"
    )
    given = parser.parse_args()
    torch.set_num_threads(2)
    if given.large:
        from bench.levers import print_levers

        print_levers(given.dry, given.peak)
    elif given.memory_of:
        print(json.dumps(measure_memory(given.memory_of, given.lora, given.vocabulary)))
    else:
        side_by_side(given.rounds)


if __name__ == "__main__":
    main()
