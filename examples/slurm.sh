#!/bin/bash
#SBATCH --job-name=assay
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# `sbatch examples/slurm.sh several_machines.toml --seed 3` trains: torchrun runs once on every node. The job is started again where
# the site allows it, and goes on from its newest checkpoint. RANKS: the ranks that learn on each machine; other GPUs are for servers.
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# 600 seconds, by default 30, in which ranks end their step and save after SIGTERM.
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "${RANKS:-8}" --shutdown-timeout 600 \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" --no-python assay train "$@"
