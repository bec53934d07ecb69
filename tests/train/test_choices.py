"""Which task a group is of: in turn by default, and by rates, levels or lengths where asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay import choices
from assay.choices import TaskPool
from assay.errors import DataError, SettingsError, UserError
from assay.rollout.attempt import PromptedTask
from assay.rollout.task_rates import TaskRates
from assay.train.task_order import TaskOrder, draw
from assay.types import Task


def pool(*tags: dict[str, str], lengths: tuple[int, ...] = ()) -> TaskPool:
    """Tasks `0`, `1` and so on, with these tags or lengths of their prompts."""
    sizes = lengths or (1,) * len(tags)
    every = tags or ({},) * len(sizes)
    return TaskPool(
        [
            PromptedTask(Task(str(n), "", (), "", tags=tag), (7,) * size)
            for n, (tag, size) in enumerate(zip(every, sizes, strict=True))
        ],
        TaskRates(),
    )


def order_of(tasks: TaskPool, **choice: Any) -> TaskOrder:
    return TaskOrder(len(tasks.tasks), 5, choices.build(choice)(tasks))


def visit(tasks: TaskPool, task: int, passed: int, times: int) -> None:
    for _ in range(times):
        tasks.rates.visit(str(task), passed, 4, taught=0 < passed < 4)


def served(order: TaskOrder, groups: int, first: int = 0) -> list[int]:
    return [order.task_of(number) for number in range(first, first + groups)]


def test_without_a_choice_each_task_has_its_turn_as_a_dataset_gives_it() -> None:
    expected = [draw(range(7), 1, number, seed=5)[0] for number in range(30)]
    assert served(order_of(pool(lengths=(1,) * 7)), 30) == expected
    assert served(order_of(pool(lengths=(1,) * 7), name="uniform"), 30) == expected


def test_a_task_out_of_bounds_rests_after_enough_visits_and_comes_back_at_times() -> None:
    tasks = pool(lengths=(1,) * 4)
    order = order_of(tasks, name="retire", visits=2, returns=0.2)
    visit(tasks, 0, 0, times=2)
    visit(tasks, 1, 4, times=2)
    visit(tasks, 2, 0, times=1)  # too few visits
    counts = Counter(served(order, 600))
    # of each 2 + 2 * 0.2 groups, 0.2 are of task 0
    assert counts[0] == pytest.approx(600 * 0.2 / 2.4, abs=20)
    assert counts[1] == pytest.approx(600 * 0.2 / 2.4, abs=20)
    assert counts[2] == pytest.approx(counts[3], abs=2)
    visit(tasks, 0, 4, times=1)  # 4 of 4 * (0.64 + 0.8 + 1): it is between the bounds again
    again = Counter(served(order, 600, first=600))
    assert again[0] == pytest.approx(again[2], abs=2)


def test_where_all_tasks_rest_and_none_returns_groups_go_on() -> None:
    tasks = pool(lengths=(1, 1))
    order = order_of(tasks, name="retire", visits=1, returns=0.0)
    for task in (0, 1):
        visit(tasks, task, 4, times=1)
    assert len(served(order, 10)) == 10


def test_a_task_nearer_to_the_target_rate_comes_more_often() -> None:
    tasks = pool(lengths=(1,) * 3)
    order = order_of(tasks, name="target_rate", visits=3, least=0.1)
    for task, passed in enumerate((2, 1, 0)):
        visit(tasks, task, passed, times=3)
    counts = Counter(served(order, 1600))
    # rates of 0.5, 0.25 and 0 are taken in a share of 1, 0.5 and 0.1 of their turns
    assert [counts[n] / 1000 for n in range(3)] == pytest.approx([1, 0.5, 0.1], abs=0.05)


def test_before_enough_visits_rates_change_no_choice() -> None:
    tasks = pool(lengths=(1,) * 4)
    plain = served(order_of(tasks), 40)
    for task in range(4):
        visit(tasks, task, 0, times=4)
    for name in ("retire", "target_rate"):
        assert served(order_of(tasks, name=name), 40) == plain, "5 visits are the default"


def test_a_curriculum_lets_longer_prompts_in_over_its_epochs() -> None:
    order = order_of(pool(lengths=(40, 10, 30, 20)), name="curriculum", start=0.25, epochs=3)
    # 1 of 4 tasks at first; each fourth group lets one more in
    first, second, third, last = (set(served(order, 4, first)) for first in (0, 4, 8, 12))
    assert first <= {1, 3}
    assert (second, third) == (second & {1, 3, 2}, third & {0, 1, 2, 3})
    assert order.task_of(0) == 1
    assert last == {0, 1, 2, 3}


def test_a_curriculum_follows_numbers_or_an_order_of_a_tag() -> None:
    numbers = pool({"level": "10"}, {"level": "9"}, {"level": "10"})
    assert order_of(numbers, name="curriculum", by="level", start=0.1).task_of(0) == 1
    words = pool({"level": "hard"}, {"level": "easy"}, {"level": "easy"})
    chance = choices.build(
        {"name": "curriculum", "by": "level", "order": ["easy", "hard"], "start": 0.1}
    )(words)
    assert [chance(place, 0) for place in range(3)] == [0.0, 1.0, 1.0], "equal levels begin at once"
    assert [chance(place, 3) for place in range(3)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("tags", "order", "why"),
    [
        ({}, [], "'1' has no tag 'level'"),
        ({"level": "hard"}, [], "'hard', is no number"),
        ({"level": "odd"}, ["easy", "hard"], "'odd', is not in tasks.choice.order"),
    ],
)
def test_a_task_without_a_level_is_named(tags: dict[str, str], order: list[str], why: str) -> None:
    tasks = pool({"level": "easy" if order else "1"}, tags)
    with pytest.raises(DataError, match=why):
        order_of(tasks, name="curriculum", by="level", order=order)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"name": "retier"}, "did you mean 'retire'"),
        ({"name": "retire", "lwo": 0.1}, "did you mean 'tasks.choice.low'"),
        ({"name": "retire", "high": 95.0}, "`tasks.choice.high` of retire is 95"),
        ({"name": "curriculum", "start": -0.5}, "`tasks.choice.start` of curriculum is -0.5"),
    ],
)
def test_a_choice_that_does_not_exist_or_cannot_be_is_refused(
    table: dict[str, Any], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        choices.build(table)(pool(lengths=(1,)))


def test_an_order_goes_on_from_a_position_and_open_groups_keep_their_tasks() -> None:
    tasks = pool(lengths=(1,) * 5)
    visit(tasks, 2, 0, times=5)
    whole, first = (order_of(tasks, name="retire", returns=0.5) for _ in range(2))
    expected = served(whole, 30)
    assert served(first, 12) == expected[:12]
    first.close(set(range(12)) - {4, 9})
    position = json.loads(json.dumps(first.position))
    resumed = order_of(tasks, name="retire", returns=0.5)
    resumed.resume(position)
    visit(tasks, expected[4], 0, times=5)  # its rate has changed since the group started
    assert [resumed.task_of(number) for number in (4, 9)] == [expected[4], expected[9]]
    tasks.rates.by_task.pop(str(expected[4]))
    visit(tasks, 2, 0, times=5)
    assert served(resumed, 18, first=12) == expected[12:]


def test_a_position_without_an_order_goes_on_with_the_tasks_of_the_groups_numbers() -> None:
    whole, resumed = (order_of(pool(lengths=(1,) * 5)) for _ in range(2))
    expected = served(whole, 20)
    resumed.resume_uniform(12, [4, 9])
    assert [resumed.task_of(number) for number in (4, 9)] == [expected[4], expected[9]]
    assert served(resumed, 8, first=12) == expected[12:]


@pytest.mark.parametrize("chance", [None, float("nan"), -1.0, 1.5, "0.5"])
def test_a_choice_that_gives_no_chance_is_the_users_error(chance: object) -> None:
    order = TaskOrder(3, 5, lambda place, number: chance)  # type: ignore[arg-type, return-value]
    with pytest.raises(UserError, match=r"gave .*; it must give a number from 0 to 1"):
        order.task_of(0)


def test_a_plug_in_may_bring_a_choice(tmp_path: Path) -> None:
    from assay.registry import load_plugins

    (tmp_path / "mine.py").write_text(
        "from assay.choices import choice\n\n\n@choice\ndef only(pool, *, task: int = 0):\n"
        "    return lambda place, number: float(place == task)\n"
    )
    load_plugins([tmp_path / "mine.py"])
    assert set(served(order_of(pool(lengths=(1,) * 4), name="only", task=2), 9)) == {2}
