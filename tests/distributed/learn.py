"""Learns a few steps and writes what came out: `python -m tests.distributed.learn CASE OUT [FROM]`,
alone or under torchrun.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.algorithms import algorithms
from assay.train.learner import Learner
from assay.train.ranks import Ranks
from tests.policies import random_samples, run_settings, tiny_policy

CASES: dict[str, dict[str, Any]] = {
    "sft": {"algorithm": {"name": "sft"}},
    "grpo": {"algorithm": {"name": "grpo", "kl": 0.1}},
    "ppo": {"algorithm": {"name": "ppo", "epochs": 2, "minibatches": 2}},
    "dpo": {"algorithm": {"name": "dpo"}},
}
STEPS = 2


def main(case: str, out: Path, start: Path | None) -> None:
    torch.set_num_threads(1)
    name, _, adapted = case.partition("-")
    settings = run_settings(
        **CASES[name], optimizer={"lr": 1e-2, "eps": 1.0}, learner={"micro_batch_tokens": 60}
    )
    algorithm = algorithms[name].build(settings.algorithm)
    ranks, number = Ranks(), 0
    torch.manual_seed(0)
    policy = tiny_policy(
        out.parent / f"model-{os.getpid()}", **({"lora": {"rank": 4}} if adapted else {})
    )
    if "WORLD_SIZE" in os.environ:
        import torch.distributed as dist

        from assay.distributed.sharded import ShardedRanks

        dist.init_process_group("gloo")
        ranks, number = ShardedRanks(), dist.get_rank()
    learner = Learner(settings, algorithm, policy, STEPS * 2, 1.0, ranks)
    first = 0
    if start:
        learner.restore(start)
        first = STEPS
    found = []
    for step in range(first, first + STEPS):
        drawn = random_samples(9, seed=step)
        samples = [replace(one, passed=one.reward > 0) for one in drawn]
        found.append(learner.step(samples, step))
    if not number:
        (out / "assay").mkdir(parents=True)
    if "WORLD_SIZE" in os.environ:
        dist.barrier()
    learner.save(out)
    if not number:
        (out / "metrics.json").write_text(json.dumps(found))
    if "WORLD_SIZE" in os.environ:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
