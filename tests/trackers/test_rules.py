"""Rules of unhealthy training, on metrics as broken runs have them: each is named within ten steps
with the advice that mends it, and a healthy run is left alone.
"""

from __future__ import annotations

import random
from typing import get_args

import pytest

from assay.config.warning_names import WarningName
from assay.trackers.rules import RULES, RunHistory
from assay.types import Metrics

GROUPS = 8
HEALTHY: Metrics = {
    "rollout/failed": 0.0, "rollout/groups": float(GROUPS), "rollout/length": 40.0,
    "rollout/truncated": 0.02, "rollout/entropy": 0.5, "rollout/zero_variance_groups": 0.3,
    "reward/mean": 0.4, "reward/std": 0.49, "reward/pass_rate": 0.4, "reward/gain_of_passing": 1.0,
    "verdict/compile": 0.2, "verdict/no_code": 0.02, "staleness/mean": 0.0,
    "learn/skipped": 0.3, "learn/advantage_std": 0.8, "learn/grad_norm": 0.4, "learn/lr": 1e-4,
    "learn/kl_engine": 1e-6, "learn/importance_weight_spread": 0.01, "learn/ratio_max": 1.0,
}  # fmt: skip
EQUAL: Metrics = {
    "rollout/zero_variance_groups": 1.0, "reward/std": 0.0, "learn/skipped": 1.0,
    "learn/advantage_std": 0.0, "learn/grad_norm": 0.0,
}  # fmt: skip
FAILED = EQUAL | {"reward/mean": 0.0, "reward/pass_rate": 0.0}
MISSING = ("reward/gain_of_passing", "learn/kl_engine", "learn/importance_weight_spread")


def first_warnings(*steps: Metrics) -> list[tuple[int, str, str]]:
    """Step, name and text of each warning that a run of these steps gives."""
    history, given = RunHistory(), dict[str, tuple[int, str, str]]()
    for step, metrics in enumerate(steps, 1):
        history.add(metrics)
        for rule in RULES:
            if not given.keys() & {rule.name, *rule.unless} and (text := rule.check(history)):
                given[rule.name] = (step, rule.name, text)
    return list(given.values())


def step(**changes: float) -> Metrics:
    names = {name.replace("/", "__"): name for name in HEALTHY}
    return HEALTHY | {names[name]: value for name, value in changes.items()}


def without(metrics: Metrics) -> Metrics:
    """Metrics of a step in which no sample has a gradient."""
    return {name: value for name, value in metrics.items() if name not in MISSING}


def noisy(seed: int, steps: int, rate: float = 0.4) -> list[Metrics]:
    """Healthy steps whose groups all pass or all fail, which is the most that chance can do."""
    draw = random.Random(seed)
    rates = [sum(draw.random() < rate for _ in range(GROUPS)) / GROUPS for _ in range(steps)]
    return [step(reward__pass_rate=r, reward__mean=r, learn__skipped=0.6) for r in rates]


