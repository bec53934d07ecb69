"""Warnings while training: once each, about several steps, with the setting that helps."""

from __future__ import annotations

import logging

import pytest

from assay.trackers.health import STEPS, HealthTracker
from assay.types import Metrics

SOUND = {
    "rollout/failed": 0.0, "learn/skipped": 0.5, "rollout/truncated": 0.1,
    "learn/entropy": 0.8,
}  # fmt: skip


def warnings(caplog: pytest.LogCaptureFixture, *steps: Metrics) -> list[str]:
    tracker = HealthTracker()
    with caplog.at_level(logging.WARNING):
        for number, metrics in enumerate(steps, 1):
            tracker.track(number, metrics)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("metric", "value", "warning"),
    [
        ("learn/skipped", 0.9, "of the samples have no gradient"),
        ("rollout/truncated", 0.5, "of the completions are cut off at rollout.max_tokens"),
        ("learn/entropy", 0.05, "entropy collapsed from 0.8 to 0.0"),
    ],
)
def test_a_metric_that_is_bad_over_several_steps_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, metric: str, value: float, warning: str
) -> None:
    bad = SOUND | {metric: value}
    (line,) = warnings(caplog, *[SOUND] * STEPS, *[bad] * (2 * STEPS))
    assert warning in line
    assert "\n" not in line


def test_a_gap_is_warned_of_for_each_family_once_there_are_enough_rollouts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    few = SOUND | {"held_out/gap/a/go": 0.5, "held_out/rollouts/a/go": 12.0}
    many = few | {"held_out/gap/a/c": 0.2, "held_out/rollouts/a/c": 13.0}
    small = SOUND | {"held_out/gap/a/c": 0.09, "held_out/rollouts/a/c": 64.0}
    assert warnings(caplog, *[few] * (2 * STEPS), *[small] * (2 * STEPS)) == []
    (line,) = warnings(caplog, *[many] * (2 * STEPS))
    assert line.startswith("step 8: 20.0% of the completions of a/c pass all checks that are paid")


def test_one_bad_step_and_sound_ones_give_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    bad = SOUND | {"learn/skipped": 1.0, "rollout/truncated": 1.0}
    assert warnings(caplog, *[SOUND] * STEPS, bad, *[SOUND] * STEPS) == []


def test_rollouts_that_the_machine_lost_are_warned_of_at_the_first_step_that_has_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost = SOUND | {"rollout/failed": 3.0}
    (line,) = warnings(caplog, SOUND, lost, lost)
    assert line.startswith("step 2: the machine lost 3 rollouts")


def test_a_falling_entropy_under_sft_is_no_collapse(caplog: pytest.LogCaptureFixture) -> None:
    high, low = {"learn/entropy": 5.0}, {"learn/entropy": 0.1}
    assert warnings(caplog, *[high] * STEPS, *[low] * STEPS) == []


def test_groups_of_one_that_teach_are_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    taught = SOUND | {"rollout/zero_variance_groups": 1.0, "learn/advantage_std": 0.4}
    assert warnings(caplog, *[taught] * STEPS) == []


def test_advantages_of_0_are_warned_of_even_where_a_penalty_has_a_gradient(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = warnings(caplog, *[SOUND | {"learn/advantage_std": 0.0}] * STEPS)
    assert "100% of the samples have no gradient" in line
