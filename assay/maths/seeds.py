"""Each seed is a function of the run's seed and its purpose, so a resumed run samples the same."""

import hashlib


def derive(seed: int, *words: str | int) -> int:
    """A 63-bit seed for one purpose: `derive(0, "rollout", step)`.

    It is equal on every machine and Python version.
    """
    text = "/".join(str(word) for word in (seed, *words))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
