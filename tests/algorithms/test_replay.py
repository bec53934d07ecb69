"""A replayed sample moves no baseline, keeps its advantage, and weighs at most 2."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from assay.algorithms import algorithms
from assay.maths.losses import truncation
from assay.policy.forward import ModelOutput
from assay.train.batch import to_batch
from assay.types import Batch, Sample

SAMPLER = {"name": "cispo", "anchor": "sampler"}
DPPO = {"name": "dppo"}


def sample(reward: float, group: str = "a", **more: Any) -> Sample:
    return Sample((5, 6, 7), (False, True, True), (0.0, -1.0, -2.0), reward=reward, group=group,
                  **more)  # fmt: skip


FRESH = [sample(1.0), sample(0.0), sample(0.0), sample(0.0)]
REPLAYED = sample(1.0, advantages=(0.0, 2.5, 2.5), replayed=True)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        # (1 - 1/4) / std, and -1/4 / std, of four rewards with the deviation sqrt(3) / 4
        (DPPO, [math.sqrt(3), *[-1 / math.sqrt(3)] * 3]),
        (SAMPLER, [math.sqrt(3), *[-1 / math.sqrt(3)] * 3]),
        # 1 - the mean of the batch: a fifth reward of 1 would make it 2/5
        (DPPO | {"baseline": "batch", "scale": "none"}, [0.75, -0.25, -0.25, -0.25]),
        (DPPO | {"baseline": "leave_one_out", "scale": "none"}, [1.0, *[-1 / 3] * 3]),
    ],
)
def test_a_replayed_pass_shifts_no_baseline_and_no_scale_of_fresh_rollouts(
    table: dict[str, Any], expected: list[float]
) -> None:
    algorithm = algorithms[table["name"]].build(table)
    alone = algorithm.compute_advantages(FRESH)
    beside = algorithm.compute_advantages([*FRESH, REPLAYED])
    assert [one.advantages[1] for one in alone] == pytest.approx(expected, rel=1e-5)
    assert [one.advantages for one in beside[:4]] == [one.advantages for one in alone]
    assert list(beside[4].advantages) == [0.0, 2.5, 2.5], "of its own step"


def test_a_replayed_pass_is_not_in_the_running_mean_of_rewards() -> None:
    algorithm = algorithms["dppo"].build(DPPO | {"baseline": "running", "scale": "none"})
    assert algorithm.running_baseline is not None
    algorithm.compute_advantages([*FRESH, REPLAYED])
    assert algorithm.running_baseline.tolist() == [0.25, 1.0]


def test_the_factor_of_a_truncated_weight() -> None:
    factors = truncation(torch.tensor([0.0, 0.5, 2.0, 4.0, 8.0]), 2.0)
    assert factors.tolist() == [1.0, 1.0, 1.0, 0.5, 0.25]


def two_rows() -> Batch:
    """The same tokens fresh and replayed. The sampler gave them 0.01, 0.01 and 0.04."""
    sampler = (0.0, math.log(0.01), math.log(0.01), math.log(0.04))
    mask = (False, True, True, True)
    row = Sample((5, 6, 7, 8), mask, sampler, advantages=(0.0, 3.0, 3.0, 3.0))
    again = Sample((5, 6, 7, 8), mask, sampler, advantages=(0.0, 3.0, 3.0, 3.0), replayed=True)
    return to_batch([row, again], 0, torch.device("cpu"))


NOW = torch.tensor([[0.0, math.log(0.08), math.log(0.03), math.log(0.02)]] * 2)
"""Ratios 8, 3 and 1/2; the total variation is 0.07, 0.02 and 0.02, inside of the trust region."""


@pytest.mark.parametrize(
    ("table", "fresh"),
    [(DPPO, [8.0, 3.0, 0.5]), (SAMPLER, [5.0, 3.0, 0.5]),
     (SAMPLER | {"clip_high": 0.5}, [1.5, 1.5, 0.5])],
)  # fmt: skip
def test_a_replayed_tokens_gradient_has_its_weight_to_the_sampler_up_to_two(
    table: dict[str, Any], fresh: list[float]
) -> None:
    logprobs, batch = NOW.clone().requires_grad_(), two_rows()
    algorithm = algorithms[table["name"]].build(table)
    losses, numbers = algorithm.loss(ModelOutput(logprobs, torch.ones(2, 4)), batch)
    losses.masked_fill(~batch.mask, 0.0).sum().backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    replayed = [min(weight, 2.0) for weight in fresh]
    assert logprobs.grad[0, 1:].tolist() == pytest.approx([-3.0 * w for w in fresh], rel=1e-4)
    assert logprobs.grad[1, 1:].tolist() == pytest.approx([-3.0 * w for w in replayed], rel=1e-4)
    assert numbers["replay/weight"][1, 1:].tolist() == pytest.approx(replayed, rel=1e-4)


def test_a_token_outside_the_trust_region_has_no_gradient_when_it_is_replayed() -> None:
    logprobs = torch.full((2, 4), math.log(0.5)).requires_grad_()  # from 0.01: 0.49 apart
    losses, _ = (
        algorithms["dppo"].build(DPPO).loss(ModelOutput(logprobs, torch.ones(2, 4)), two_rows())
    )
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert not logprobs.grad[1, 1:].any()


def test_only_losses_with_a_ratio_to_the_sampler_learn_from_replays() -> None:
    tables = [DPPO, SAMPLER, {"name": "cispo"}, {"name": "grpo"}, {"name": "gspo"}]
    learn = [algorithms[table["name"]].build(table).learns_replays for table in tables]
    assert learn == [True, True, False, False, False]
