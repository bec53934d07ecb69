"""What two ranks say of the same call, one file for each rank.

torchrun --nproc-per-node 2 -m tests.distributed.agreement OUT
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
from assay.config.sections import PolicySettings
from assay.errors import TrainingError
from assay.policy.load import load_policy
from assay.train.learner import Learner
from assay.train.ranks import Ranks
from tests.policies import random_samples, run_settings, tiny_policy

MANY = 60
MODEL = "rank {}/tiny"


def opened(
    model: Path, ranks: Ranks, algorithm: dict[str, Any], marked: bool = False, **policy: Any
) -> Learner:
    """`marked`: one weight of the last row of every adapter is not zero."""
    torch.manual_seed(0)
    loaded = load_policy(PolicySettings(model=str(model), device="cpu", **policy))
    for name, parameter in loaded.trainable.items() if marked else ():
        if ".lora_B." in name:
            parameter.data[-1, -1] = 1.0
    settings = run_settings(algorithm=algorithm, learner={"micro_batch_tokens": 30})
    built = algorithms[algorithm["name"]].build(settings.algorithm)
    return Learner(settings, built, loaded, 4, 1.0, ranks)


def save_moments(model: Path, ranks: Ranks, out: Path, dtype: str) -> None:
    """AdamW's moments after a step of many micro-batches."""
    learner = opened(model, ranks, {"name": "sft"}, dtype=dtype)
    learner.step(random_samples(MANY), 0)
    ranks.save(learner.optimizer.tensors, out / f"{dtype}.safetensors")


def main(out: Path) -> None:
    import torch.distributed as dist

    from assay.distributed.sharded import ShardedRanks

    torch.set_num_threads(1)
    number = os.environ["RANK"]
    model = out / MODEL.format(number)
    tiny_policy(model.parent)
    dist.init_process_group("gloo")
    said: dict[str, Any] = {}
    save_moments(model, ShardedRanks(), out, "bfloat16")
    learner = opened(model, ShardedRanks(), {"name": "sft"})
    samples = random_samples(8)
    learner.step(samples, 0)
    said["seed"] = torch.initial_seed()
    broken = [replace(one, logprobs=(float("nan"),) * len(one.tokens)) for one in samples[:4]]
    try:
        opened(model, ShardedRanks(), {"name": "grpo"}).step([*broken, *samples[4:]], 0)
    except TrainingError as error:
        said["batches"] = [batch.tokens.tolist() for batch in error.batches]
    kl = {"name": "grpo", "kl": 0.1}
    adapted = opened(model, ShardedRanks(), kl, marked=True, lora={"rank": 4})
    assert adapted.reference
    said["copied"] = bool(adapted.reference.weights)
    (out / f"{number}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
