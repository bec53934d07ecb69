"""Learns some steps of each case and writes what came out, alone or under torchrun.

python -m tests.distributed.learn OUT [FROM] CASE ...
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
from assay.config.sections import PolicySettings, TinySettings
from assay.policy.load_model import Policy, load_policy
from assay.policy.tiny import make_tiny
from assay.train.learner import Learner
from assay.train.ranks import Ranks
from tests.policies import TASKS, random_samples, run_settings, tiny_policy

CASES: dict[str, dict[str, Any]] = {
    "sft": {"algorithm": {"name": "sft"}},
    "grpo": {"algorithm": {"name": "grpo", "kl": 0.1}},
    "reinforce": {"algorithm": {"name": "reinforce", "baseline": "running"}},
    "ppo": {"algorithm": {"name": "ppo", "epochs": 2, "minibatches": 2}},
    "dpo": {"algorithm": {"name": "dpo", "beta": 1.0, "epochs": 2}},
    "opd": {"algorithm": {"name": "opd", "teacher": "teacher"}},
    "flat": {"algorithm": {"name": "grpo"}},
}
STEPS = 2


def learn(
    case: str, model: str, hybrid: bool | None, leads: bool, out: Path, start: Path | None
) -> None:  # fmt: skip
    """Two steps, or two more from the files in `start`; with `all` in its name four at once."""
    name, *how = case.split("-")
    changes = {"optimizer": {"lr": 1e-2, "eps": 1.0}, "learner": {"micro_batch_tokens": 60}}
    torch.manual_seed(0)
    adapted: dict[str, Any] = {"lora": {"rank": 4}} if {"lora", "nf4"} & {*how} else {}
    adapted |= {"quantize": "nf4"} if "nf4" in how else {}
    adapted = {"dtype": "bfloat16"} if "bf16" in how else adapted
    described = PolicySettings(model=model, device="cpu", **adapted)
    whole = load_policy(described) if leads else None
    policy, ranks = sharded(described, whole, hybrid)
    settings = run_settings(**CASES[name], **changes, policy=described)
    algorithm = algorithms[settings.algorithm["name"]].build(settings.algorithm)
    if algorithm.teacher:
        algorithm = replace(algorithm, teacher=str(Path(model).parent / "teacher"))
    learner = Learner(settings, algorithm, policy, 2 * STEPS, 1.0, ranks)
    if start:
        learner.restore(start / case)
    first, found = STEPS if start else 0, []
    for step in range(first, 2 * STEPS if "all" in how else first + STEPS):
        drawn = random_samples(9, seed=step)
        if name == "flat":
            drawn = [replace(one, reward=1.0) for one in drawn]
        found.append(learner.step([replace(one, passed=one.reward > 0) for one in drawn], step))
    if leads:
        (out / case / "assay").mkdir(parents=True)
    ranks.totals({})  # all wait for the folder
    learner.save(out / case)
    if leads:
        (out / case / "metrics.json").write_text(json.dumps(found))


def lengthwise_teacher(folder: Path) -> str:
    """A model whose results change from 16 tokens on with what shares their batch."""
    shape = TinySettings(vocabulary=300, width=32, layers=1, heads=2, context=16)
    file = make_tiny(folder, TASKS, shape, seed=5) / "config.json"
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"rope_parameters": rope}))
    return str(folder)


def sharded(
    described: PolicySettings, whole: Policy | None, hybrid: bool | None
) -> tuple[Policy, Ranks]:
    """The empty policy of a rank, to be filled from the leader's; alone, that one itself."""
    if whole and hybrid is None:
        return whole, Ranks()
    from assay.distributed.sharded import ShardedRanks

    assert hybrid is not None
    return load_policy(described, empty=True), ShardedRanks(whole, hybrid=hybrid)


def main(out: Path, words: list[str]) -> None:
    torch.set_num_threads(1)
    start = None if words[0].split("-")[0] in CASES else Path(words.pop(0))
    tiny_policy(model := out / f"rank {os.getpid()}")
    lengthwise_teacher(model / "teacher")
    if os.environ.get("RANK", "0") != "0" and not any("nf4" in case for case in words):
        (model / "tiny" / "model.safetensors").unlink()  # the leader alone reads weights
    if "WORLD_SIZE" not in os.environ:
        for case in words:
            learn(case, f"{model}/tiny", None, True, out, start)
        return
    import torch.distributed as dist

    dist.init_process_group("gloo")
    hybrid = os.environ["LOCAL_WORLD_SIZE"] != os.environ["WORLD_SIZE"]
    for case in words:
        learn(case, f"{model}/tiny", hybrid, dist.get_rank() == 0, out, start)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
