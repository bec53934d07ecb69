"""Passes of hard tasks: which are kept, which go first, and how many are replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from assay.rollout import hard_passes
from assay.rollout.hard_passes import HardPasses, as_replayed
from assay.types import Sample


def sample(tokens: int, advantage: float = 1.5, version: int = 0, **more: Any) -> Sample:
    """A prompt of one token, and so many learned ones."""
    mask = (False, *(True,) * tokens)
    return Sample(
        (9, *range(tokens)), mask, (0.0, *(-0.1,) * tokens), version=version,
        advantages=(0.0, *[advantage] * tokens), reward=1.0, passed=True, place=(0, 1, 0),
        group="0/a", **more,
    )  # fmt: skip


def stored(*sizes: int, keep: int = 9) -> HardPasses:
    """One pass of tasks `0`, `1` and so on, with these numbers of tokens."""
    passes = HardPasses(keep)
    for number, size in enumerate(sizes):
        passes.store(str(number), [sample(size)])
    return passes


def tasks(passes: HardPasses) -> list[str]:
    return [each.task for each in passes.stored]


def test_a_newer_pass_of_a_task_takes_the_place_of_its_oldest() -> None:
    passes = HardPasses(keep=2)
    for version in (1, 2, 3):
        passes.store("a", [sample(4, version=version)])
        passes.store(f"b{version}", [sample(4, version=version)])
    assert [each.version for each in passes.stored if each.task == "a"] == [2, 3]
    assert tasks(passes) == ["b1", "a", "b2", "a", "b3"]


def test_beyond_the_bounds_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard_passes, "MOST", 3)
    assert tasks(stored(4, 4, 4, 4)) == ["1", "2", "3"]
    # 5 tokens of 4 + 1 + 4 + 4 bytes are 65
    assert stored(4).stored[0].bytes == 65
    monkeypatch.setattr(hard_passes, "MOST_BYTES", 130)
    assert tasks(stored(4, 4, 4)) == ["1", "2"]
    passes = stored(4, 4)
    passes.store("large", [sample(10)])  # 143 bytes
    assert tasks(passes) == ["0", "1"], "one that fits nowhere pushes none out"


def test_a_pass_that_was_no_better_than_its_baseline_is_not_stored() -> None:
    passes = HardPasses(1)
    passes.store("a", [sample(4, advantage=0.0)])
    passes.store("b", [sample(4, advantage=-0.5)])
    passes.store("in turns", [sample(4, advantage=-0.5), sample(3, advantage=1.0)])  # -2 + 3
    assert tasks(passes) == ["in turns"]


def test_those_that_are_too_old_or_of_tasks_no_longer_hard_are_forgotten() -> None:
    passes = HardPasses(1)
    for task, version in (("old", 3), ("new", 4), ("easy", 9)):
        passes.store(task, [sample(4, version=version), sample(4, version=9)])
    passes.forget(4, lambda task: task != "easy")
    assert tasks(passes) == ["new"]


@pytest.mark.parametrize(
    ("fresh", "share", "expected"),
    [
        (90, 0.1, ["0"]),  # 10 of 100
        (89, 0.1, ["1"]),  # 10 of 99 are too many, 8 of 97 are not, 12 of 101 are too many again
        (130, 0.1, ["0", "2"]),  # 10 of 140; 18 of 148 are too many, 14 of 144 are not
        (198, 0.1, ["0", "1", "2"]),  # 22 of 220
        (380, 0.05, ["0", "1"]),  # 18 of 398; 22 of 402 are too many
        (0, 0.1, []),
    ],
)
def test_replayed_tokens_are_at_most_their_share_of_all_that_is_learned(
    fresh: int, share: float, expected: list[str]
) -> None:
    taken = stored(10, 8, 4).take(fresh, share)
    assert [each.task for each in taken] == expected


def test_the_fewest_replays_come_first_then_the_oldest() -> None:
    passes = stored(5, 5, 5)
    rounds = [[each.task for each in passes.take(80, 0.1)] for _ in range(4)]
    assert rounds == [["0"], ["1"], ["2"], ["0"]]
    passes.store("new", [sample(5)])
    assert [each.task for each in passes.take(80, 0.1)] == ["new"]


def test_a_replay_is_a_group_of_its_own_with_all_parts_of_its_rollout() -> None:
    passes = HardPasses(1)
    passes.store("a", [sample(3, rollout=1), sample(2, rollout=1)])
    passes.store("b", [sample(4, version=2)])
    replayed = as_replayed(passes.take(900, 0.1))
    assert [one.group for one in replayed] == ["replay 0/a", "replay 0/a", "replay 1/b"]
    assert [one.rollout for one in replayed] == [1, 1, None]
    assert all(one.replayed and one.place is None for one in replayed)
    assert list(replayed[2].tokens) == [9, 0, 1, 2, 3]
    assert list(replayed[2].advantages) == [0.0, *[1.5] * 4]


def test_what_the_learner_computes_anew_is_not_kept() -> None:
    passes = HardPasses(1)
    passes.store("a", [sample(1, old_logprobs=(0.0, -3.0), reference_logprobs=(0.0, -4.0))])
    (kept,) = passes.stored[0].samples
    assert (len(kept.old_logprobs), len(kept.reference_logprobs)) == (0, 0)


def test_passes_go_on_to_the_bit_from_a_position_that_was_written_as_json() -> None:
    passes = stored(5, 3)
    odd = replace(sample(2), logprobs=(0.0, -1 / 3, -1e-30), reward=0.1 + 0.2)
    passes.store("odd", [odd])
    passes.take(90, 0.1)
    again = HardPasses(9)
    again.resume(json.loads(json.dumps(passes.position)))
    assert again.position == passes.position
    assert again.stored[2].samples[0].logprobs == odd.logprobs
    before, after = ([each.task for each in those.take(80, 0.1)] for those in (passes, again))
    assert before == after
