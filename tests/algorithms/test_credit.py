"""Credit and settings of the algorithms."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from assay.algorithms import algorithms
from assay.errors import SettingsError
from assay.types import Batch, Sample

REWARDS = [1.0, 0.0, 0.0, 0.0, 0.5, 0.5]
SAMPLES = [
    Sample((1, 2, 3), (False, True, True), reward=reward, group="a" if n < 4 else "b")
    for n, reward in enumerate(REWARDS)
]


def advantages(name: str, **settings: object) -> list[float]:
    credited = algorithms[name].build({"name": name, **settings}).credit(SAMPLES)
    assert all(sample.advantages[0] == 0.0 for sample in credited), "the prompt gets no advantage"
    return [sample.advantages[1] for sample in credited]


def test_grpo_compares_within_the_group() -> None:
    third = -1 / math.sqrt(3)
    assert advantages("grpo") == pytest.approx([math.sqrt(3), third, third, third, 0, 0])
    assert advantages("grpo", scale="none") == [0.75, -0.25, -0.25, -0.25, 0, 0]


def test_reinforce_compares_with_the_batch_or_with_nothing() -> None:
    assert advantages("reinforce", baseline="none") == REWARDS
    assert advantages("reinforce") == pytest.approx([reward - 1 / 3 for reward in REWARDS])
    deviation = math.sqrt(sum((reward - 1 / 3) ** 2 for reward in REWARDS) / 6)
    assert advantages("reinforce", baseline="batch_std") == pytest.approx(
        [(reward - 1 / 3) / deviation for reward in REWARDS]
    )


def test_groups_are_told_apart_by_name_wherever_their_samples_stand() -> None:
    mixed = [SAMPLES[0], SAMPLES[4], SAMPLES[1], SAMPLES[5]]
    credited = algorithms["grpo"].build({"name": "grpo", "scale": "none"}).credit(mixed)
    assert [sample.advantages[1] for sample in credited] == [0.5, 0.0, -0.5, 0.0]


def test_only_samples_without_advantage_are_skipped_and_none_when_a_divergence_is_paid() -> None:
    flat = replace(SAMPLES[0], advantages=(0.0, 0.0, 0.0))
    steep = replace(SAMPLES[0], advantages=(0.0, 0.1, 0.1))
    assert [algorithms["grpo"].build({"name": "grpo"}).skips(s) for s in (flat, steep)] == [True, False]
    assert not algorithms["grpo"].build({"name": "grpo", "kl": 0.1}).skips(flat)


def test_the_divergence_is_added_with_its_weight() -> None:
    row = torch.tensor([[0.0, -1.0]])
    batch = Batch(torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2), row, torch.ones(1, 2), None, row - 0.5)
    loss, numbers = algorithms["grpo"].build({"name": "grpo", "kl": 2.0}).loss(row, batch)
    k3 = math.exp(-0.5) - 1 + 0.5
    assert loss.tolist()[0] == pytest.approx([-1 + 2 * k3] * 2)
    assert numbers["kl"].tolist()[0] == pytest.approx([k3] * 2)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "grpo", "clip_hihg": 1}, "unknown setting 'algorithm.clip_hihg'; did you mean 'algorithm.clip_high'"),
        ({"name": "sft", "x": 1}, "unknown setting 'algorithm.x'; there are none here"),
        ({"name": "grpo", "scale": "sum"}, "setting 'algorithm.scale' = 'sum'"),
    ],
)
def test_a_wrong_setting_of_an_algorithm_is_refused_with_a_hint(table: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        algorithms[str(table["name"])].build(table)
    assert message in str(caught.value)
