"""One update of a 1.3B Llama with random weights on a GPU, with and without each lever (`bench.step
--levers`).

The flops that count are those of the whole pass with every lever: prompts once, no padding, logits
where the mask is, nothing twice. Their rate over the card's is the utilisation, so a lever that is
off shows as a lower one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.policy.forward import Layout, tried_layouts, use_layouts
from assay.types import Sample
from bench.updates import LORA, Ours


@dataclass(frozen=True, slots=True)
class Size:
    """A model, its rollouts and where they run."""

    device: str
    shape: dict[str, int]
    prompt: int
    longest: int
    tasks: int
    group: int
    rounds: int
    micro_batch_tokens: int


LARGE = Size(
    "cuda",
    {"hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 24,
    "num_attention_heads": 16,
     "vocab_size": 32_256},
    prompt=512, longest=512, tasks=4, group=16, rounds=5, micro_batch_tokens=16_384,
)  # fmt: skip
DRY = Size(
    "cpu",
    {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "vocab_size": 500},
    prompt=32, longest=32, tasks=2, group=4, rounds=1, micro_batch_tokens=1024,
)  # fmt: skip


def rollouts(size: Size) -> list[Sample]:
    """Groups with completions of an eighth of the longest to the longest, evenly."""
    draw = torch.Generator().manual_seed(1)
    samples = []
    for task in range(size.tasks):
        prompt = torch.randint(1, size.shape["vocab_size"], (size.prompt,), generator=draw).tolist()
        for number in range(size.group):
            length = size.longest * (number * 7 // (size.group - 1) + 1) // 8
            tokens = (
                prompt
                + torch.randint(1, size.shape["vocab_size"], (length,), generator=draw).tolist()
            )
            mask = (False,) * size.prompt + (True,) * length
            samples.append(
                Sample(
                    tuple(tokens),
                    mask,
                    tuple(-1.0 * on for on in mask),
                    reward=number % 2,
                    group=str(task),
                )
            )
    return samples


def apart(samples: Sequence[Sample]) -> list[Sample]:
    """The same samples, but that no two prompts are equal: nothing is shared."""
    return [
        replace(sample, tokens=(number + 1, *sample.tokens[1:]))
        for number, sample in enumerate(samples)
    ]


def model_of(size: Size, lora: bool) -> Any:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    with torch.device(size.device):
        model: Any = LlamaForCausalLM(LlamaConfig(**size.shape, pad_token_id=0)).bfloat16()
    return get_peft_model(model, LoraConfig(**LORA)) if lora else model


def useful_flops(size: Size, samples: Sequence[Sample], lora: bool) -> float:
    """Two for each weight and token, forward and for each gradient; attention's for each pair that
    sees one another.
    """
    width, layers = size.shape["hidden_size"], size.shape["num_hidden_layers"]
    trunk = layers * (4 * width**2 + 3 * width * size.shape["intermediate_size"])
    lengths = [len(sample.tokens) - size.prompt for sample in samples]
    tokens = size.tasks * size.prompt + sum(lengths)
    pairs = size.tasks * size.prompt**2 / 2 + sum(
        length * size.prompt + length**2 / 2 for length in lengths
    )
    passes = 2 if lora else 3  # a frozen weight needs no gradient of its own
    weights = tokens * trunk + sum(lengths) * width * size.shape["vocab_size"]
    return 2 * passes * weights + 3 * 4 * pairs * width * layers


def measure(
    size: Size, lora: bool, layout: Layout, samples: Sequence[Sample]
) -> tuple[float, float]:
    """Median seconds of an update, and its peak memory in GiB above model and optimizer (0 off the
    GPU).
    """
    model = model_of(size, lora)
    ours = Ours(model, samples, learner={"micro_batch_tokens": size.micro_batch_tokens})
    tried = tried_layouts(model)[torch.bfloat16]
    assert tried.fastest == "packed", "this machine cannot pack sequences in bfloat16"
    use_layouts(model, {torch.bfloat16: replace(tried, fastest=layout)})
    ours.update()
    ours.update()
    gpu = size.device == "cuda"
    base = torch.cuda.memory_allocated() if gpu else 0
    seconds = []
    for _ in range(size.rounds):
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        ours.update()
        if gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), (
        (torch.cuda.max_memory_allocated() - base) / 2**30 if gpu else 0.0
    )


def print_levers(dry: bool, peak: float) -> None:
    """A line for each lever that is off; `peak` [flop/s] is what the card can do in bfloat16."""
    size = DRY if dry else LARGE
    samples = rollouts(size)
    completed = sum(len(sample.tokens) - size.prompt for sample in samples)
    where = (
        torch.cuda.get_device_name()
        if size.device == "cuda"
        else "CPU, dry run: the figures say nothing"
    )
    print(f"{where}, torch {torch.__version__}; {completed} completion tokens a step")
    cases: tuple[tuple[str, Layout, Sequence[Sample]], ...] = (
        ("every lever", "packed", samples),
        ("without shared prompts", "packed", apart(samples)),
        ("without packing", "padded", samples),
        ("without packing, with whole logits", "plain", samples),
    )
    for lora in (False, True):
        for name, layout, rows in cases:
            seconds, memory = measure(size, lora, layout, rows)
            utilisation = useful_flops(size, samples, lora) / seconds / peak
            print(
                f"{'LoRA' if lora else 'full'}, {name}: {completed / seconds:.0f} completion"
                f" tokens/s, {memory:.1f} GiB above model and optimizer, {utilisation:.1%} of the"
                " card's flops",
                flush=True,
            )
