"""How OpenMP's threads wait for one another: `os.environ.update(waiting())`, before torch is
imported.
"""

from __future__ import annotations

import os


def waiting() -> dict[str, str]:
    """Spin for microseconds at a barrier, then sleep; nothing where the environment has a policy of
    its own.

    By default they spin for milliseconds, which stalls whoever wants the core, the judge above all;
    and a thread that sleeps at once takes as long to wake as the small product that it is woken
    for. Intel's and LLVM's know milliseconds only, and sleep.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        return {}
    return {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}
