"""One update of a 1.3B Llama with random weights on a GPU, with and without each lever (`bench.step
--levers`).

The flops that count are those of the whole pass with every lever: prompts once, no padding, logits
where the mask is, nothing twice. Their rate over the card's is the utilisation, so a lever that is
off shows as a lower one. Then the profiler tells which share of an update with every lever each
kind of operation takes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from assay.policy.forward import Layout, tried_layouts, use_layouts
from assay.types import Sample
from bench.figures import Figure, write_figures
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


KINDS = {
    "attention": ("attention", "flash", "fmha"),
    "optimizer": ("foreach", "multi_tensor", "adam", "lerp"),
    "matrix products": ("gemm", "gemv", "nvjet", "cutlass", "xmma", "splitk", "aten::mm",
                        "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn"),
}  # fmt: skip
"""Kinds of operations, and parts of the names of their GPU kernels, or on a CPU of torch's
operations. The first that fits counts; all others are `other kernels`."""


def product_rate(size: Size) -> float:
    """Flops a second of large products in bfloat16: the best of five rounds."""
    width, times = (8192, 20) if size.device == "cuda" else (256, 2)
    left, right = (
        torch.randn(width, width, device=size.device, dtype=torch.bfloat16) for _ in range(2)
    )
    best = 0.0
    for _ in range(6):
        start = time.perf_counter()
        for _ in range(times):
            left @ right
        if size.device == "cuda":
            torch.cuda.synchronize()
        best = max(best, times * 2 * width**3 / (time.perf_counter() - start))
    return best


def kind_of(operation: str) -> str:
    """The kind of operations to which one belongs."""
    name = operation.lower()
    kinds = (kind for kind, words in KINDS.items() if any(word in name for word in words))
    return next(kinds, "other kernels")


def shares(size: Size, samples: Sequence[Sample], lora: bool) -> dict[str, float]:
    """The share of an update's wall time that each kind of operation takes, and what is left: `no
    kernel`, in which the device waits.
    """
    from torch.profiler import ProfilerActivity, profile

    ours, gpu = packed_updates(size, lora, "packed", samples), size.device == "cuda"
    start = time.perf_counter()
    ours.update()
    if gpu:
        torch.cuda.synchronize()
    wall = time.perf_counter() - start
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities) as profiled:
        ours.update()
        if gpu:
            torch.cuda.synchronize()
    took = dict.fromkeys([*KINDS, "other kernels"], 0.0)
    for event in profiled.key_averages():
        if not gpu:
            took[kind_of(event.key)] += event.self_cpu_time_total / 1e6
        elif event.device_type.name == "CUDA" and not event.is_user_annotation:
            took[kind_of(event.key)] += event.self_device_time_total / 1e6
    whole = max(wall, sum(took.values()))  # on a CPU the profiler itself takes time
    idle = 1 - sum(took.values()) / whole
    return {kind: seconds / whole for kind, seconds in took.items()} | {"no kernel": idle}


def packed_updates(size: Size, lora: bool, layout: Layout, samples: Sequence[Sample]) -> Ours:
    """A learner with this layout that has done two updates."""
    model = model_of(size, lora)
    ours = Ours(model, samples, learner={"micro_batch_tokens": size.micro_batch_tokens})
    tried = tried_layouts(model)[torch.bfloat16]
    assert tried.fastest == "packed", "this machine cannot pack sequences in bfloat16"
    use_layouts(model, {torch.bfloat16: replace(tried, fastest=layout)})
    ours.update()
    ours.update()
    return ours


def measure(
    size: Size, lora: bool, layout: Layout, samples: Sequence[Sample]
) -> tuple[float, float]:
    """Median seconds of an update, and its peak memory in GiB above model and optimizer (0 off the
    GPU).
    """
    ours = packed_updates(size, lora, layout, samples)
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


def print_levers(dry: bool, peak: float | None, json: Path | None) -> None:
    """A line for each lever that is off; `peak` [flop/s] is what the card can do in bfloat16, and
    is measured if it is None.
    """
    size = DRY if dry else LARGE
    rate = peak or product_rate(size)
    figures = [] if peak else [Figure("products in bfloat16", rate / 1e12, "Tflop/s")]
    samples = rollouts(size)
    completed = sum(len(sample.tokens) - size.prompt for sample in samples)
    where = (
        torch.cuda.get_device_name()
        if size.device == "cuda"
        else "CPU, dry run: the figures say nothing"
    )
    print(
        f"{where}, torch {torch.__version__}; {completed} completion tokens a step;"
        f" {rate / 1e12:.0f} Tflop/s {'given' if peak else 'measured'}"
    )
    cases: tuple[tuple[str, Layout, Sequence[Sample]], ...] = (
        ("every lever", "packed", samples),
        ("without shared prompts", "packed", apart(samples)),
        ("without packing", "padded", samples),
        ("without packing, with whole logits", "plain", samples),
    )
    for lora in (False, True):
        for name, layout, rows in cases:
            seconds, memory = measure(size, lora, layout, rows)
            utilisation = useful_flops(size, samples, lora) / seconds / rate
            case = f"{'LoRA' if lora else 'full'}, {name}"
            figures += [
                Figure(f"{case}: share of the card's flops", 100 * utilisation, "%"),
                Figure(f"{case}: completion tokens", completed / seconds, "tokens/s"),
                Figure(f"{case}: memory above model and optimizer", memory, "GiB"),
            ]
            write_figures(json, figures)
            print(
                f"{case}: {completed / seconds:.0f} completion"
                f" tokens/s, {memory:.1f} GiB above model and optimizer, {utilisation:.1%} of the"
                " card's flops",
                flush=True,
            )
    for lora in (False, True):
        case = f"{'LoRA' if lora else 'full'}, every lever"
        parts = shares(size, samples, lora)
        figures += [
            Figure(f"{case}: time of {kind}", 100 * share, "%") for kind, share in parts.items()
        ]
        write_figures(json, figures)
        parts_text = ", ".join(f"{kind} {share:.1%}" for kind, share in parts.items())
        print(f"{case}, of its time: {parts_text}", flush=True)
