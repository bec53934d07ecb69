"""How far the gradient of each algorithm in bfloat16 is from the one in float32, for equal weights
in engine and learner.

    ASSAY_DATA=FOLDER nice python -m bench.gradient_noise --model FOLDER
    ... [--tasks mbpp:train] [--prompts 8] [--group-size 8] [--groups 2] [--seeds 0 1 2]

The in-process engine in bfloat16 answers some tasks `--group-size` times, and the judge scores the
programs. The first `--groups` groups whose rewards differ are learned from, once by each algorithm
with its default settings; DPO's pairs have the best reward of their group and a lower one. In
bfloat16 the engine's own log-probabilities are used, as in a run; the reference, in float32, has
log-probabilities of float32, where every importance sampling weight is 1. Each completion is a
micro-batch, and gradients are added up in float32. Rows with `sequence_truncate` weight completions
by the product of their tokens' ratios. `float32` rows do the same with an engine and a learner in
float32. A cell is the mean over the seeds, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.tuning import tune

os.environ.update(tune())

import torch
from torch import Tensor

from assay.algorithms import Algorithm, algorithms
from assay.algorithms.base import by_group
from assay.config.load_settings import load_plan
from assay.config.sections import PolicySettings
from assay.maths.arrays import to_array
from assay.maths.masked import masked_sum
from assay.maths.rewards import have_zero_variance
from assay.policy.forward import ModelOutput, forward
from assay.policy.load_model import load_policy
from assay.policy.onednn import has_bfloat16
from assay.progress import Progress
from assay.train.batch import to_batch, with_weights
from assay.train.run import open_run
from assay.train.stages import prepare_all
from assay.types import Batch, Metrics, Sample

TOKENS = 128
PLAN = """
name = "gradient_noise"
trackers = []
steps = 1
algorithm.name = "reinforce"
rollout = { group_size = 8, max_tokens = 128 }
judge.allow_weak_isolation = true
[rewards]
tests = { mode = "fraction" }
[stages.noise]
"""
ALGORITHMS: dict[str, dict[str, Any]] = {
    "reinforce": {},
    "rloo": {},
    "grpo": {},
    "dr_grpo": {},
    "dapo": {},
    "gspo": {},
    "cispo": {},
    "ppo, no critic": {"critic": False, "epochs": 1},
    "ppo, critic": {"epochs": 1},
    "dpo": {},
    "sft": {},
    "rloo, sequence_truncate": {"importance_sampling": "sequence_truncate"},
    "gspo, sequence_truncate": {"importance_sampling": "sequence_truncate"},
}


Gradient = list[Tensor]
"""Of each trained parameter."""


@dataclass(frozen=True)
class Distance:
    """A gradient beside that of float32."""

    cosine: float
    norm: float
    """As a multiple of the reference's."""
    spread: float
    """`learn/importance_weight_spread`; nan for algorithms without such weights."""
    kl_engine: float


def use_float32_products() -> None:
    """Compute products in bfloat16 in float32 and round them, as instructions for bfloat16 do. On a
    processor without them torch does the same one number at a time, seven times as slowly.
    """
    exact = torch.nn.functional.linear

    def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if input.dtype != torch.bfloat16 or weight.dtype != torch.bfloat16:
            return exact(input, weight, bias)
        product = exact(input.float(), weight.float(), None if bias is None else bias.float())
        return product.bfloat16()

    torch.nn.functional.linear = linear


def settings_of(arguments: argparse.Namespace, folder: Path, dtype: str, seed: int) -> Any:
    """The plan of a run with that data type."""
    file = folder / "noise.toml"
    file.write_text(PLAN)
    words = {
        "folder": folder, "seed": seed, "policy.model": arguments.model, "policy.dtype": dtype,
        "policy.device": "cpu", "tasks.train": arguments.tasks,
        "rollout.tasks_per_step": arguments.prompts, "rollout.group_size": arguments.group_size,
    }  # fmt: skip
    options = [text for name, value in words.items() for text in (f"--{name}", str(value))]
    return load_plan(file, options)


