"""Counts what a learner's rank holds of its GPU, from shapes alone: `assay plan --gpus`.

It follows the code that allocates: sharded.py gathers weights and keeps gradients; optimizer.py has
masters and moments; layers.py, packed.py and head.py keep activations. Each of them tells its own
bytes, and tests/distributed/test_rank_memory.py compares the sum with measured peaks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.policy.blocks import blocks_of
from assay.policy.critic import Critic
from assay.policy.forward import unwrap_model
from assay.policy.head import head_bytes
from assay.policy.layers import EfficientMLP, kept_by_layer, passing_through_layer
from assay.policy.packed import kept_by_attention
from assay.train.optimizer import bytes_of

NF4 = 0.516
"""Bytes of a number in NF4 with double quantization: 4 bits, and 0.127 for its block's scale."""
FLOAT32 = 4
WEIGHTS, COPY, GATHERED = "weights", "whole copy for the engine", "gathered weights"
GRADIENTS, ACTIVATIONS, HEAD = "gradients", "activations", "logits and head"
Parts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Load:
    """What a rank learns from, and with how many others."""

    ranks: int
    """1: one process, which shards nothing."""
    tokens: int
    """Of the largest micro-batch."""
    several: bool
    """Whether a gradient step has more than one micro-batch."""
    checkpointed: bool
    """Whether activations are recomputed in the backward pass."""
    offloaded: bool = False
    """Whether what checkpoints keep is in host memory."""
    shards: int = 0
    """Over how many ranks weights are sharded; 0: over all."""
    reference: bool = False
    """Whether the weights of the stage's start are kept."""
    critic: bool = False
    teacher: int = 0
    """Bytes of the teacher's weights."""
    quantized: bool = False
    """Whether frozen matrices of the blocks have 4 bits, whole on each rank."""
    device: str = "cuda"
    """The type of the device: it decides the size of a tile of logits."""

    @property
    def each(self) -> int:
        """Over how many ranks a weight is sharded."""
        return self.shards or self.ranks


class ModelTensors:
    """The tensors of a model on the meta device, as `ShardedRanks.shard` groups them: its blocks,
    and the root with all the rest.
    """

    def __init__(self, model: Any) -> None:
        base = unwrap_model(model)
        self.config = base.config.get_text_config()
        self.blocks = [list(module.parameters()) for module in blocks_of(model)]
        inside = {id(tensor) for block in self.blocks for tensor in block}
        self.all: list[Tensor] = list(model.parameters())
        self.root = [tensor for tensor in self.all if id(tensor) not in inside]
        self.buffers = bytes_in(model.buffers())
        self.head: Tensor = base.get_output_embeddings().weight
        self.is_efficient = any(isinstance(module, EfficientMLP) for module in base.modules())
        self.size = int(self.head.element_size())
        self.largest = max(self.blocks, key=bytes_in, default=[])

    @property
    def numbers(self) -> int:
        """Parameters, adapters included."""
        return sum(tensor.numel() for tensor in self.all)

    def whole(self, quantized: bool = False) -> int:
        """Bytes of all weights in one piece."""
        return bytes_in(self.all) + self.buffers - (self._saved(self.all) if quantized else 0)

    def sharded(self, load: Load) -> int:
        """Bytes of weights that a rank keeps all the time."""
        if not load.quantized:
            return in_shards(self.all, load.each) + self.buffers
        frozen = [tensor for tensor in self.all if self._is_quantized(tensor)]
        frozen_ids = {id(tensor) for tensor in frozen}
        others = [tensor for tensor in self.all if id(tensor) not in frozen_ids]
        nf4 = int(NF4 * sum(tensor.numel() for tensor in frozen))
        return in_shards(others, load.each) + self.buffers + nf4

    def gathered(self, tensors: Iterable[Tensor], load: Load) -> int:
        """Bytes of the whole weights of a block or the root; 0 in one process, which has them."""
        if load.ranks == 1:
            return 0
        sharded = [t for t in tensors if not (load.quantized and self._is_quantized(t))]
        return bytes_in(sharded)

    def _is_quantized(self, tensor: Tensor) -> bool:
        root = {id(each) for each in self.root}
        return tensor.ndim == 2 and not tensor.requires_grad and id(tensor) not in root

    def _saved(self, tensors: Iterable[Tensor]) -> int:
        frozen = [tensor for tensor in tensors if self._is_quantized(tensor)]
        return bytes_in(frozen) - int(NF4 * sum(tensor.numel() for tensor in frozen))


def rank_memory(model: ModelTensors, load: Load) -> dict[str, Parts]:
    """Bytes by part at each moment of a gradient step at which a rank may hold most: of `ranks`
    ones with FSDP2, or alone. What a library or the allocator takes beside tensors is not in it.
    """
    always = _kept(model, load)
    moments = _moments_alone(model, load) if load.ranks == 1 else _moments_of_rank(model, load)
    return {name: always | parts for name, parts in moments.items()}


def peak_of(moments: Mapping[str, Parts]) -> Parts:
    """The parts of the moment that takes most."""
    return max(moments.values(), key=lambda parts: sum(parts.values()))


