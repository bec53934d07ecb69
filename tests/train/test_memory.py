"""The default size of a micro-batch follows the model and the memory of the device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.train.memory import DeviceMemory, micro_batch_tokens
from tests.policies import run_settings, tiny_policy

PER_TOKEN = 4 * 2 * (8 * 64 + 4 * 192)
"""Bytes of a token: two layers of 64 hidden and 192 inner units."""


@pytest.mark.parametrize(
    ("memory", "checkpointed", "tokens"),
    [
        (16 * 5000 * PER_TOKEN, False, 4096),
        (16 * 5000 * PER_TOKEN, True, 8192),
        (16 * 5 * PER_TOKEN, False, 1024),
        (16 * 50_000 * PER_TOKEN, False, 16_384),
    ],
)
def test_a_micro_batch_takes_a_sixteenth_of_a_processors_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, checkpointed: bool, tokens: int
) -> None:
    monkeypatch.setattr(DeviceMemory, "total", memory)
    model = tiny_policy(tmp_path).model
    settings = run_settings(policy={"gradient_checkpointing": checkpointed})
    assert micro_batch_tokens(settings, model, torch.device("cpu")) == tokens


def test_a_micro_batch_of_the_settings_is_taken_as_it_is(tmp_path: Path) -> None:
    settings, cpu = run_settings(learner={"micro_batch_tokens": 77}), torch.device("cpu")
    assert micro_batch_tokens(settings, tiny_policy(tmp_path).model, cpu) == 77
