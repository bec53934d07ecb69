"""AdamW over float32 master weights, with a learning-rate schedule; its state is saved as tensors,
never pickle.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from assay.config.sections import OptimizerSettings, RunSettings
from assay.maths.schedules import schedule_factor

MASTER, STEP = "master", "step"
WIDTH, WIDTH_POWER = 4096, 1.65
"""Default learning rates are those of a model this wide; narrower ones need more: 1e-6 here is 3e-4
for the built-in model (128 hidden units) and narrower ones, and 2.5e-5 for SmolLM2-135M (576)."""
CRITIC_LR_FACTOR = 10.0
"""The critic's learning rate over the policy's: it starts from zero and must stay ahead."""


def with_default_lr(settings: RunSettings, rate: float) -> RunSettings:
    """The settings with this rate as `optimizer.lr` if that is not set."""
    if settings.optimizer.lr is not None:
        return settings
    optimizer = settings.optimizer.model_copy(update={"lr": rate})
    return settings.model_copy(update={"optimizer": optimizer})


def default_lr(learns_from: str, adapted: bool, width: int) -> float:
    """The usual learning rate of a model, with two digits. `adapted`: LoRA is trained; `width`:
    hidden units of the model.
    """
    larger = (10 if adapted else 1) * min(300.0, max(1.0, WIDTH / width) ** WIDTH_POWER)
    return float(f"{(1e-5 if learns_from == 'dialogues' else 1e-6) * larger:.1e}")


def bytes_of(dtype: torch.dtype) -> dict[str, int]:
    """Bytes that `Optimizer` holds for each trained number of a parameter, by part."""
    return {"master weights": 0 if dtype is torch.float32 else 4, "optimizer": 8, "gradients": 4}


class OptimizerSteps(Protocol):
    """What the learner asks of an optimizer, wherever its weights are."""

    lr: float
    """The peak learning rate."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Says what a checkpoint holds of it."""

    def lr_at(self, step: int) -> float:
        """Returns the learning rate at `step` (from 0)."""

    def step(self, step: int) -> float | None:
        """Takes one step along the gradients so far, and forgets them. Returns the gradient's norm
        before clipping, if it is known.
        """

    def like(self, key: str) -> Tensor:
        """Returns a tensor laid out as the one of that key in `tensors`."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over tensors of another's `tensors`, laid out as here."""


class Optimizer:
    """AdamW with decoupled weight decay on matrices only, gradient clipping and a schedule.

    `steps` is the length of the stage. A parameter that is not float32 gets a float32 master:
    gradients are added up and steps are taken in the master, and the parameter is its rounded copy.
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], settings: OptimizerSettings, steps: int, *,
        critic: torch.nn.Module | None = None,
    ) -> None:  # fmt: skip
        assert settings.lr is not None, "a stage resolves it"
        critic_parameters = {} if critic is None else dict(critic.named_parameters(prefix="critic"))
        self.parameters = {**parameters, **critic_parameters}
        self.masters = {name: _master(parameter) for name, parameter in self.parameters.items()}
        self.settings = settings
        self.lr = settings.lr
        self.steps = steps
        policy = [master for name, master in self.masters.items() if name not in critic_parameters]
        critics = [self.masters[name] for name in critic_parameters]
        groups: list[dict[str, Any]] = [
            _group([p for p in policy if p.ndim >= 2], settings.weight_decay),
            _group([p for p in policy if p.ndim < 2]),
            _group(critics, lr_factor=CRITIC_LR_FACTOR),
        ]
        used = [group for group in groups if group["params"]]
        self.adamw = torch.optim.AdamW(used, self.lr, settings.betas, settings.eps, fused=True)

    def lr_at(self, step: int) -> float:
        """The learning rate at `step` (from 0)."""
        return self.lr * schedule_factor(
            step, self.steps, self.settings.warmup_steps, self.settings.schedule
        )

    def step(self, step: int) -> float:
        """Clip the gradients, take one step and clear them.

        Returns the gradient's norm before clipping. If it is not finite, no weight changes.
        """
        total = torch.nn.utils.clip_grad_norm_(self.masters.values(), self.settings.max_grad_norm)
        norm = float(getattr(total, "full_tensor", lambda: total)())  # of shards, it is one too
        if norm == norm and norm != float("inf"):
            for group in self.adamw.param_groups:
                group["lr"] = self.lr_at(step) * group["lr_factor"]
            self.adamw.step()
            self._round()
        self.adamw.zero_grad(set_to_none=True)
        return norm

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The moments of every parameter, and its master if it has one."""
        moments = {
            f"{name}|{key}": value
            for name, master in self.masters.items()
            for key, value in self.adamw.state.get(master, {}).items()
        }
        masters = {
            f"{name}|{MASTER}": m.data
            for name, m in self.masters.items()
            if m is not self.parameters[name]
        }
        return moments | masters

    def like(self, key: str) -> Tensor:
        """A tensor laid out as the one of that key in `tensors`."""
        name, _, moment = key.rpartition("|")
        master = self.masters[name]
        return torch.empty((), device=master.device) if moment == STEP else master

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over tensors of another's `tensors`, laid out as here."""
        for key, value in tensors.items():
            name, _, moment = key.rpartition("|")
            if moment == MASTER:
                self.masters[name].data.copy_(value)
            else:
                self.adamw.state[self.masters[name]][moment] = value
        self._round()

    def _round(self) -> None:
        for name, parameter in self.parameters.items():
            if parameter is not self.masters[name]:
                parameter.data.copy_(self.masters[name].data)


def _group(
    parameters: list[Parameter], weight_decay: float = 0.0, lr_factor: float = 1.0
) -> dict[str, Any]:
    return {"params": parameters, "weight_decay": weight_decay, "lr_factor": lr_factor}


def _master(parameter: Parameter) -> Parameter:
    """The parameter itself, or a float32 copy that takes its gradient after each backward pass."""
    if parameter.dtype is torch.float32:
        return parameter
    master = Parameter(parameter.detach().float())

    def move_gradient(rounded: Tensor) -> None:
        assert rounded.grad is not None
        gradient = rounded.grad.float()
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
        rounded.grad = None

    parameter.register_post_accumulate_grad_hook(move_gradient)  # type: ignore[no-untyped-call]
    return master
