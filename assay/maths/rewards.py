"""Rewards before they become advantages. Plain numbers."""

from collections.abc import Iterable
from statistics import pstdev

MIN_STD = 1e-4
"""A smaller standard deviation counts as zero variance: it is rounding, not a difference."""


def have_zero_variance(rewards: Iterable[float]) -> bool:
    """Whether the standard deviation of a group's rewards is below MIN_STD, or there are none."""
    values = list(rewards)
    return not values or pstdev(values) < MIN_STD


def overlong_punishment(length: float, limit: int, share: float) -> float:
    """Soft overlong punishment, from 0 down to -1 (DAPO, arXiv:2503.14476 eq. 13).

    0 until only the last `share` of `limit` tokens is left, then linear down to -1 at `limit`.
    """
    return -min(max(length / limit - (1 - share), 0.0) / share, 1.0)
