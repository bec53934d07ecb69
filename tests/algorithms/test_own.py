"""A loss or advantage of the user's that is wrong is answered with its file and line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from assay.algorithms import algorithms
from assay.errors import SettingsError
from assay.policy.forward import ModelOutput
from assay.registry import load_plugins
from assay.types import Sample
from tests.algorithms.test_losses import LOGPROBS, batch

PLUGIN = """\
from assay.algorithms.base import algorithm
from assay.algorithms.shared_settings import PolicyGradientSettings
from assay.algorithms.policy_gradient import build, clipped_loss


def mine({arguments}):
    {body}


@algorithm(PolicyGradientSettings)
def {name}(settings):
    return {build}
"""
LOSS, ADVANTAGES = "settings, ratios, logprobs, advantages", "settings, samples"
SAMPLE = Sample((1, 2), (False, True), (0.0, -1.0), reward=1.0, group="a")
TENSORS = "must return (loss, numbers to log): a tensor [B, T] that has the gradient of ratios"


@pytest.mark.parametrize(
    ("arguments", "body", "line"),
    [
        (LOSS, "return -(ratios * advantages).mean(), {}", TENSORS),
        (LOSS, "return -(ratios * advantages)[:, :1], {}", TENSORS),
        (LOSS, "return -ratios * advantages", TENSORS),
        (LOSS, "return advantages, {}", TENSORS),
        (LOSS, "return -ratios * advantages, {'r': 1.0}", TENSORS),
        (LOSS, "return -ratios * advantages, ratios", TENSORS),
        (LOSS, "pass", TENSORS),
        ("settings, ratios", "return ratios, {}", "must take 4 arguments (TypeError: too many"),
        (ADVANTAGES, "pass", "must return a list of samples"),
        (ADVANTAGES, "return [one.reward for one in samples]", "must return a list of samples"),
        ("settings", "return []", "must take 2 arguments (TypeError: too many"),
    ],
)
def test_what_a_function_of_the_users_returns_is_checked(
    arguments: str, body: str, line: str, tmp_path: Path
) -> None:
    is_loss = "samples" not in arguments and arguments != "settings"
    made = "build(settings, mine)" if is_loss else "build(settings, clipped_loss, mine)"
    (tmp_path / "own.py").write_text(
        PLUGIN.format(arguments=arguments, body=body, name="own", build=made)
    )
    load_plugins(["own.py"], tmp_path)
    own = algorithms["own"].build({})
    algorithms._items.pop("own")  # the next file registers that name too
    output = ModelOutput(LOGPROBS.clone().requires_grad_(), torch.ones(2, 3))
    call = (
        partial(own.loss, output, batch()) if is_loss else partial(own.compute_advantages, [SAMPLE])
    )
    with pytest.raises(SettingsError) as raised:
        call()
    assert str(raised.value).startswith(f"plug-in {tmp_path}/own.py, line 6: mine {line}")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("return None", "line 10: nothing must return an Algorithm, as build() does"),
        ("@algorithm", "line 10: write @algorithm(Settings), with its class"),
    ],
)
def test_what_is_no_algorithm_is_refused(change: str, line: str, tmp_path: Path) -> None:
    text = PLUGIN.format(arguments=LOSS, body="pass", name="nothing", build="None")
    if change == "@algorithm":
        text = text.replace("@algorithm(PolicyGradientSettings)", change)
    (tmp_path / "own.py").write_text(text)

    def load_and_build() -> None:
        load_plugins(["own.py"], tmp_path)
        algorithms._items.pop("nothing").build({})

    with pytest.raises(SettingsError) as raised:
        load_and_build()
    assert str(raised.value).startswith(f"plug-in {tmp_path}/own.py, {line}")
