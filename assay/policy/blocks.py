"""The blocks of a model, and a model in host memory that computes elsewhere, block by block."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from assay.policy.forward import unwrap_model


def blocks_of(model: Any) -> list[nn.Module]:
    """The modules that transformers keeps on one device, an outer one before those inside it."""
    base = unwrap_model(model)
    names = set(base._no_split_modules or ())
    return [module for module in base.modules() if type(module).__name__ in names]


@contextmanager
def computing_on(device: torch.device, model: Any) -> Iterator[None]:
    """Meanwhile, the model's passes without a gradient run on `device`. If its weights are
    elsewhere, a block's are there while the block computes, and those of no block all the time.
    """
    if model.device.type == device.type:
        yield
        return
    blocks = blocks_of(model)
    inside = set(chain.from_iterable(block.modules() for block in blocks))
    aside: dict[nn.Module, list[tuple[dict[str, Any], dict[str, Any]]]] = {}

    def bring(owner: nn.Module, modules: Iterable[nn.Module]) -> None:
        copies: dict[Tensor, Tensor] = {}  # of weights that have two places, one is enough
        aside[owner] = []
        for module in modules:
            holders: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for tensors in holders:
                aside[owner].append((tensors, dict(tensors)))
                for name, tensor in tensors.items():
                    if tensor is not None:
                        if tensor not in copies:
                            copies[tensor] = _moved(tensor, device)
                        tensors[name] = copies[tensor]

    def put_back(owner: nn.Module) -> None:
        for tensors, before in aside.pop(owner):
            tensors.update(before)

    hooks = [block.register_forward_pre_hook(lambda block, _: bring(block, block.modules()))
             for block in blocks]  # fmt: skip
    hooks += [block.register_forward_hook(lambda block, *_: put_back(block)) for block in blocks]
    try:
        bring(model, [module for module in model.modules() if module not in inside])
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for owner in reversed([*aside]):
            put_back(owner)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    copy = tensor.detach().to(device)
    return nn.Parameter(copy, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copy
