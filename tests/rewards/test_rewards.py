"""Reward terms by hand, their weighted sum, and settings that do not fit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from assay.errors import SettingsError, UserError
from assay.registry import load_plugins
from assay.rewards import Reward, build, rewards
from assay.rewards.tests import score_execution
from assay.types import Check, Completion, Execution, Rollout, Score, Task, Turn, Verdict

TASK = Task("t/1", "p", (Check("assert f(1)"),), "f")


def rollout(
    verdict: Verdict = Verdict.PASS,
    passed: int = 4,
    total: int = 4,
    tokens: int = 50,
    text: str = "def f(n): return n",
    program: str | None = "def f(n): return n",
    ended: Literal["stop", "length"] = "stop",
) -> Rollout:
    completion = Completion(text, (1,) * tokens, (0.0,) * tokens, ended, (0,) * tokens)
    return Rollout(
        TASK, (Turn((1, 2), completion, program, Execution(verdict, passed, total)),), None
    )


def scored(settings: dict[str, dict[str, Any]], *rollouts: Rollout) -> list[Rollout]:
    return asyncio.run(build(settings)(rollouts))


def score(settings: dict[str, dict[str, Any]], one: Rollout) -> Score:
    (found,) = scored(settings, one)
    assert found.score is not None
    return found.score


RIGHT = rollout()
HALF = rollout(Verdict.WRONG, passed=3)
EMPTY = rollout(Verdict.NO_CODE, passed=0, total=0, program=None)


@pytest.mark.parametrize(
    ("settings", "right", "half", "empty"),
    [
        ({"tests": {}}, 1.0, 0.0, 0.0),
        ({"tests": {"mode": "fraction"}}, 1.0, 0.75, 0.0),
        ({"tests": {"mode": "fraction", "perfect_bonus": 2}}, 3.0, 0.75, 0.0),
        ({"tests": {"perfect_bonus": 0.5, "weight": 2}}, 3.0, 0.0, 0.0),
        ({"length": {}}, -0.005, 0.0, 0.0),
        ({"length": {"alpha": 0.2}}, -0.1, 0.0, 0.0),
        ({"length": {"alpha": 0.2, "on_failure": True}}, -0.1, -0.1, -0.1),
        ({"format": {}}, 1.0, 1.0, 0.0),
        ({"format": {"fenced": True}}, 0.0, 0.0, 0.0),
    ],
)
def test_each_term_has_the_value_worked_out_by_hand(
    settings: dict[str, dict[str, Any]], right: float, half: float, empty: float
) -> None:
    found = [one.score.total for one in scored(settings, RIGHT, HALF, EMPTY) if one.score]
    assert found == pytest.approx([right, half, empty])


def test_parts_are_the_weighted_terms_and_add_up_to_the_total() -> None:
    terms = {"tests": {}, "length": {"weight": 2.0, "alpha": 0.2}, "format": {"weight": 0.25}}
    found = score(terms, RIGHT)
    assert found.parts == pytest.approx({"tests": 1.0, "length": -0.2, "format": 0.25})
    assert found.total == pytest.approx(1.05)
    assert found.total == sum(found.parts.values())


def test_a_program_that_broke_the_walls_rules_gets_nothing_for_the_checks_it_passed() -> None:
    assert score({"tests": {"mode": "fraction"}}, rollout(Verdict.FORBIDDEN, passed=3)).total == 0.0


def test_only_the_last_turn_is_judged_but_every_turns_tokens_are_paid_for() -> None:
    two = Rollout(TASK, (HALF.turns[0], RIGHT.turns[0]), None)
    assert score({"tests": {}}, two).total == 1.0
    assert score({"length": {"alpha": 1.0}}, two).total == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("<think>2 and 2</think><answer>4</answer>", 1.0),
        ("<think>\n2 and 2\n</think>\n\n<answer>\n```python\nf = 4\n```\n</answer>\n", 1.0),
        ("Well. <think>2 and 2</think><answer>4</answer>", 0.75),
        ("<think>2 and 2</think><answer>4</answer> as you see", 0.75),
        ("<answer>4</answer><think>2 and 2</think>", 0.5),
        ("<think> </think><answer>4</answer>", 0.25),
        ("<think>2 and 2</think>4", 0.25),
        ("<think>2</think><think>2</think><answer>4</answer>", 0.25),
        ("<think>2</think><answer>4</answer><answer>5</answer>", 0.25),
        ("<think>2 and 2 <answer>4", 0.0),
        ("<reasoning>2 and 2</reasoning>4", 0.0),
        ("4", 0.0),
        ("<think>" * 20_000, 0.0),
    ],
)
def test_format_counts_which_tags_are_well_formed(text: str, share: float) -> None:
    terms = {"format": {"tags": "think"}}
    assert score(terms, rollout(text=text)).total == share
    assert score(terms, rollout(text=text, ended="length")).total == 0


@pytest.mark.parametrize(
    ("text", "ended", "plain", "fenced"),
    [
        ("```python\ndef f(n): return n\n```", "stop", 1.0, 1.0),
        ("So:\n```python\ndef f(n): return n\n```\nDone.", "stop", 1.0, 1.0),
        ("```python\ndef f(n): return n\n```", "length", 0.0, 0.0),
        ("```python\ndef f(n): return n\n", "stop", 1.0, 0.0),
        ("```\nx\n```\n```python\ndef f(n): return n\n```", "stop", 1.0, 0.0),
    ],
)
def test_format_asks_for_an_end_a_program_and_one_closed_block(
    text: str, ended: Literal["stop", "length"], plain: float, fenced: float
) -> None:
    one = rollout(Verdict.WRONG, text=text, ended=ended)
    assert score({"format": {}}, one).total == plain
    assert score({"format": {"fenced": True}}, one).total == fenced
    tagged = replace(
        one.turns[-1].completion, text=f"<think>a</think>\n<answer>\n{text}\n</answer>"
    )
    one = replace(one, turns=(replace(one.turns[-1], completion=tagged),))
    assert score({"format": {"fenced": True, "tags": "think"}}, one).total == fenced


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "`rewards` is empty"),
        ({"test": {}}, "unknown reward 'test'; did you mean 'tests'?"),
        (
            {"tests": {"mod": "all"}},
            "unknown setting 'rewards.tests.mod'; did you mean 'rewards.tests.mode'?",
        ),
        (
            {"tests": {"mode": "some"}},
            "setting 'rewards.tests.mode' = 'some' must be 'all', 'fraction' or 'fixes'",
        ),
        (
            {"length": {"alpha": "0.1"}},
            "setting 'rewards.length.alpha' = '0.1' must be a number",
        ),
        ({"length": {"alpha": True}}, "must be a number"),
        ({"length": {"alpha": float("nan")}}, "must be a finite number"),
        ({"length": {"on_failure": 1}}, "must be true or false"),
        (
            {"tests": {"weight": None}},
            "setting 'rewards.tests.weight' = None must be a number",
        ),
        ({"tests": {"rollout": 1}}, "unknown setting 'rewards.tests.rollout'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        build(settings)
    assert message in str(caught.value)


def test_a_rollout_that_the_machine_failed_is_never_scored() -> None:
    failed = replace(RIGHT, failure="the engine died")
    assert scored({"length": {}}, failed, RIGHT, failed)[::2] == [failed, failed]
    assert scored({"length": {}}, failed) == [failed]
    with pytest.raises(UserError, match=r"not judged.*t/1"):
        scored({"tests": {}}, rollout(Verdict.INFRA))


def test_a_term_that_is_no_number_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rollout: Rollout, *, size: int = 1) -> float:
        return float("nan") * size

    monkeypatch.setitem(rewards._items, "broken", broken)
    with pytest.raises(UserError, match=r"reward 'broken' returned nan \(task t/1\)"):
        score({"broken": {"size": 2}}, RIGHT)
    with pytest.raises(SettingsError, match="must be a whole number"):
        build({"broken": {"size": 1.5}})


def test_a_score_holds_no_more_than_its_terms() -> None:
    assert score({"tests": {}}, HALF) == Score(total=0.0, parts={"tests": 0.0})


def add_rewards(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewards, "_items", {name: rewards[name] for name in rewards})
    (folder / "mine.py").write_text(text)
    load_plugins(("mine.py",), folder)


TYPED = """
from __future__ import annotations
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional
from assay.rewards import reward
if TYPE_CHECKING:
    from decimal import Decimal
    from assay.types import Rollout as R