RUINED = without(HEALTHY | FAILED | {
    "rollout/truncated": 1.0, "rollout/entropy": 4.2, "rollout/length": 96.0,
    "verdict/no_code": 1.0, "verdict/compile": 0.0,
})  # fmt: skip
BROKEN: dict[str, tuple[list[Metrics], str, str]] = {
    "a learning rate of 1 ruins the policy in one step": (
        [HEALTHY, *[RUINED] * 9], "collapse", "lower optimizer.lr"
    ),
    "a learning rate that ruins it later": (
        [*[step(reward__pass_rate=0.94, learn__skipped=0.7)] * 6, *[RUINED] * 4],
        "collapse", "lower optimizer.lr",
    ),
    "a reward that is falling where nothing has a pass rate": (
        [*[step(reward__pass_rate=0.0, reward__mean=5.0, reward__std=1.0)] * 5,
         *[step(reward__pass_rate=0.0, reward__mean=1.0, reward__std=0.5)] * 5],
        "collapse", "lower optimizer.lr",
    ),
    "all rewards are equal": (
        [without(HEALTHY | EQUAL | {"reward/mean": 0.5})] * 10, "flat_rewards", "[rewards]",
    ),
    "the reward has the wrong sign": (
        [step(reward__gain_of_passing=-1.0, reward__mean=-0.4 + n / 50, reward__std=0.49,
              reward__pass_rate=0.4 - n / 25) for n in range(10)],
        "wrong_sign", "negative weight",
    ),
    "all completions are cut off from the start": (
        [without(HEALTHY | FAILED | {"rollout/truncated": 1.0})] * 10,
        "truncated", "raise it",
    ),
    "completions become too long": (
        [*[HEALTHY] * 3, *[step(rollout__truncated=0.6)] * 7], "truncated", "rewards.length",
    ),
    "the prompt is not in the model's chat template": (
        [without(HEALTHY | FAILED | {"verdict/no_code": 0.9})] * 10, "no_program", "policy.chat",
    ),
    "the prompt is in another form, and the model rambles on": (
        [without(HEALTHY | FAILED | {"verdict/no_code": 0.9, "rollout/truncated": 0.95})] * 10,
        "no_program", "prompt.template",
    ),
    "the engine keeps old weights": (
        [step(learn__kl_engine=0.004 * n * n) for n in range(10)], "stale_engine", "restart",
    ),
    "the engine computes in another dtype": (
        [step(learn__kl_engine=0.05)] * 10, "stale_engine", "engine.dtype",
    ),
    "rollouts are too old": (
        [step(learn__kl_engine=0.05, staleness__mean=3.0)] * 10,
        "stale_engine", "rollout.max_staleness",
    ),
    "the adapter is frozen": (
        [step(learn__grad_norm=0.0)] * 10, "frozen", "policy.lora",
    ),
    "the tasks are too hard": (
        [without(HEALTHY | FAILED)] * 10, "too_hard", "easier",
    ),
    "the tasks are too easy": (
        [without(HEALTHY | EQUAL | {"reward/mean": 1.0, "reward/pass_rate": 1.0})] * 10,
        "too_easy", "harder",
    ),
    "some tasks are always solved and others never": (
        [step(learn__skipped=0.9)] * 10, "zero_variance", "assay screen",
    ),
    "the entropy collapses": (
        [*[HEALTHY] * 4, *[step(rollout__entropy=0.01)] * 6],
        "entropy_collapse", "algorithm.entropy_bonus",
    ),
    "the reward pays short completions": (
        [step(rollout__length=max(40.0 - 8 * n, 1.0), reward__mean=0.4 + n / 10,
              reward__pass_rate=max(0.4 - n / 10, 0.0)) for n in range(10)],
        "length_collapse", "rewards.length",
    ),
    "weights of whole completions": (
        [step(learn__importance_weight_spread=0.45, learn__kl_engine=0.002)] * 10,
        "importance_weights", "token_truncate",
    ),
}  # fmt: skip


@pytest.mark.parametrize("run", BROKEN)
def test_a_broken_run_is_named_first_and_within_ten_steps_with_the_advice_that_helps(
    run: str,
) -> None:
    steps, name, advice = BROKEN[run]
    warnings = first_warnings(*steps)
    assert warnings, "nothing was said"
    assert (warnings[0][1], advice in warnings[0][2]) == (name, True), warnings
    assert warnings[0][0] <= 10


def test_a_collapse_is_not_blamed_on_the_token_limit_the_tasks_or_the_template() -> None:
    (only,) = first_warnings(*[HEALTHY] * 6, *[RUINED] * 20)
    assert only[1] == "collapse"
    assert "entropy 0.5 to 4.2" in only[2]
    assert "max_tokens" not in only[2]


def test_a_fall_while_the_reward_rises_is_blamed_on_the_reward() -> None:
    hacked = step(reward__pass_rate=0.0, reward__mean=0.9)
    (only,) = first_warnings(*[HEALTHY] * 8, *[hacked] * 8)
    assert only[1] == "collapse"
    assert "[rewards]" in only[2]
    assert "optimizer.lr" not in only[2]


def test_healthy_runs_are_left_alone_however_their_tasks_vary() -> None:
    named = [first_warnings(*noisy(seed, 60)) for seed in range(50)]
    assert sum(map(bool, named)) <= 1, named


def test_a_run_that_improves_slowly_with_falling_entropy_and_lengths_is_left_alone() -> None:
    steps = [
        step(reward__pass_rate=0.3 + n / 400, rollout__entropy=0.6 - n / 400,
             rollout__length=90 - n / 4, learn__grad_norm=0.4 + (n % 5) / 5)
        for n in range(200)
    ]  # fmt: skip
    assert first_warnings(*steps) == []


def test_an_entropy_that_falls_over_hundreds_of_steps_is_compared_with_the_start() -> None:
    steps = [step(rollout__entropy=0.5 * 0.98**n) for n in range(200)]
    (only,) = first_warnings(*steps)
    assert (only[1], 100 < only[0] < 130) == ("entropy_collapse", True)


def test_every_rule_has_a_name_of_its_own_that_settings_know() -> None:
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert {*names} <= {*get_args(WarningName)}
    assert {name for _, name, _ in BROKEN.values()} == {*names}
