"""Rows of a tensor, as FSDP shards it, and the file of safetensors that ranks write together."""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

NAMES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
}
"""How safetensors calls the types that weights and moments have."""


def rows_of(tensor: DTensor, place: int, shards: int) -> slice:
    """The rows of the shard at `place` among so many, as `torch.chunk` gives them."""
    size = -(-len(tensor) // shards)
    return slice(place * size, (place + 1) * size)


def shard_of(whole: Any, like: DTensor, place: int, shards: int) -> DTensor:
    """The shard at `place` of a whole tensor, or of its place in a file, laid out as `like`."""
    shard = whole[rows_of(like, place, shards)].to(like.device, like.dtype)
    return DTensor.from_local(
        shard, like.device_mesh, like.placements,
        run_check=False, shape=like.shape, stride=like.stride(),
    )  # fmt: skip


def safetensors_layout(tensors: Mapping[str, Tensor]) -> tuple[bytes, list[int]]:
    """The start of a safetensors file: each tensor's type, shape and place; and where in the file
    each starts, then where the last ends.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    ends = list(accumulate((tensor.nbytes for tensor in tensors.values()), initial=0))
    for (name, tensor), place in zip(tensors.items(), pairwise(ends), strict=True):
        kind = NAMES[tensor.dtype]
        header[name] = {"dtype": kind, "shape": [*tensor.shape], "data_offsets": place}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, [8 + len(text) + end for end in ends]


def write_shards(
    tensors: Mapping[str, Tensor], places: Sequence[int], file: Path, place: int, shards: int
) -> None:
    """Write the shard at `place` of each tensor to where it belongs in `file`. Whole tensors are
    written with the first.
    """
    with file.open("r+b") as out:
        for tensor, start in zip(tensors.values(), places, strict=False):
            shard, offset = tensor.detach(), 0
            if isinstance(shard, DTensor):
                offset = rows_of(shard, place, shards).start * (shard.nbytes // len(shard))
                shard = shard.to_local()
            elif place:
                continue
            out.seek(start + offset)
            out.write(shard.flatten().cpu().view(torch.uint8).numpy().data)
        os.fsync(out.fileno())
