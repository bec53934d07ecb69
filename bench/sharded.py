"""Memory of a rank while it saves a sharded model.

    torchrun --nproc-per-node 2 -m bench.sharded

A random Llama of 200M parameters in float32. Each rank tells what it holds of the weights, the
largest of them, and by how much its resident memory rises while all write the file.
"""

from __future__ import annotations

import ctypes
import gc
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from assay.distributed.sharded import ShardedRanks
from assay.policy.load import Policy
from assay.train.memory import DeviceMemory, in_words

SHAPE = {
    "vocab_size": 32_000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 13,
    "num_attention_heads": 16, "tie_word_embeddings": True,
}  # fmt: skip


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    chat: Any = None
    model, ranks = LlamaForCausalLM(LlamaConfig(**SHAPE)), ShardedRanks()
    policy = Policy(model, chat, torch.device("cpu"), 0)
    ranks.shard(policy, None)
    weights = {name: one.detach() for name, one in model.named_parameters()}
    sizes = [one.numel() * one.element_size() for one in weights.values()]
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    memory = DeviceMemory(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as own:
        folders = [own]
        dist.broadcast_object_list(folders)
        before = memory.used
        memory.reset_peak()
        ranks.save(weights, Path(folders[0]) / "model.safetensors")
        risen = memory.peak - before
        dist.barrier()
    shard, largest = sum(sizes) // ranks.count, max(sizes)
    allowed = shard // 5 + largest
    print(
        f"rank {ranks.number} of {ranks.count}: {sum(sizes) // 4e6:.0f}M parameters, shard"
        f" {in_words(shard)}, largest {in_words(largest)}; saving takes {in_words(risen)}, which is"
        f" {'within' if risen <= allowed else 'MORE THAN'} {in_words(allowed)}"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
