"""A model without weights, as a rank builds it: what it learns of the leader's, and its memory."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from assay.errors import ModelError
from assay.policy.forward import tried_layouts, unwrap_model, use_layouts
from assay.policy.load_model import Policy


def describe(policy: Policy, whole_policy: Policy | None) -> None:
    """Give an empty policy the types and layouts of the leader's `whole_policy`. Raises ModelError
    for a model that is not built from its configuration alone.
    """
    message: list[Any] = [None]
    if whole_policy:
        whole = whole_policy.model
        tensors = tensors_of(whole_policy).items()
        types = {name: (tensor.dtype, tensor.requires_grad) for name, tensor in tensors}
        message = [(types, {name for name, _ in whole.named_parameters()}, tried_layouts(whole))]
    dist.broadcast_object_list(message)
    types, parameters, layouts = message[0]
    weights = tensors_of(policy)  # the leader's may have more buffers: RoPE makes some when it runs
    inside = {
        f"{where}.{name}".lstrip(".")
        for where, module in policy.model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and value.is_meta  # it is no weight, and nobody would fill it
    }
    if other := sorted((weights.keys() - types.keys()) | (parameters - weights.keys()) | inside):
        raise ModelError(
            f"ranks build {type(unwrap_model(policy.model)).__name__} from its configuration,"
            f" which gives it other weights than its files, as {other[0]}; train it in one"
            " process, without torchrun"
        )
    for name, tensor in weights.items():
        dtype, learns = types[name]
        tensor.data = tensor.data.to(dtype)
        tensor.requires_grad_(learns)
    use_layouts(policy.model, layouts)


def allocate(module: nn.Module, device: torch.device) -> None:
    """Give the empty weights and buffers of `module` memory, tied ones the same."""
    replacements: dict[Tensor, Tensor] = {}
    for inner in module.modules():
        holders: tuple[dict[str, Any], ...] = (inner._parameters, inner._buffers)
        for tensors in holders:
            for name, tensor in tensors.items():
                if tensor is not None and tensor.is_meta:
                    if tensor not in replacements:
                        filled = torch.empty_like(tensor, device=device)
                        parameter = isinstance(tensor, nn.Parameter)
                        replacements[tensor] = (
                            nn.Parameter(filled, tensor.requires_grad) if parameter else filled
                        )
                    tensors[name] = replacements[tensor]


def tensors_of(policy: Policy) -> dict[str, Tensor]:
    """All that the model computes with: weights, and buffers under each of their names."""
    buffers = policy.model.named_buffers(remove_duplicate=False)
    return dict((*policy.model.named_parameters(), *buffers))