async def rollouts(arguments: argparse.Namespace, dtype: str, seed: int) -> list[Sample]:
    """The first groups of a step whose rewards differ, as a run samples them."""
    with TemporaryDirectory() as folder:
        (stage,) = prepare_all(settings_of(arguments, Path(folder), dtype, seed))
        async with open_run(stage, Progress()) as run:
            await run.source.publish(run.learner, 0)
            samples = (await run.source.next(0)).samples
    groups = by_group(samples)
    differ = [group for group in groups if not have_zero_variance(s.reward for s in group)]
    print(f"seed {seed}, {dtype}: {len(differ)} of {len(groups)} groups differ", file=sys.stderr)
    return [sample for group in differ[: arguments.groups] for sample in group]


def algorithm_of(row: str) -> Algorithm:
    """The algorithm of a row of the table, with its settings."""
    name = row.partition(",")[0]
    return algorithms[name].build({"name": name, **ALGORITHMS[row]})


class Gradients:
    """Those of the policy's log-probabilities of some samples, in one data type.

    The gradient of a loss is a sum over completions of a factor times the gradient for slopes of at
    most 1. Algorithms often share these, which are computed one completion at a time.
    """

    def __init__(self, settings: PolicySettings, samples: Sequence[Sample]) -> None:
        policy = load_policy(settings)
        self.parameters = list(policy.trainable.values())
        self.batch = to_batch(samples, policy.pad_token, policy.device)
        self.rows = [
            forward(policy.model, to_batch([sample], policy.pad_token, policy.device)).logprobs[0]
            for sample in samples
        ]
        logprobs = self.logprobs = torch.zeros(self.batch.tokens.shape)
        for row, values in zip(logprobs, self.rows, strict=True):
            row[: len(values)] = values.detach()
        zeros = [0.0] * logprobs.shape[1]
        self.samples = [
            replace(s, reference_logprobs=to_array(row[: len(s.tokens)]),
                    values=zeros[: len(s.tokens)])
            for s, row in zip(samples, logprobs, strict=True)
        ]  # fmt: skip
        self.places = [sample.place for sample in samples]
        self.gradients: list[tuple[int, Tensor, Gradient]] = []
        """The place of a completion, its slopes and their gradient."""

    def samples_of(self, row: str) -> list[Sample]:
        """With advantages. For DPO a completion passes that has the best reward of its group."""
        samples = self.samples
        if row == "dpo":
            best = {group[0].group: max(s.reward for s in group) for group in by_group(samples)}
            samples = [replace(s, passed=s.reward == best[s.group]) for s in samples]
        return algorithm_of(row).compute_advantages(samples)

    def of_loss(self, row: str, *, exact: bool) -> tuple[dict[int, float], Metrics]:
        """The gradient of an algorithm's loss, as factors of those in `gradients`, and means over
        tokens. `exact`: as if the engine had given the policy's own log-probabilities.
        """
        algorithm, samples = algorithm_of(row), self.samples_of(row)
        places = [self.places.index(sample.place) for sample in samples]
        batch = self._batch(with_weights(samples, algorithm.loss_mean, TOKENS), places, exact)
        leaf = self.logprobs[places].requires_grad_()
        values = torch.zeros_like(leaf) if algorithm.needs_critic else None
        loss, numbers = algorithm.loss(ModelOutput(leaf, torch.zeros_like(leaf), values), batch)
        (slopes,) = torch.autograd.grad(masked_sum(loss * batch.weights, batch.mask), leaf)
        means = {key: float(value[batch.mask].mean()) for key, value in numbers.items()}
        factors: dict[int, float] = {}
        for place, slope in zip(places, slopes, strict=True):
            if largest := float(slope.abs().max()):
                factor = largest if slope.sum() > 0 else -largest
                factors[self._index(place, slope / factor)] = factor
        return factors, means

    def _batch(self, samples: Sequence[Sample], places: list[int], exact: bool) -> Batch:
        """The samples as the learner batches them, in the width of all samples."""
        fields = {"advantages", "returns", "weights", "groups", "logprobs"}
        width = self.logprobs.shape[1]
        narrow = to_batch(samples, 0, self.logprobs.device)
        wide = {
            name: torch.nn.functional.pad(value, (0, width - value.shape[1]))
            if value.ndim == 2 and value.shape[1] > 1 else value
            for name in fields if (value := getattr(narrow, name)) is not None
        }  # fmt: skip
        selected = {
            "tokens": self.batch.tokens[places], "attention": self.batch.attention[places],
            "mask": self.batch.mask[places], "values": torch.zeros(len(places), width),
            "reference_logprobs": self.logprobs[places],
        }  # fmt: skip
        exactly = {"logprobs": self.logprobs[places]} if exact else {}
        return Batch(**{**wide, **selected, **exactly})

    def _index(self, place: int, slope: Tensor) -> int:
        """That in `gradients` of the sum of slope x log-probability of a completion."""
        for index, (other, slopes, _) in enumerate(self.gradients):
            if other == place and torch.allclose(slopes, slope, atol=1e-5):
                return index
        row = self.rows[place]
        gradient = torch.autograd.grad(row, self.parameters, slope[: len(row)], retain_graph=True)
        self.gradients.append((place, slope, list(gradient)))
        return len(self.gradients) - 1


