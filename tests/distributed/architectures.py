"""Learns one step of every architecture, alone or under torchrun, and writes losses and weights.

python -m tests.distributed.architectures OUT MODEL ...
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from assay.algorithms import algorithms
from assay.errors import AssayError
from assay.policy.forward import layout_of
from assay.policy.load_model import Policy
from assay.registry import one_line
from assay.train.learner import Learner
from assay.train.ranks import Ranks
from tests.policies import random_samples, run_settings
from tests.policy.test_architectures import MODELS, NAMES, RARE, make

SAMPLES = 9
"""Their longest is longer than the models' windows, of one rank's share only."""


def learn(name: str, number: int | None, out: Path) -> None:
    """One step from random weights, alone or as the rank of that `number`."""
    kind, changes, *_ = [*MODELS, *RARE][NAMES.index(name)]
    settings = run_settings(
        algorithm={"name": "grpo", "kl": 0.1},
        optimizer={"lr": 1e-2, "eps": 1.0},
        learner={"micro_batch_tokens": 60},
    )
    chat: Any = None
    policy = Policy(make(kind, changes), chat, torch.device("cpu"), 0)
    ranks = Ranks()
    if number is not None:
        policy, ranks = sharded(policy, number)
    grpo = algorithms["grpo"].build(settings.algorithm)
    try:
        learner = Learner(settings, grpo, policy, 4, 1.0, ranks)
        said: dict[str, Any] = learner.step(random_samples(SAMPLES, vocabulary=290), 0)
    except AssayError as error:
        said = {"refused": one_line(error)}
    else:
        ranks.save(learner.policy.trainable, out / f"{name}.safetensors")
    if not ranks.number:
        (out / f"{name}.json").write_text(json.dumps(said))


def sharded(whole: Policy, number: int) -> tuple[Policy, Ranks]:
    """The empty policy of a rank, to be filled from the leader's."""
    from assay.distributed.sharded import ShardedRanks

    if not number:
        with suppress(AssayError):
            layout_of(whole.model, 0)
    with torch.device("meta"):
        empty = type(whole.model)(whole.model.config)
    return replace(whole, model=empty.eval()), ShardedRanks(None if number else whole)


def main(out: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    if "WORLD_SIZE" not in os.environ:
        for name in names:
            learn(name, None, out)
        return
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for name in names:
        learn(name, dist.get_rank(), out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
