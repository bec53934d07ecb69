"""AdamW over named parameters, its schedule, and its state as plain tensors (never pickle)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from assay.config.sections import OptimizerSettings
from assay.maths.schedules import factor


class Optimizer:
    """AdamW with decoupled decay on matrices only, gradient clipping and a schedule; `steps` is the stage's length."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, steps: int) -> None:
        self.parameters = dict(parameters)
        self.settings = settings
        self.steps = steps
        matrices = [p for p in self.parameters.values() if p.ndim >= 2]
        others = [p for p in self.parameters.values() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
        used = [group for group in groups if group["params"]]
        self.adamw = torch.optim.AdamW(used, settings.lr, settings.betas, settings.eps, fused=True)

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
                group["lr"] = self.rate(step)
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
            self.adamw.state[parameter][moment] = value.to(parameter.device)
