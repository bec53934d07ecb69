"""AdamW over named parameters, its schedule, and its state as plain tensors (never pickle)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from assay.config.sections import OptimizerSettings
from assay.maths.schedules import factor

CRITIC_HASTE = 10.0
"""The critic's learning rate over the policy's: it starts from nothing, and has to keep ahead."""


class Optimizer:
    """AdamW with decoupled decay on matrices only, gradient clipping and a schedule; `steps` is the stage's length."""

    def __init__(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, steps: int, *,
        critic: torch.nn.Module | None = None,
    ) -> None:  # fmt: skip
        own = {} if critic is None else dict(critic.named_parameters(prefix="critic"))
        self.parameters = {**parameters, **own}
        self.settings = settings
        self.steps = steps
        matrices = [p for p in parameters.values() if p.ndim >= 2]
        others = [p for p in parameters.values() if p.ndim < 2]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": settings.weight_decay, "haste": 1.0},
            {"params": others, "weight_decay": 0.0, "haste": 1.0},
            {"params": list(own.values()), "weight_decay": 0.0, "haste": CRITIC_HASTE},
        ]
        self.adamw = torch.optim.AdamW([g for g in groups if g["params"]], settings.lr, settings.betas, settings.eps)

    def rate(self, step: int) -> float:
        """The learning rate at `step` (from 0)."""
        return self.settings.lr * factor(step, self.steps, self.settings.warmup, self.settings.schedule)

    def step(self, step: int) -> float:
        """Clip the gradients, take one step and forget them. Returns the norm [nats per weight] before clipping.

        Where the norm is not finite nothing is changed.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.clip))
        if norm == norm and norm != float("inf"):
            for group in self.adamw.param_groups:
                group["lr"] = self.rate(step) * group["haste"]
            self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        return norm

    def save(self, file: Path) -> None:
        """Write the moments of every parameter as safetensors."""
        tensors = {
            f"{name}|{key}": value.contiguous()
            for name, parameter in self.parameters.items()
            for key, value in self.adamw.state.get(parameter, {}).items()
        }
        save_file(tensors, file)

    def load(self, file: Path) -> None:
        """Take up the moments that `save` wrote."""
        for key, value in load_file(file).items():
            name, _, moment = key.rpartition("|")
            parameter = self.parameters[name]
            where = value if moment == "step" else value.to(parameter.device)
            self.adamw.state[parameter][moment] = where
