"""`assay` in which one method of a learner, or a function of its start, fails on one rank after
some calls.

python -m tests.distributed.broken METHOD RANK CALLS WORD ...
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from assay import cli
from assay.distributed import job, sharded
from assay.errors import MachineError
from assay.train.learner import Learner


def fail(of: Any, method: str, rank: str, calls: int) -> None:
    usual, made = getattr(of, method), [0]

    def failing(*given: Any, **named: Any) -> Any:
        made[0] += 1
        if made[0] > calls and os.environ.get("RANK") == rank:
            why = errno.ENOSPC, "no space left on the device"
            raise MachineError(why[1]) if rank == "1" else OSError(*why)
        return usual(*given, **named)

    setattr(of, method, failing)


if __name__ == "__main__":
    method, rank, calls, *words = sys.argv[1:]
    where = {"load_policy": job, "allocate": sharded}.get(method, Learner)
    fail(where, method, rank, int(calls))
    sys.argv = ["assay", *words]
    cli.main()
