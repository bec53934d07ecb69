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
from assay.policy.load_model import Policy, load_policy
from assay.train.learner import Learner
from assay.train.ranks import Ranks
from tests.policies import random_samples, run_settings, tiny_policy

MANY = 60
MODEL = "rank {}/tiny"


def opened(policy: Policy, algorithm: dict[str, Any], ranks: Ranks) -> Learner:
    """A learner of small micro-batches."""
    settings = run_settings(algorithm=algorithm, learner={"micro_batch_tokens": 30})
    built = algorithms[algorithm["name"]].build(settings.algorithm)
    return Learner(settings, built, policy, 4, 1.0, ranks)


def loaded(model: Path, **settings: Any) -> Policy:
    """The policy in `model`, equal wherever it is loaded."""
    torch.manual_seed(0)
    return load_policy(PolicySettings(model=str(model), device="cpu", **settings))


def save_moments(learner: Learner, out: Path) -> None:
    """AdamW's moments after a step of many micro-batches."""
    learner.step(random_samples(MANY), 0)
    learner.ranks.save(learner.optimizer.tensors, out / "bfloat16.safetensors")


def main(out: Path) -> None:
    import torch.distributed as dist

    from assay.distributed.sharded import ShardedRanks

    torch.set_num_threads(1)
    number = os.environ["RANK"]
    model = out / MODEL.format(number)
    tiny_policy(model.parent)
    dist.init_process_group("gloo")

    def sharded(algorithm: str, dtype: str = "float32") -> Learner:
        policy, whole = loaded(model, dtype=dtype), loaded(model, dtype=dtype)
        return opened(policy, {"name": algorithm}, ShardedRanks(whole))

    said: dict[str, Any] = {}
    save_moments(sharded("sft", "bfloat16"), out)
    learner = sharded("sft")
    samples = random_samples(8)
    learner.step(samples, 0)
    said["seed"] = torch.initial_seed()
    broken = [replace(one, logprobs=(float("nan"),) * len(one.tokens)) for one in samples[:4]]
    try:
        sharded("grpo").step([*broken, *samples[4:]], 0)
    except TrainingError as error:
        said["batches"] = [batch.tokens.tolist() for batch in error.batches]
    (out / f"{number}.json").write_text(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
