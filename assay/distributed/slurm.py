"""The batch file that starts a run under Slurm: `torchrun` once on every node."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from assay.config.sections import SlurmSettings

PORT = 29500
"""Where the first node's torchrun listens for the others."""
SHUTDOWN_SECONDS = 600
"""How long torchrun lets ranks end their step and save after SIGTERM; 30 by default."""


def sbatch(name: str, slurm: SlurmSettings, words: Sequence[str]) -> str:
    """A file for `sbatch` that trains: `words` are what follows `assay`.

    The job is started again where the site allows it, and goes on from its newest checkpoint.
    """
    options = {
        "job-name": name, "nodes": slurm.nodes, "ntasks-per-node": 1,
        "gpus-per-node": slurm.gpus_per_node, "time": slurm.time, "partition": slurm.partition,
        "output": "%x-%j.log", "open-mode": "append", "requeue": "",
    }  # fmt: skip
    lines = [f"#SBATCH --{key}{value and f'={value}'}" for key, value in options.items()
             if value or key == "requeue"]  # fmt: skip
    many = (
        "srun torchrun --nnodes $SLURM_NNODES"
        f" --nproc-per-node {slurm.ranks_per_node or slurm.gpus_per_node}"
        f" --shutdown-timeout {SHUTDOWN_SECONDS}"
        " --rdzv-id $SLURM_JOB_ID --rdzv-backend c10d"
        f' --rdzv-endpoint "$first:{PORT}" --no-python'
    )
    return "\n".join(
        [
            "#!/bin/bash",
            *lines,
            "set -euo pipefail",
            *slurm.setup,
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            f"{many} assay {shlex.join(words)}",
        ]
    )