def _kept(model: ModelTensors, load: Load) -> Parts:
    """Held from the first gradient step to the last."""
    trained = [tensor for tensor in model.all if tensor.requires_grad]
    parts = {WEIGHTS: model.sharded(load)}
    for tensor in trained:
        for name, each in bytes_of(tensor.dtype).items():
            if name != GRADIENTS:
                parts[name] = parts.get(name, 0) + each * in_shard(tensor, load.each)
    parts["reference"] = in_shards(trained, load.each) if load.reference else 0
    parts["teacher"] = load.teacher
    if load.critic:
        with torch.device("meta"):
            critic = [*Critic(model.config.hidden_size).parameters()]
        each = FLOAT32 + sum(bytes_of(torch.float32).values())
        parts["critic"] = each * sum(in_shard(tensor, load.each) for tensor in critic)
    return parts


def _moments_of_rank(model: ModelTensors, load: Load) -> dict[str, Parts]:
    """Each micro-batch's gradients are reduced block by block, from the last block to the first;
    the root comes last. The shards of the sum of those before stay. The root stays gathered through
    a whole pass. In the backward pass the next block is gathered while one works, and a gathering
    holds its weights twice for a moment.
    """
    trained, root = ([t for t in tensors if t.requires_grad] for tensors in (model.all, model.root))
    block = [tensor for tensor in model.largest if tensor.requires_grad]
    of_root, of_block = model.gathered(model.root, load), model.gathered(model.largest, load)
    head = head_bytes(load.tokens, model.head, load.device)
    of_head = model.head.nbytes if model.head.requires_grad else 0
    # A block's own gradients, the buffer that is reduced, and the library's copy of it.
    fresh = of_head + bytes_in(block) + 2 * FLOAT32 * numbers(block)
    shards = FLOAT32 * sum(in_shard(tensor, load.each) for tensor in trained)
    root_shards = FLOAT32 * sum(in_shard(tensor, load.each) for tensor in root)
    before = shards if load.several else 0
    of_blocks = shards if load.several else shards - root_shards
    return {
        "the head's backward pass": {
            GRADIENTS: before,
            ACTIVATIONS: _activations(model, load),
            GATHERED: of_root,
            HEAD: max(head, of_root),
        },
        "the last block's backward pass": {
            GRADIENTS: before + fresh,
            ACTIVATIONS: _activations(model, load) + _passing(model, load),
            GATHERED: of_root + 2 * of_block,
        },
        "the first block's backward pass": {
            GRADIENTS: of_blocks + fresh,
            ACTIVATIONS: _layer(model, load) + _passing(model, load),
            GATHERED: of_root + 2 * of_block,
        },
        "the reduction of the rest": {
            GRADIENTS: of_blocks + 2 * FLOAT32 * numbers(root) + root_shards, GATHERED: of_root
        },
        "the optimizer's step": {GRADIENTS: shards},
    }  # fmt: skip


def _moments_alone(model: ModelTensors, load: Load) -> dict[str, Parts]:
    """One process has all weights. Each gradient goes to its float32 sum as soon as it is there."""
    trained = [tensor for tensor in model.all if tensor.requires_grad]
    whole = FLOAT32 * numbers(trained)
    largest = max((tensor.nbytes for tensor in trained), default=0)
    before = whole if load.several else 0
    activations, head = _activations(model, load), head_bytes(load.tokens, model.head, load.device)
    return {
        "the head's backward pass": {GRADIENTS: before, ACTIVATIONS: activations, HEAD: head},
        "the last block's backward pass": {
            GRADIENTS: before + largest,
            ACTIVATIONS: activations + _passing(model, load),
        },
        "the end of the backward pass": {GRADIENTS: whole + largest},
    }


def _activations(model: ModelTensors, load: Load) -> int:
    """What all layers keep for the backward pass; with checkpoints the inputs of all, or of one
    where they are offloaded, and what one layer keeps while it is recomputed. Around them are the
    last norm's input, output and gradient.
    """
    layers, hidden = int(model.config.num_hidden_layers), int(model.config.hidden_size)
    inputs = hidden * load.tokens * model.size
    layer = _layer(model, load)
    checkpoints = (1 if load.offloaded else layers) * inputs
    return 3 * inputs + (checkpoints + layer if load.checkpointed else layers * layer)


def _layer(model: ModelTensors, load: Load) -> int:
    """What one layer keeps for its backward pass."""
    values = kept_by_layer(model.config, model.is_efficient)
    values += kept_by_attention(model.config, load.device)
    return values * load.tokens * model.size


def _passing(model: ModelTensors, load: Load) -> int:
    return passing_through_layer(model.config) * load.tokens * model.size


def numbers(tensors: Iterable[Tensor]) -> int:
    """How many numbers they hold."""
    return sum(tensor.numel() for tensor in tensors)


def bytes_in(tensors: Iterable[Tensor]) -> int:
    """Their bytes."""
    return sum(tensor.nbytes for tensor in tensors)


def in_shard(tensor: Tensor, shards: int) -> int:
    """Numbers in the largest shard: `shards.rows_of` cuts along the rows."""
    return -(-len(tensor) // shards) * tensor[0].numel()


def in_shards(tensors: Iterable[Tensor], shards: int) -> int:
    """Bytes of the largest shards."""
    return sum(in_shard(tensor, shards) * tensor.element_size() for tensor in tensors)
