"""A task's rate over its visits decays, and what taught is counted in tokens."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from assay.rollout.task_rates import TaskRate, TaskRates
from assay.types import Rollout, Task, Verdict
from tests.rollout.test_collect import ADD, NEG, rollout


def group(task: Task, *passes: bool, tokens: int = 4) -> list[Rollout]:
    """A group in which a pass is paid 1."""
    return [
        rollout(task, float(passed), Verdict.PASS if passed else Verdict.WRONG, tokens)
        for passed in passes
    ]


def test_a_rate_weighs_a_visit_by_0_8_of_the_one_after_it() -> None:
    rate = TaskRate().after(4, 4, taught=False).after(1, 4, taught=True).after(0, 4, taught=False)
    # passes 0.64 * 4 + 0.8 * 1 + 0, of 4 * (0.64 + 0.8 + 1)
    assert rate.rate == pytest.approx(3.36 / 9.76)
    assert (rate.visits, rate.taught) == (3, 1)


def test_the_share_that_taught_is_of_tokens_of_the_step_and_of_all_steps_so_far() -> None:
    rates = TaskRates()
    lost = replace(group(ADD, True)[0], score=None, failure="the machine")
    # 8 tokens of rewards that differ, 4 that the machine lost, 20 of equal rewards
    first = rates.observe([[*group(ADD, True, False), lost], group(NEG, False, False, tokens=10)])
    assert first == pytest.approx(
        {"rollout/taught": 8 / 32, "rollout/taught_so_far": 8 / 32, "rollout/visits": 1.0}
    )
    second = rates.observe([group(ADD, False, True)])
    assert second == pytest.approx(
        {"rollout/taught": 1.0, "rollout/taught_so_far": 16 / 40, "rollout/visits": 1.5}
    )
    assert rates.by_task["add"].rate == 0.5
    assert (rates.by_task["neg"].rate, rates.by_task["neg"].taught) == (0.0, 0)


def test_a_group_of_which_the_machine_lost_all_is_no_visit() -> None:
    rates = TaskRates()
    lost = [replace(one, score=None, failure="the machine") for one in group(ADD, True, False)]
    assert rates.observe([lost]) == {}
    assert rates.by_task == {}


def test_tokens_that_an_agent_sampled_and_nothing_learns_count_as_sampled() -> None:
    rates = TaskRates()
    one, other = group(ADD, True, False)
    metrics = rates.observe([[replace(one, unlearned={"title": 12}), other]])
    assert metrics["rollout/taught"] == pytest.approx(8 / 20)


def test_rates_go_on_to_the_bit_from_a_position_that_was_written_as_json() -> None:
    steps = [[group(ADD, True, False, False), group(NEG, False)], [group(ADD, True, True, False)]]
    whole, first, resumed = TaskRates(), TaskRates(), TaskRates()
    for groups in steps * 3:
        whole.observe(groups)
    for groups in steps:
        first.observe(groups)
    position = first.position
    first.observe(steps[0])
    resumed.resume(json.loads(json.dumps(position)))
    metrics = [resumed.observe(groups) for groups in steps * 2]
    assert resumed == whole
    assert metrics[-1]["rollout/visits"] == (6 + 3) / 2
