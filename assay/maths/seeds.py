"""Every random draw is a function of the run's seed and of what it is for, so a resumed run draws
the same.
"""

from __future__ import annotations

import hashlib


def derive(seed: int, *words: str | int) -> int:
    """A 63-bit seed for one purpose: `derive(0, "rollout", step)`. Equal on every machine and
    Python version.
    """
    text = "/".join(str(word) for word in (seed, *words))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