def products(left: Sequence[Gradient], right: Sequence[Gradient]) -> Tensor:
    """[L, R] float64: the inner products of gradients."""
    total = torch.zeros(len(left), len(right), dtype=torch.float64)
    for ours, theirs in zip(zip(*left, strict=True), zip(*right, strict=True), strict=True):
        a, b = (torch.stack([part.flatten().float() for part in side]) for side in (ours, theirs))
        total += a @ b.T
    return total


def vector(factors: dict[int, float], size: int) -> Tensor:
    """[size] float64, the factors at their places."""
    result = torch.zeros(size, dtype=torch.float64)
    for index, factor in factors.items():
        result[index] = factor
    return result


def distances(arguments: argparse.Namespace, seed: int) -> dict[str, dict[str, Distance]]:
    """By data type and row, how far each gradient is from that of float32."""
    with TemporaryDirectory() as folder:
        policies = {
            dtype: settings_of(arguments, Path(folder), dtype, seed).stages[0].policy
            for dtype in ("bfloat16", "float32")
        }
    result: dict[str, dict[str, Distance]] = defaultdict(dict)
    for dtype in arguments.dtypes:
        samples = asyncio.run(rollouts(arguments, dtype, seed))
        if not samples:
            continue
        exact = Gradients(policies["float32"], samples)
        rounded = Gradients(policies[dtype], samples)
        references = {row: exact.of_loss(row, exact=True)[0] for row in arguments.rows}
        results = {row: rounded.of_loss(row, exact=False) for row in arguments.rows}
        theirs, ours = ([gradient for *_, gradient in side.gradients] for side in (exact, rounded))
        squares = products(ours, ours), products(theirs, theirs), products(ours, theirs)
        for row, (factors, means) in results.items():
            a, b = vector(factors, len(ours)), vector(references[row], len(theirs))
            size, other, product = (
                float(left @ square @ right)
                for left, square, right in zip((a, b, a), squares, (a, b, b), strict=True)
            )
            distance = Distance(
                product / (size * other) ** 0.5, (size / other) ** 0.5,
                means.get("importance_weight_spread", nan), means.get("kl_engine", nan),
            )  # fmt: skip
            print(f"seed {seed}, {dtype}, {row}: {distance}", file=sys.stderr, flush=True)
            result[dtype][row] = distance
    return result


def cell(values: Sequence[float], form: str) -> str:
    """The mean, with the smallest and the largest."""
    if not values or any(value != value for value in values):
        return ""
    mean, low, high = statistics.fmean(values), min(values), max(values)
    return f"{mean:{form}} ({low:{form}} to {high:{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--tasks", default="mbpp:train")
    parser.add_argument("--prompts", type=int, default=8, help="tasks that are answered")
    parser.add_argument("--group-size", type=int, default=8, help="completions of a task")
    parser.add_argument("--groups", type=int, default=2, help="groups that are learned from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--rows", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    arguments = parser.parse_args()
    if not has_bfloat16():
        use_float32_products()
    by_seed = [distances(arguments, seed) for seed in arguments.seeds]
    print("| dtype | algorithm | cosine | norm, of float32's | spread of weights | kl_engine |")
    print("| --- | --- | --- | --- | --- | --- |")
    for dtype in arguments.dtypes:
        for row in arguments.rows:
            rows = [of_seed[dtype][row] for of_seed in by_seed if row in of_seed[dtype]]
            cells = [
                cell([d.cosine for d in rows], ".4f"), cell([d.norm for d in rows], ".2f"),
                cell([d.spread for d in rows], ".3f"), cell([d.kl_engine for d in rows], ".1e"),
            ]  # fmt: skip
            print(f"| {dtype} | {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
