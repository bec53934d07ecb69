"""From rewards to advantages: what a completion did better than expected. Vectors [N] over completions in, [N] out."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Scale = Literal["none", "group", "batch"]


def centred(rewards: Tensor) -> Tensor:
    """Rewards [N] less their mean: the batch as its own baseline."""
    return rewards - rewards.mean()


def standardised(rewards: Tensor, floor: float = 1e-4) -> Tensor:
    """(r - mean) / std over the batch [N]; where the std is under `floor`, 0: equal rewards teach nothing."""
    centre = centred(rewards)
    std = rewards.std(correction=0)
    return torch.zeros_like(centre) if std < floor else centre / std


def group_centred(rewards: Tensor, groups: Tensor, scale: Scale = "group", floor: float = 1e-4) -> Tensor:
    """Rewards less their group's mean, over the group's or the batch's standard deviation, or as they are.

    GRPO (arXiv:2402.03300, section 4.1.2) divides by the group's; Dr. GRPO (arXiv:2503.20783) by nothing. `rewards`
    [N], `groups` [N] int64 ids from 0. A group whose rewards differ by less than `floor` gets exactly 0: rounding is
    never amplified.
    """
    count = int(groups.max()) + 1
    sizes = torch.zeros(count).index_add_(0, groups, torch.ones_like(rewards))
    mean = torch.zeros(count).index_add_(0, groups, rewards) / sizes
    centre = rewards - mean[groups]
    variance = torch.zeros(count).index_add_(0, groups, centre.square()) / sizes
    flat = variance.sqrt()[groups] < floor
    if scale == "group":
        centre = centre / variance.sqrt()[groups].clamp(min=floor)
    elif scale == "batch":
        centre = centre / rewards.std(correction=0).clamp(min=floor)
    return centre.masked_fill(flat, 0.0)
