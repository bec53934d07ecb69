"""What is done to a reward before it becomes an advantage. Plain numbers."""

from __future__ import annotations


def mapped(reward: float, source: tuple[float, float], target: tuple[float, float]) -> float:
    """`reward` clamped to the range `source`, then mapped linearly from there onto `target`."""
    share = (min(max(reward, source[0]), source[1]) - source[0]) / (source[1] - source[0])
    return target[0] + share * (target[1] - target[0])


def overlong(length: int, limit: int, share: float) -> float:
    """The soft overlong punishment of DAPO (arXiv:2503.14476, eq. 13), from 0 down to -1.

    Nothing until only the last `share` of `limit` tokens is left, then falling linearly to -1 at
    `limit`.
    """
    return -min(max(length / limit - (1 - share), 0.0) / share, 1.0)
