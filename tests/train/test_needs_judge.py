"""A judge is started only for stages in which a program runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay import environments
from assay.policy.source import source_of
from assay.rewards import Reward
from assay.train.run import Stage
from tests.policies import TASKS, run_settings


@pytest.mark.parametrize(
    ("learns_from", "environment", "bench", "needed"),
    [
        ("dialogues", "single_turn", {}, False),
        ("pairs", "repair", {}, False),
        ("labels", "repair", {}, False),
        ("dialogues", "repair", {}, True),
        ("dialogues", "single_turn", {"drills": TASKS}, True),
        ("rollouts", "single_turn", {}, True),
    ],
)
def test_a_stage_needs_a_judge_for_rollouts_evaluation_and_played_demonstrations(
    learns_from: str, environment: str, bench: dict[str, Any], needed: bool
) -> None:
    algorithm: Any = SimpleNamespace(learns_from=learns_from)
    built = environments.build({"name": environment})
    settings = run_settings()
    model = source_of(settings.policy)
    stage = Stage(settings, model, algorithm, Reward([]), built, [], bench, {})
    assert stage.needs_judge is needed
