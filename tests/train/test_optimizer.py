"""AdamW over masters in float32: small steps and small gradients are not lost in bfloat16."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from assay.config.sections import OptimizerSettings
from assay.train.optimizer import Optimizer, default_lr, with_default_lr
from tests.policies import run_settings


def optimizer(
    weight: float, lr: float, dtype: torch.dtype = torch.bfloat16
) -> tuple[Optimizer, Parameter]:
    parameter = Parameter(torch.full((1,), weight, dtype=dtype))
    settings = OptimizerSettings(lr=lr, max_grad_norm=1e9)
    return Optimizer({"w": parameter}, settings, steps=1000), parameter


def test_a_hundred_steps_too_small_for_bfloat16_add_up() -> None:
    made, parameter = optimizer(1.0, lr=1e-4)
    for step in range(100):
        parameter.sum().backward()  # type: ignore[no-untyped-call]
        made.step(step)
        if step == 1:
            assert parameter.item() == 1.0, "0.9998 is 1 in bfloat16"
    assert parameter.item() == 253 / 256, "0.99, rounded to the nearest number with eight bits"
    assert made.masters["w"].item() == pytest.approx(0.99, abs=1e-5)


def test_gradients_of_micro_batches_add_up_in_float32() -> None:
    made, parameter = optimizer(0.0, lr=1.0)
    for scale in (1.0, 2**-9):
        (parameter * scale).sum().backward()  # type: ignore[no-untyped-call]
        assert parameter.grad is None, "the master has taken it over"
    assert made.step(0) == 1.001953125


def test_a_float32_parameter_is_its_own_master() -> None:
    made, parameter = optimizer(1.0, lr=1.0, dtype=torch.float32)
    assert made.masters["w"] is parameter


def test_masters_and_moments_are_saved_and_restored_to_the_bit() -> None:
    first, parameter = optimizer(1.0, lr=1e-4)
    parameter.sum().backward()  # type: ignore[no-untyped-call]
    first.step(0)
    saved = {name: tensor.clone() for name, tensor in first.tensors.items()}
    second, again = optimizer(7.0, lr=1e-4)
    second.load(saved)
    for made, own in ((first, parameter), (second, again)):
        (own * 3).sum().backward()  # type: ignore[no-untyped-call]
        made.step(1)
    assert second.masters["w"].item() == first.masters["w"].item() != 1.0
    assert again.item() == parameter.item()


@pytest.mark.parametrize(
    ("adapted", "width", "learns_from", "rate"),
    [
        (False, 4096, "rollouts", 1e-6),
        (False, 8192, "rollouts", 1e-6),
        (False, 4096, "dialogues", 1e-5),
        (True, 4096, "rollouts", 1e-5),
        (True, 4096, "dialogues", 1e-4),
        (False, 128, "rollouts", 3e-4),
        (False, 128, "dialogues", 3e-3),
        (False, 576, "rollouts", 2.5e-5),
        (True, 896, "rollouts", 1.2e-4),
    ],
)
def test_the_rate_has_a_default_that_depends_on_what_is_trained_and_how(
    adapted: bool, width: int, learns_from: str, rate: float
) -> None:
    settings = run_settings(optimizer={})
    assert default_lr(learns_from, adapted, width) == rate
    assert with_default_lr(settings, rate).optimizer.lr == rate
    given = run_settings(optimizer={"lr": 0.5})
    assert with_default_lr(given, rate) is given
