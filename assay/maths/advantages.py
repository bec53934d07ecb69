"""From rewards to advantages: how much better a completion is than expected. Vectors [N] over
completions in, [N] out.
"""

from typing import Literal

import torch
from torch import Tensor

from assay.maths.rewards import MIN_STD

Baseline = Literal["none", "batch", "running", "group", "leave_one_out"]
Scale = Literal["none", "group", "batch", "mean"]


def completion_advantages(
    rewards: Tensor,
    groups: Tensor,
    baseline: Baseline,
    scale: Scale,
    running: float = 0.0,
) -> Tensor:
    """A = (R - baseline) / scale. `rewards` [N], `groups` [N] int64 ids from 0 -> [N].

    The baseline is 0, the batch's mean, the mean of past steps (`running`), or the group's mean
    with or without the completion itself. The scale is 1, the standard deviation of the group or
    the batch, or the group's mean (`group_advantages`). Nothing is divided by one below MIN_STD.
    """
    if baseline in ("none", "running") or (baseline, scale) == ("batch", "group"):
        centre = (
            rewards - {"none": 0.0, "running": running, "batch": float(rewards.mean())}[baseline]
        )
        if scale == "mean":
            return over_mean(centre, rewards, groups)
        std = _group_std(rewards, groups if scale == "group" else torch.zeros_like(groups))
        return centre if scale == "none" else centre / std.masked_fill(std < MIN_STD, 1.0)
    if (baseline, scale) == ("batch", "mean"):
        return over_mean(rewards - rewards.mean(), rewards, groups)
    pools = torch.zeros_like(groups) if baseline == "batch" else groups
    return group_advantages(rewards, pools, scale, leave_one_out=baseline == "leave_one_out")


def group_advantages(
    rewards: Tensor,
    groups: Tensor,
    scale: Scale = "group",
    *,
    leave_one_out: bool = False,
) -> Tensor:
    """A = (R - mean of the group) / std. `rewards` [N], `groups` [N] int64 ids from 0 -> [N].

    GRPO (arXiv:2402.03300 section 4.1.2) divides by the group's standard deviation, Dr. GRPO
    (arXiv:2503.20783) by nothing. `leave_one_out` compares a completion with the n - 1 others
    (RLOO, arXiv:2402.14740), which is n / (n - 1) times the difference from the group's mean. A
    group of zero variance (std below MIN_STD) gets exactly 0, so rounding is never amplified.
    MaxRL (arXiv:2602.02710) divides by the group's mean (`over_mean`).
    """
    mean, sizes = _group_means(rewards, groups)
    centre = rewards - mean
    std = _group_std(rewards, groups)
    zero_variance = std < MIN_STD
    if leave_one_out:
        centre = centre * sizes / (sizes - 1).clamp(min=1)
    if scale == "group":
        centre = centre / std.clamp(min=MIN_STD)
    elif scale == "batch":
        centre = centre / rewards.std(correction=0).clamp(min=MIN_STD)
    elif scale == "mean":
        centre = over_mean(centre, rewards, groups)
    return centre.masked_fill(zero_variance, 0.0)


def over_mean(values: Tensor, rewards: Tensor, groups: Tensor) -> Tensor:
    """`values` [N] over the mean reward of each one's group; 0 where it is below MIN_STD -> [N].

    A group without a success says nothing of how likely one is (MaxRL, arXiv:2602.02710).
    """
    mean, _ = _group_means(rewards, groups)
    return (values / mean.clamp(min=MIN_STD)).masked_fill(mean < MIN_STD, 0.0)


def gae(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimation (GAE, arXiv:1506.02438 eq. 16) over the tokens of one
    completion. All [T] -> [T].

    A_t = d_t + gamma lambda A_(t+1), d_t = r_t + gamma V_(t+1) - V_t; V and A are 0 after the last
    token.
    """
    advantages: list[float] = []
    next_advantage, next_value = 0.0, 0.0
    for reward, value in zip(reversed(rewards.tolist()), reversed(values.tolist()), strict=True):
        next_advantage = reward + gamma * next_value - value + gamma * lam * next_advantage
        next_value = value
        advantages.append(next_advantage)
    return torch.tensor(advantages[::-1], dtype=rewards.dtype)


def whiten(values: Tensor) -> Tensor:
    """(x - mean) / std over all of `values` [N]; 0 where the std is below MIN_STD."""
    return group_advantages(values, torch.zeros(len(values), dtype=torch.int64))


def _group_means(rewards: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """[N] the mean of each one's group, and [N] the group's size."""
    zeros = torch.zeros(int(groups.max()) + 1 if len(groups) else 0, dtype=rewards.dtype)
    sizes = zeros.index_add(0, groups, torch.ones_like(rewards))
    return (zeros.index_add(0, groups, rewards) / sizes)[groups], sizes[groups]


def _group_std(rewards: Tensor, groups: Tensor) -> Tensor:
    """[N] the population standard deviation of each one's group."""
    mean, _ = _group_means(rewards, groups)
    return _group_means((rewards - mean).square(), groups)[0].sqrt()
