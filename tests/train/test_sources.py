"""What a step draws follows from its number alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from assay.errors import DataError
from assay.rollout.group import ask
from assay.train.sources import DatasetSource, draw
from assay.types import Check, Task
from tests.policies import TASKS, run_settings, tiny_policy


def test_an_epoch_serves_every_item_once_before_any_comes_again() -> None:
    served = [item for step in range(6) for item in draw(range(9), 3, step, seed=1)]
    assert sorted(served[:9]) == sorted(served[9:]) == list(range(9))
    assert served[:9] != served[9:], "each epoch has its own order"


def test_a_batch_may_cross_the_end_of_an_epoch_without_a_gap() -> None:
    served = [item for step in range(5) for item in draw(range(4), 6, step, seed=3)]
    assert sorted(served[:28]) == sorted([*range(4)] * 7)
    assert sorted(served.count(item) for item in range(4)) == [7, 7, 8, 8]


def test_a_step_draws_the_same_however_it_is_reached() -> None:
    assert draw(range(50), 8, 11, seed=2) == draw(range(50), 8, 11, seed=2)
    assert draw(range(50), 8, 11, seed=2) != draw(range(50), 8, 11, seed=4)


def test_a_batch_larger_than_the_data_takes_items_again() -> None:
    assert sorted(draw([1, 2], 4, 0, seed=0)) == [1, 1, 2, 2]


def test_demonstrations_come_in_batches_of_dialogues(tmp_path: Path) -> None:
    source = DatasetSource(run_settings(dataset={"batch": 5}), TASKS, tiny_policy(tmp_path))
    seen = asyncio.run(source.next(0))
    assert len(seen.samples) == 5
    assert source.steps_per_epoch == len(TASKS) / 5
    assert all(any(sample.mask) for sample in seen.samples)


def test_tasks_without_anything_to_learn_from_are_refused(tmp_path: Path) -> None:
    bare = [Task("x", "p", (Check("assert f() == 1"),), "f")]
    with pytest.raises(DataError, match="neither demonstrations nor references"):
        DatasetSource(run_settings(), bare, tiny_policy(tmp_path))


def test_what_does_not_fit_into_the_models_context_is_refused_by_name(tmp_path: Path) -> None:
    policy = tiny_policy(tmp_path)
    long = replace(TASKS[3], reference="x = 1\n" * 200)
    with pytest.raises(DataError, match=r"demonstration of task 't/3' has \d+ tokens .* context of 256"):
        DatasetSource(run_settings(), [*TASKS[:3], long], policy)
    assert len(ask(TASKS, policy.chat, 200, policy.context)) == len(TASKS)
    with pytest.raises(DataError, match=r"max_tokens = 250 .* context of 256"):
        ask(TASKS, policy.chat, 250, policy.context)
