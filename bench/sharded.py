"""Memory of a rank while it takes its shards of a model, and while it saves them.

    torchrun --nproc-per-node 2 -m bench.sharded

A random Llama of 200M parameters in float32, which the first rank alone has whole. Each rank tells
what it holds of the weights, the largest of them, and by how much its resident memory rises while
it is given its shards, and while all write the file.
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
from assay.policy.forward import layout_of
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
    config, cpu = LlamaConfig(**SHAPE), torch.device("cpu")
    whole = None
    if not dist.get_rank():
        whole = Policy(LlamaForCausalLM(config), chat, cpu, 0)
        layout_of(whole.model, 0)
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval()
    policy, ranks = Policy(model, chat, cpu, 0), ShardedRanks(whole)
    memory = DeviceMemory(cpu)
    before = settle(memory)
    ranks.shard(policy, None)
    started = memory.peak - before
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    sizes = [tensor.numel() * tensor.element_size() for tensor in weights.values()]
    before = settle(memory)
    with tempfile.TemporaryDirectory() as folder:
        folders = [folder]
        dist.broadcast_object_list(folders)
        ranks.save(weights, Path(folders[0]) / "model.safetensors")
        risen = memory.peak - before
        dist.barrier()
    shard, largest = sum(sizes) // ranks.count, max(sizes)
    allowed = shard // 5 + largest
    print(
        f"rank {ranks.number} of {ranks.count}: {sum(sizes) // 4e6:.0f}M parameters, shard"
        f" {in_words(shard)}, largest {in_words(largest)}; the start takes {in_words(started)};"
        f" saving takes {in_words(risen)}, which is"
        f" {'within' if risen <= allowed else 'MORE THAN'} {in_words(allowed)}"
    )
    dist.destroy_process_group()


def settle(memory: DeviceMemory) -> int:
    """Give unused memory back, and begin a peak at what is left."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    memory.reset_peak()
    return memory.used


if __name__ == "__main__":
    main()
