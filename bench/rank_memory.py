"""The peak memory of learner ranks: as `assay plan --gpus` computes it, and as it is measured,
beside that of torch's own example of FSDP2 with the same model.

    python -m bench.rank_memory [--size 5M 30M 80M] [--case full checkpointed lora one] [--ranks 2]

Two ranks on this machine's processors (gloo, float32) learn from made models. A rank's peak is
its resident memory (VmHWM) less what it had before its model was built, after a small model has
learned in the same process: so libraries are loaded and threads have started. malloc gives every
freed tensor back to the system at once, as the arithmetic assumes.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from assay.algorithms import algorithms
from assay.config.sections import LoraSettings, RunSettings
from assay.distributed.rank_memory import Load, ModelTensors, peak_of, rank_memory
from assay.policy.adapters import with_adapter
from assay.policy.layers import use_efficient_layers
from assay.policy.load_model import Policy, enable_gradient_checkpointing
from assay.train.learner import Learner
from assay.train.memory import DeviceMemory
from assay.train.ranks import Ranks
from assay.types import Sample

SHAPES = {
    "tiny": (64, 2, 4, 2, 192, 256), "5M": (256, 6, 8, 4, 704, 2048),
    "30M": (512, 10, 8, 4, 1408, 4096), "80M": (768, 12, 12, 4, 2048, 12_288),
}  # fmt: skip
"""Hidden size, layers, heads, heads of keys, inner size, vocabulary."""
CASES = {"full": 512, "checkpointed": 1024, "lora": 512, "one": 1024}
"""Tokens of a micro-batch. All but `one` have two micro-batches in a step."""
STEPS = 2
"""From the second on, the optimizer has its moments while gradients are computed."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536",
               "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}  # fmt: skip


def build(size: str, case: str, *, empty: bool, plain: bool = False) -> Policy:
    """A model of random weights, or without weights, as a policy without a tokenizer. A `plain` one
    has transformers' own layers.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
             "intermediate_size", "vocab_size")  # fmt: skip
    config = Qwen2Config(**dict(zip(names, SHAPES[size], strict=True)), tie_word_embeddings=True)
    torch.manual_seed(0)
    with torch.device("meta" if empty else "cpu"):
        model: Any = Qwen2ForCausalLM(config)
    model = with_adapter(model, None, LoraSettings(rank=8) if case == "lora" else None)
    if not plain:
        use_efficient_layers(model)
    if case == "checkpointed":
        enable_gradient_checkpointing(model)
    chat: Any = None
    starts_as_base = case == "lora"
    return Policy(model.eval(), chat, torch.device("cpu"), 0, starts_as_base)


def samples_of(size: str, case: str, ranks: int) -> list[Sample]:
    """One sequence for each micro-batch of each rank, in a group of its own."""
    tokens, count = CASES[case], ranks * (1 if case == "one" else 2)
    texts = torch.randint(1, SHAPES[size][-1], (count, tokens)).tolist()
    sample = Sample(tuple(texts[0]), (False, *[True] * (tokens - 1)), logprobs=(-5.0,) * tokens)
    return [replace(sample, tokens=tuple(text), group=str(n)) for n, text in enumerate(texts)]


def learn(size: str, case: str, number: int, ranks: int) -> None:
    """Some steps of a rank with that `number`; alone without others."""
    whole = build(size, case, empty=False) if not number else None
    policy, shared = whole, Ranks()
    if ranks > 1:
        from assay.distributed.sharded import ShardedRanks

        policy, shared = build(size, case, empty=True), ShardedRanks(whole)
    assert policy
    settings = RunSettings.model_validate(
        {"algorithm": {"name": "sft"}, "tasks": {"train": ["drills:train"]}, "steps": STEPS,
         "optimizer": {"lr": 1e-4}, "learner": {"micro_batch_tokens": CASES[case]}}
    )  # fmt: skip
    sft = algorithms["sft"].build(settings.algorithm)
    learner = Learner(settings, sft, policy, STEPS, 1.0, shared)
    for step in range(STEPS):
        learner.step(samples_of(size, case, ranks), step)


def learn_as_example(size: str, case: str, number: int, ranks: int) -> None:
    """The same steps by torch's own example."""
    from bench import fsdp2

    samples = samples_of(size, case, ranks)[number::ranks]
    tokens = [torch.tensor([list(sample.tokens)]) for sample in samples]
    fsdp2.learn(build(size, case, empty=True, plain=True).model, tokens, STEPS)


LEARNERS = {"assay": learn, "example": learn_as_example}


def computed(size: str, case: str, ranks: int) -> list[int]:
    """The peak of each rank by the arithmetic; the first has the whole copy too."""
    model = ModelTensors(build(size, case, empty=True).model)
    load = Load(
        ranks, CASES[case], several=case != "one", checkpointed=case == "checkpointed", device="cpu"
    )
    peak = sum(peak_of(rank_memory(model, load)).values())
    return [peak + (model.whole() if ranks > 1 else 0), *[peak] * (ranks - 1)]


def measure(out: Path, sizes: Sequence[str], cases: Sequence[str], learner: str) -> None:
    """What one rank takes of each size and case, as torchrun starts it."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    number, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        dist.init_process_group("gloo")
    memory, trim = DeviceMemory(torch.device("cpu")), ctypes.CDLL(None).malloc_trim
    for case in cases:
        LEARNERS[learner]("tiny", case, number, ranks)
    for size in sizes:
        for case in cases:
            gc.collect()
            trim(0)
            memory.reset_peak()
            before = memory.used
            LEARNERS[learner](size, case, number, ranks)
            file = out / f"{size}-{case}-{number}.json"
            file.write_text(json.dumps(memory.peak - before))
    if ranks > 1:
        dist.destroy_process_group()


def measured(
    sizes: Sequence[str], cases: Sequence[str], ranks: int, learner: str = "assay"
) -> dict[tuple[str, str, int], int]:
    """The peaks of such ranks in bytes, by size, case and rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    many = ["torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port, "-m"]
    start = many if ranks > 1 else []
    with TemporaryDirectory() as folder:
        words = ["--measure", folder, learner, "--size", *sizes, "--case", *cases]
        command = [sys.executable, "-m", *start, "bench.rank_memory", *words]
        done = subprocess.run(
            command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        return {
            (size, case, rank): int(
                json.loads((Path(folder) / f"{size}-{case}-{rank}.json").read_text())
            )
            for size in sizes
            for case in cases
            for rank in range(ranks)
        }


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SHAPES, nargs="+", default=["5M", "30M", "80M"])
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.measure:
        out, learner = arguments.measure
        measure(Path(out), arguments.size, arguments.case, learner)
        return
    sizes, cases, ranks = arguments.size, arguments.case, arguments.ranks
    print("| model | case | rank | computed, MB | measured, MB | difference | example, MB |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for size in sizes:
        for case in cases:
            ours, theirs = (measured([size], [case], ranks, name) for name in LEARNERS)
            for rank, peak in enumerate(computed(size, case, ranks)):
                each = ours[size, case, rank]
                row = f"{peak / 1e6:.0f} | {each / 1e6:.0f} | {peak / each - 1:+.1%}"
                beside = f"{theirs[size, case, rank] / 1e6:.0f}"
                print(f"| {size} | {case} | {rank} | {row} | {beside} |", flush=True)


if __name__ == "__main__":
    main()
