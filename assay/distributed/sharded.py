"""Weights in shards (FSDP2) over the ranks of a job or of a machine, and samples in shares."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from assay.algorithms.base import by_group
from assay.config.sections import PolicySettings
from assay.distributed.empty import allocate, describe, tensors_of
from assay.distributed.shards import safetensors_layout, shard_of, write_shards
from assay.errors import ModelError, TrainingError
from assay.policy.blocks import blocks_of
from assay.policy.forward import ModelOutput, alone_from, forward, unwrap_model
from assay.policy.load_model import Policy, is_empty, load_policy
from assay.train.batch import to_batch
from assay.train.ranks import Ranks, combined
from assay.types import Batch, Metrics, Sample

T = TypeVar("T")


class View(nn.Module):
    """All that learning computes with, in one module, so that FSDP sees every use of a weight."""

    def __init__(self, model: Any, critic: Any) -> None:
        super().__init__()
        self.model, self.critic = model, critic

    def forward(self, batch: Batch, *options: Any, **keywords: Any) -> tuple[Tensor | None, ...]:
        """What `policy.forward.forward` gives, as a tuple."""
        output = forward(self.model, batch, *options, **keywords)
        return tuple(getattr(output, field.name) for field in fields(output))


class ShardedRanks(Ranks):
    """Ranks that hold a shard of every weight each, and gather one block's weights at a time.

    `whole_policy`, on the leader alone, is the policy that engines load, and whose weights fill the
    shards of an empty one; they may be in host memory. `hybrid` shards over the ranks of one
    machine, and every machine holds all shards (HSDP).
    """

    def __init__(self, whole_policy: Policy | None = None, *, hybrid: bool = False) -> None:
        self.whole_policy = whole_policy
        self.number, self.count = dist.get_rank(), dist.get_world_size()
        self.shards = int(os.environ["LOCAL_WORLD_SIZE"]) if hybrid else self.count
        self.view: Any = None

    def shard(self, policy: Policy, critic: Any) -> None:
        """Shard each block by itself, and the rest with the root: embedding and head may be one.
        Quantized weights stay whole: their layout allows no shards, and they are small.

        Of an empty policy, a rank never holds more than its shards and one block. `rank_memory`
        groups the weights in the same way. Raises ModelError for a model that is not built from its
        configuration alone.
        """
        base, empty = unwrap_model(policy.model), is_empty(policy.model)
        if empty:
            describe(policy, self.whole_policy)
        names_before = set(tensors_of(policy))  # names alone: whole weights are to be freed
        self.alone_from = alone_from(policy.model)
        self._require_shorter(0)
        self.view = View(policy.model, critic)
        quantized = {p for p in self.view.parameters() if not p.is_floating_point()}
        shape, names = (self.count // self.shards, self.shards), ("replicate", "shard")
        mesh = init_device_mesh(policy.device.type, shape, mesh_dim_names=names)
        shared = mesh if self.shards < self.count else mesh["shard"]
        options: dict[str, Any] = {
            "mesh": shared,
            "ignored_params": quantized,
            "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float32),
        }
        for block in reversed(blocks_of(policy.model)):  # one inside another first
            allocate(block, policy.device)
            fully_shard(block, **options)
        if critic is not None:  # float32, beside weights that may be bfloat16
            fully_shard(critic, mesh=shared)
        allocate(policy.model, policy.device)
        if untied := sorted(tensors_of(policy).keys() - names_before):
            raise ModelError(
                f"{type(base).__name__} has weights that several blocks share, as {untied[0]}, and"
                " ranks shard each block by itself; train it in one process, without torchrun"
            )
        fully_shard(self.view, reshard_after_forward=True, **options)
        for module in self.view.modules():
            if isinstance(module, FSDPModule):  # gradients are sums, as in one process
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self.device = policy.device
        self._spread(tensors_of(policy) if empty else policy.trainable)

    @torch.no_grad()
    def _spread(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill them with the leader's, one whole tensor at a time."""
        assert self.number or self.whole_policy, "the leader has the weights"
        source = tensors_of(self.whole_policy) if self.whole_policy else {}
        for name, tensor in tensors.items():
            whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            if source:
                whole.copy_(source[name])
            dist.broadcast(whole.view(-1).view(torch.uint8), src=0)
            tensor.data.copy_(self.part(whole, tensor))

    def forward(self, model: Any, batch: Batch, *options: Any, **keywords: Any) -> ModelOutput:
        """Through the view, with the same model."""
        return ModelOutput(*self.view(batch, *options, **keywords))

    def share(self, samples: Sequence[Sample], *, whole_groups: bool = False) -> list[Sample]:
        """The longest part first, each to the rank with the fewest tokens so far. A group that has
        more than an even share of all tokens is cut into parts, unless `whole_groups` are needed.
        """
        self._require_shorter(max((len(sample.tokens) for sample in samples), default=0))
        return self._shares(samples, whole_groups)[self.number]

    def _require_shorter(self, longest: int) -> None:
        """Alone, sequences would be more passes through the model on one rank than on another."""
        if longest >= self.alone_from:
            raise TrainingError(
                f"from {self.alone_from:.0f} tokens on, this model's results depend on what shares"
                " its batch, and ranks need batches; train in one process, without torchrun"
            )

    def _shares(self, samples: Sequence[Sample], whole_groups: bool) -> list[list[Sample]]:
        shares: list[list[Sample]] = [[] for _ in range(self.count)]
        sizes = [0] * self.count
        groups = by_group(samples)
        if not whole_groups:
            even = tokens_in(samples) / self.count
            groups = [part for group in groups for part in parts_of(group, even)]
        for size, group in sorted(
            ((tokens_in(group), group) for group in groups), key=lambda sized: -sized[0]
        ):
            least = sizes.index(min(sizes))
            sizes[least] += size
            shares[least] += group
        return shares

    def union(
        self, samples: Sequence[Sample], share: Sequence[Sample], *, whole_groups: bool = False
    ) -> list[Sample]:
        """Every rank sends its share to all."""
        shares = self._shares(samples, whole_groups)
        updated = {
            id(sample): new
            for before, after in zip(shares, self._gathered(list(share)), strict=True)
            for sample, new in zip(before, after, strict=True)
        }
        return [updated[id(sample)] for sample in samples]

    def rounds(self, pieces: Sequence[T]) -> Iterator[T]:
        """As many as the rank that has most. Each one's gradients are reduced block by block, and a
        rank adds up those of its shards alone: `rank_memory` counts them. Machines that hold the
        same shards add up theirs once, in the last round.
        """
        most = max(self._gathered(len(pieces)))
        for number in range(most):
            self.view.set_requires_all_reduce(number + 1 == most)
            if number < len(pieces):
                yield pieces[number]
            else:
                self._idle()

    def _idle(self) -> None:
        """Take part in a round without samples: a gradient of zeros."""
        batch = to_batch([Sample((0, 0), (False, True))], 0, self.device)
        output = self.view(batch, critic=self.view.critic)
        nothing = sum(0.0 * part.sum() for part in output if part is not None)
        if torch.is_grad_enabled():
            nothing.backward()

    def totals(self, numbers: Mapping[str, float]) -> Metrics:
        """Added up in the order of ranks."""
        return combined(self._gathered(dict(numbers)), sum)

    def collect(self, batches: list[Batch]) -> list[Batch]:
        """On the CPU: a rank does not use another's GPU."""
        there = [replace(batch, **_on_cpu(batch)) for batch in batches]
        return [batch for batches in self._gathered(there) for batch in batches]

    def whole(self, policy: Policy) -> Policy:
        """Gather one weight at a time into the leader's whole policy."""
        into = self.whole_policy.trainable if self.whole_policy else {}
        for name, parameter in policy.trainable.items():
            whole = _whole(parameter)
            if name in into:
                into[name].data.copy_(whole)
        return self.whole_policy or policy

    def save_policy(self, policy: Policy, folder: Path) -> None:
        """An adapter is gathered; a whole model is written by all ranks."""
        adapted = hasattr(policy.model, "peft_config")
        tensors = {name: p.detach() for name, p in policy.model.named_parameters()}
        stored = policy.model.state_dict().keys()
        tensors |= {name: b for name, b in policy.model.named_buffers() if name in stored}
        adapter = {n: _whole(tensors[n]) for n in policy.trainable} if adapted else {}
        if not self.number:
            whole = self.whole_policy or policy
            whole.model.save_pretrained(folder, state_dict=adapter)
            whole.save_beside(folder)
        if not adapted:
            self.save(tensors, folder / "model.safetensors")

    def save(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        """Every rank writes its shards to their places in one file, which all of them see."""
        header, places = safetensors_layout(tensors)
        if not self.number:
            with file.open("wb") as out:
                out.write(header)
                out.truncate(places[-1])
        dist.barrier()
        if self.number < self.shards:  # other machines hold the same
            write_shards(tensors, places, file, self.number, self.shards)
        dist.barrier()

    def restore_policy(self, policy: Policy, settings: PolicySettings) -> None:
        """The leader alone loads, and sends."""
        if self.whole_policy:
            self.whole_policy.copy_weights(load_policy(settings).trainable)
        self._spread(policy.trainable)

    def part(self, whole: Any, like: Tensor) -> Tensor:
        """The rows of a shard, and nothing else of the whole."""
        if not isinstance(like, DTensor):
            return super().part(whole, like)
        return shard_of(whole, like, self.number % self.shards, self.shards)

    def _gathered(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values


def tokens_in(samples: Sequence[Sample]) -> int:
    """The sum of their lengths."""
    return sum(len(sample.tokens) for sample in samples)


def parts_of(group: Sequence[Sample], most: float) -> Iterator[list[Sample]]:
    """The group, or where it has more than `most` tokens the fewest runs of about equal length that
    may have so many. Samples of one prompt stay side by side: in a micro-batch they share it.
    """
    size = tokens_in(group)
    count = math.ceil(size / most) if most else 1
    runs: list[list[Sample]] = [[] for _ in range(count)]
    before = 0
    for sample in group:
        middle = before + len(sample.tokens) / 2
        runs[int(count * middle / size)].append(sample)
        before += len(sample.tokens)
    yield from filter(None, runs)


def _on_cpu(batch: Batch) -> dict[str, Tensor]:
    values = ((field.name, getattr(batch, field.name)) for field in fields(batch))
    return {name: value.cpu() for name, value in values if value is not None}


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
