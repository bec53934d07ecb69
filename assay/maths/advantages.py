"""From rewards to advantages: what a completion did better than expected. Vectors [N] over
completions in, [N] out.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Baseline = Literal["none", "batch", "running", "group", "leave_one_out"]
Scale = Literal["none", "group", "batch"]
MIN_STD = 1e-4
"""A standard deviation under this is rounding, not a difference."""


def advantages(
    rewards: Tensor,
    groups: Tensor,
    baseline: Baseline,
    scale: Scale,
    min_std: float = MIN_STD,
    running: float = 0.0,
) -> Tensor:
    """Rewards less a baseline, over a standard deviation. `rewards` [N], `groups` [N] int64 ids
    from 0 -> [N].

    The baseline is 0, the batch's mean, the mean of the past (`running`), or the group's mean with
    or without the completion itself. Whatever it is, nothing is divided by a deviation under
    `min_std`.
    """
    if baseline in ("none", "running") or (baseline, scale) == ("batch", "group"):
        centre = (
            rewards - {"none": 0.0, "running": running, "batch": float(rewards.mean())}[baseline]
        )
        deviation = _spread(rewards, groups if scale == "group" else torch.zeros_like(groups))
        return (
            centre if scale == "none" else centre / deviation.masked_fill(deviation < min_std, 1.0)
        )
    pools = torch.zeros_like(groups) if baseline == "batch" else groups
    return group_centred(rewards, pools, scale, min_std, leave_one_out=baseline == "leave_one_out")


def group_centred(
    rewards: Tensor,
    groups: Tensor,
    scale: Scale = "group",
    min_std: float = MIN_STD,
    *,
    leave_one_out: bool = False,
) -> Tensor:
    """Rewards less their group's mean, over the group's or the batch's standard deviation, or as
    they are.

    GRPO (arXiv:2402.03300, section 4.1.2) divides by the group's; Dr. GRPO (arXiv:2503.20783) by
    nothing. Left out of its own baseline (RLOO, arXiv:2402.14740), a completion of n differs from
    it by n / (n - 1) times as much. `rewards` [N], `groups` [N] int64 ids from 0. A group whose
    rewards differ by less than `min_std` gets exactly 0: rounding is never amplified, and it is
    always the whole group that is judged.
    """
    mean, sizes = _means(rewards, groups)
    centre = rewards - mean
    deviation = _spread(rewards, groups)
    flat = deviation < min_std
    if leave_one_out:
        centre = centre * sizes / (sizes - 1).clamp(min=1)
    if scale == "group":
        centre = centre / deviation.clamp(min=min_std)
    elif scale == "batch":
        centre = centre / rewards.std(correction=0).clamp(min=min_std)
    return centre.masked_fill(flat, 0.0)


def generalised(rewards: Tensor, values: Tensor, gamma: float, decay: float) -> Tensor:
    """Generalised advantage estimation (arXiv:1506.02438, eq. 16) over the tokens of one
    completion. All [T] -> [T].

    A_t = d_t + gamma decay A_(t+1), d_t = r_t + gamma V_(t+1) - V_t, and nothing after the last
    token.
    """
    found: list[float] = []
    later, after = 0.0, 0.0
    for reward, value in zip(reversed(rewards.tolist()), reversed(values.tolist()), strict=True):
        later = reward + gamma * after - value + gamma * decay * later
        after = value
        found.append(later)
    return torch.tensor(found[::-1], dtype=rewards.dtype)


def whitened(values: Tensor, min_std: float = MIN_STD) -> Tensor:
    """(x - mean) / std over all of `values` [N]; 0 where the std is under `min_std`."""
    return group_centred(values, torch.zeros(len(values), dtype=torch.int64), "group", min_std)


def _means(rewards: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """[N] the mean of each one's group, and [N] the group's size."""
    zeros = torch.zeros(int(groups.max()) + 1 if len(groups) else 0, dtype=rewards.dtype)
    sizes = zeros.index_add(0, groups, torch.ones_like(rewards))
    return (zeros.index_add(0, groups, rewards) / sizes)[groups], sizes[groups]


def _spread(rewards: Tensor, groups: Tensor) -> Tensor:
    """[N] the population standard deviation of each one's group."""
    mean, _ = _means(rewards, groups)
    return _means((rewards - mean).square(), groups)[0].sqrt()
