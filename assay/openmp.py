"""How OpenMP threads wait: `os.environ.update(waiting())`, before torch is imported."""

from __future__ import annotations

import os


def waiting() -> dict[str, str]:
    """Spin for microseconds at a barrier, then sleep. Empty if the environment has its own policy.

    By default threads spin for milliseconds and block a core that the judge needs. A thread that
    sleeps at once takes longer to wake than a small matrix product takes. The OpenMP of Intel and
    LLVM counts in milliseconds, so there threads sleep at once.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        return {}
    return {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}
