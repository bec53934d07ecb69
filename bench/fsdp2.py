"""torch's own example of FSDP2 with a model of `bench.rank_memory`, to measure it beside assay.

As in https://github.com/pytorch/examples/tree/main/distributed/FSDP2: the model is made on the meta
device, each block is sharded and then the rest, weights are filled in shards, gradients are clipped
and a fused Adam steps. Here AdamW steps, transformers computes the loss, and a step has as many
micro-batches as assay's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import fully_shard

from assay.policy.blocks import blocks_of


def learn(model: Any, micro_batches: list[torch.Tensor], steps: int) -> None:
    """Take such steps with a model on the meta device. Each rank has micro-batches of its own."""
    for block in blocks_of(model):
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cpu")
    model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    for _ in range(steps):
        for tokens in micro_batches:
            model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