@reward
def typed(
    rollout: R, *, old: Optional[int] = None, new: int | None = None,
    many: tuple[float, ...] = (), file: Path = Path(),
    few: list[int] = [], hidden: Decimal = None, foreign: Path.cwd = None, free=None,
) -> R:
    assert isinstance(many, tuple) and isinstance(file, Path)
    return (old or 0) + (new or 0) + sum(many) + len(file.parts) + sum(few)
"""


@pytest.mark.parametrize(
    ("given", "total"),
    [({}, 0.0), ({"old": 3}, 3.0), ({"new": 4}, 4.0), ({"many": [1, 0.5]}, 1.5), ({"file": "a/b"},
    2.0),
     ({"few": [1, 2]}, 3.0), ({"free": {"any": "thing"}}, 0.0)],
)  # fmt: skip
def test_parameters_take_what_their_annotations_say_whatever_else_is_for_type_checkers_only(
    given: dict[str, Any], total: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rewards(TYPED, tmp_path, monkeypatch)
    assert score({"typed": given}, RIGHT).total == total


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"old": True}, "setting 'rewards.typed.old' = True must be a whole number"),
        ({"new": "3"}, "setting 'rewards.typed.new' = '3' must be a whole number"),
        ({"new": 1.0}, "setting 'rewards.typed.new' = 1.0 must be a whole number"),
        (
            {"few": [1, True]},
            "setting 'rewards.typed.few.1' = True must be a whole number",
        ),
        (
            {"hidden": 1},
            "reward 'typed': the annotation of 'hidden' cannot be used (NameError: name 'Decimal'",
        ),
        ({"foreign": 1}, "rewards.typed.foreign"),
    ],
)
def test_values_that_their_annotations_refuse_are_settings_errors(
    given: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rewards(TYPED, tmp_path, monkeypatch)
    with pytest.raises(SettingsError) as caught:
        build({"typed": given})
    assert message in str(caught.value)


def test_a_parameter_without_a_default_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def needy(rollout: Rollout, *, size: int, **others: object) -> float:
        return float(size)

    monkeypatch.setitem(rewards._items, "needy", needy)
    with pytest.raises(SettingsError, match=r"setting 'rewards\.needy\.size' is missing"):
        build({"needy": {"weight": 2}})
    assert score({"needy": {"size": 3, "weight": 2}}, RIGHT).total == 6.0


def test_a_parameter_named_as_every_terms_weight_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def heavy(rollout: Rollout, *, weight: float) -> float:
        return weight

    monkeypatch.setitem(rewards._items, "heavy", heavy)
    with pytest.raises(SettingsError, match="reward 'heavy' has a parameter `weight`"):
        build({"heavy": {"weight": 2}})


def test_whatever_a_term_raises_is_one_line_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def short_answer(rollout: Rollout) -> float:
        raise LookupError("first\nsecond")

    monkeypatch.setitem(rewards._items, "short_answer", short_answer)
    with pytest.raises(UserError) as caught:
        score({"short_answer": {}}, RIGHT)
    assert (
        str(caught.value)
        == "reward 'short_answer' raised LookupError: first second (task t/1); fix the reward"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "None"), ("1.5", "'1.5'"), (float("inf"), "inf"),
     pytest.param(10**400, "1000", id="too large"), ([1.0], "[1.0]"), (1j, "1j"),
     (np.zeros((2, 1)), "array([[0.], [0.]])"), (np.float64("nan"), "np.float64(nan)"),
     (1e30, "1e+30"), (-1e11, "-100000000000.0")],
)  # fmt: skip
def test_a_term_that_returns_no_finite_number_or_a_huge_one_is_one_line_that_names_it(
    value: object, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rewards._items, "odd", lambda rollout: value)
    with pytest.raises(UserError) as caught:
        score({"odd": {"weight": 20.0}}, RIGHT)
    assert str(caught.value).startswith(f"reward 'odd' returned {shown}")
    assert str(caught.value).endswith(
        "(task t/1); it must return a finite number, with its weight of at most 1e+12"
    )


@pytest.mark.parametrize("value", [True, 1, np.float32(1.0), np.array(1)])
def test_a_term_may_return_anything_that_is_a_number(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rewards._items, "one", lambda rollout: value)
    assert score({"one": {}}, RIGHT).parts == {"one": 1.0}


@pytest.mark.parametrize(
    ("verdict", "passed", "all_or_nothing", "share"),
    [
        (Verdict.PASS, 4, 1.0, 1.0),
        (Verdict.WRONG, 3, 0.0, 0.75),
        (Verdict.TIMEOUT, 1, 0.0, 0.25),
        (Verdict.FORBIDDEN, 3, 0.0, 0.0),
        (Verdict.NO_CODE, 0, 0.0, 0.0),
        (Verdict.INFRA, 3, None, None),
    ],
)
def test_an_execution_scores_the_program_and_never_the_machine(
    verdict: Verdict, passed: int, all_or_nothing: float | None, share: float | None
) -> None:
    execution = Execution(verdict, passed=passed, total=4)
    assert score_execution(execution) == all_or_nothing
    assert score_execution(execution, fraction=True) == share


@pytest.mark.parametrize(("forgeable", "share"), [(True, 0.0), (False, 0.75)])
def test_a_forgeable_share_is_not_paid(forgeable: bool, share: float) -> None:
    execution = Execution(Verdict.WRONG, passed=3, total=4, forgeable=forgeable)
    assert score_execution(execution, fraction=True) == share


def test_the_tests_term_never_makes_a_zero_of_a_failure_of_the_machine() -> None:
    with pytest.raises(ValueError, match="not judged"):
        rewards["tests"](rollout(Verdict.INFRA))


def test_a_reward_of_no_terms_which_settings_refuse_is_0() -> None:
    (found,) = asyncio.run(Reward([])([RIGHT]))
    assert found.score == Score(0.0, {})
