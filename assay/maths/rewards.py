"""Transformations of a reward before it becomes an advantage. Plain numbers."""

from __future__ import annotations


def rescale(reward: float, source: tuple[float, float], target: tuple[float, float]) -> float:
    """Clamp `reward` to the range `source`, then map that range linearly onto `target`."""
    share = (min(max(reward, source[0]), source[1]) - source[0]) / (source[1] - source[0])
    return target[0] + share * (target[1] - target[0])


def overlong_punishment(length: float, limit: int, share: float) -> float:
    """Soft overlong punishment, from 0 down to -1 (DAPO, arXiv:2503.14476 eq. 13).

    0 until only the last `share` of `limit` tokens is left, then linear down to -1 at `limit`.
    """
    return -min(max(length / limit - (1 - share), 0.0) / share, 1.0)
