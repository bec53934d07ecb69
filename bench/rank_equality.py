"""How far several ranks are from one process after some steps with a real model.

    python -m bench.rank_equality MODEL [--ranks 2] [--steps 2] [--eps 1e-8]

One process with smaller micro-batches, which adds the same numbers in another order, is compared
too. Each learns from the same samples of random tokens with GRPO, in float32, with all weights and
with LoRA. AdamW divides a gradient by its size, so that where a gradient is nothing but rounding
its sign decides on a whole step: with `--eps 1` it does not, and weights show gradients.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import safe_open

from assay.algorithms import algorithms
from assay.config.sections import PolicySettings, RunSettings
from assay.policy.load_model import load_policy
from assay.train.learner import Learner
from assay.train.ranks import Ranks
from assay.types import Sample

KINDS: dict[str, dict[str, Any]] = {"all weights": {}, "LoRA": {"lora": {"rank": 8}}}
LR = 1e-4


def samples_of(seed: int, count: int = 8) -> list[Sample]:
    """Two groups of completions of random tokens, some of them rewarded."""
    draw, samples = random.Random(seed), []
    for number in range(count):
        tokens = tuple(draw.choices(range(1000, 20_000), k=24 + draw.randrange(24)))
        mask = (False,) * 8 + (True,) * (len(tokens) - 8)
        logprobs = (-10.0,) * len(tokens)
        group = str(number // 4)
        samples.append(
            Sample(tokens, mask, logprobs=logprobs, reward=float(number % 2), group=group)
        )
    return samples


def learn(arguments: argparse.Namespace, kind: str, out: Path) -> None:
    """Some steps of this rank, or alone; writes numbers, weights and moments."""
    import torch.distributed as dist

    number, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    steps = arguments.steps
    described = PolicySettings(model=arguments.model, device="cpu", dtype="float32", **KINDS[kind])
    settings = RunSettings.model_validate(
        {"algorithm": {"name": "grpo"}, "tasks": {"train": ["drills:train"]}, "steps": steps,
         "optimizer": {"lr": LR, "eps": arguments.eps},
         "learner": {"micro_batch_tokens": arguments.budget}}
    )  # fmt: skip
    torch.manual_seed(0)
    whole = load_policy(described) if not number else None
    policy, ranks = whole, Ranks()
    if count > 1:
        from assay.distributed.sharded import ShardedRanks

        policy, ranks = load_policy(described, empty=True), ShardedRanks(whole)
    assert policy
    grpo = algorithms["grpo"].build(settings.algorithm)
    learner = Learner(settings, grpo, policy, steps, 1.0, ranks)
    numbers = [learner.step(samples_of(step), step) for step in range(steps)]
    ranks.save(policy.trainable, out / "weights.safetensors")
    ranks.save(learner.optimizer.tensors, out / "moments.safetensors")
    if not number:
        (out / "numbers.json").write_text(json.dumps(numbers))
    if count > 1:
        dist.barrier()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--eps", type=float, default=1e-8)
    parser.add_argument("--budget", type=int, default=100, help="tokens of a micro-batch")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.out:
        _as_rank(arguments)
        return
    print(
        "| trained | beside one process | weights | first moments, of the largest | loss | norm |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    half = ["--budget", str(arguments.budget // 2)]
    others = {f"{arguments.ranks} ranks": (arguments.ranks, []), "smaller micro-batches": (1, half)}
    with TemporaryDirectory() as name:
        _run(1, Path(name) / "alone", sys.argv[1:])
        for label, (ranks, more) in others.items():
            _run(ranks, Path(name) / label, [*sys.argv[1:], *more])
            for kind in KINDS:
                gaps = distances(Path(name) / "alone" / kind, Path(name) / label / kind)
                cells = " | ".join(f"{gap:.1e}" for gap in gaps)
                print(f"| {kind} | {label} | {cells} |", flush=True)


def _as_rank(arguments: argparse.Namespace) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    for kind in KINDS:
        (out := arguments.out / kind).mkdir(parents=True, exist_ok=True)
        learn(arguments, kind, out)
    if "WORLD_SIZE" in os.environ:
        dist.destroy_process_group()


def _run(ranks: int, out: Path, words: Sequence[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    many = ["torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", port, "-m"]
    start = many if ranks > 1 else []
    command = [sys.executable, "-m", *start, "bench.rank_equality", *words, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])


def distances(alone: Path, many: Path) -> tuple[float, float, float, float]:
    """The largest difference of a weight; of a first moment as a share of the largest of its
    tensor; and of losses and of the gradient's norms, as shares.
    """
    weights = moments = 0.0
    with (
        safe_open(alone / "weights.safetensors", "pt") as mine,
        safe_open(many / "weights.safetensors", "pt") as theirs,
    ):
        for name in mine.keys():  # noqa: SIM118  it is no dict
            gap = (mine.get_tensor(name) - theirs.get_tensor(name)).abs().max()
            weights = max(weights, float(gap))
    with (
        safe_open(alone / "moments.safetensors", "pt") as mine,
        safe_open(many / "moments.safetensors", "pt") as theirs,
    ):
        for name in mine.keys():  # noqa: SIM118
            if name.endswith("|exp_avg"):
                moment = mine.get_tensor(name)
                gap = (moment - theirs.get_tensor(name)).abs().max()
                moments = max(moments, float(gap / moment.abs().max().clamp(min=1e-12)))
    rows = [json.loads((folder / "numbers.json").read_text()) for folder in (alone, many)]
    loss, norm = (
        max(abs(a[key] - b[key]) / max(abs(a[key]), 1e-6) for a, b in zip(*rows, strict=True))
        for key in ("loss", "learn/grad_norm")
    )
    return weights, moments, loss, norm


if __name__ == "__main__":
    main()
