"""metrics.jsonl is readable at every moment, also after a kill and a resume."""

from __future__ import annotations

import json
import time
from math import inf, nan
from pathlib import Path

from assay.trackers.jsonl import JsonlTracker


def lines(folder: Path) -> list[dict[str, object]]:
    """The rows without their time."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(row.pop("time") > 1.7e9 for row in rows)
    return rows


def test_each_step_is_one_line_that_can_be_read_at_once_and_its_evaluation_joins_it(
    tmp_path: Path,
) -> None:
    tracker = JsonlTracker(tmp_path, start_step=0)
    tracker.track(1, {"loss": 2.0})
    assert lines(tmp_path) == [{"step": 1, "loss": 2.0}]
    tracker.track(1, {"evaluate/pass@1": 0.5})
    assert lines(tmp_path) == [{"step": 1, "loss": 2.0, "evaluate/pass@1": 0.5}]
    tracker.track(2, {"loss": 1.0})
    tracker.close()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]


def test_a_line_says_when_its_step_ended_not_when_its_evaluation_did(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path, start_step=0)
    before = time.time()
    tracker.track(1, {"loss": 2.0})
    after = time.time()
    time.sleep(0.01)
    tracker.track(1, {"evaluate/pass@1": 0.5})
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert before <= row["time"] <= after


def test_an_evaluation_that_a_resumed_run_makes_up_for_joins_the_line_of_its_step(
    tmp_path: Path,
) -> None:
    first = JsonlTracker(tmp_path, start_step=0)
    first.track(1, {"loss": 2.0})
    first.track(2, {"loss": 1.0, "evaluate/pass@1": 0.123456})
    first.close()
    second = JsonlTracker(tmp_path, start_step=2)
    second.track(2, {"evaluate/pass@1": 0.5})
    second.track(3, {"loss": 0.5})
    second.close()
    assert lines(tmp_path) == [
        {"step": 1, "loss": 2.0},
        {"step": 2, "loss": 1.0, "evaluate/pass@1": 0.5},
        {"step": 3, "loss": 0.5},
    ]


def test_a_number_that_is_not_finite_is_null_as_json_knows_no_other(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path, start_step=0)
    tracker.track(1, {"loss": nan, "learn/grad_norm": inf, "reward/mean": 0.25})
    tracker.close()
    numbers = {"step": 1, "loss": None, "learn/grad_norm": None, "reward/mean": 0.25}
    assert lines(tmp_path) == [numbers]


def test_a_resumed_run_goes_on_after_its_checkpoint_without_later_or_half_lines(
    tmp_path: Path,
) -> None:
    first = JsonlTracker(tmp_path, start_step=0)
    for step in range(5):
        first.track(step, {"loss": float(step)})
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 5, "lo')
    second = JsonlTracker(tmp_path, start_step=2)
    second.track(3, {"loss": 30.0})
    second.close()
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [
        (0, 0.0),
        (1, 1.0),
        (2, 2.0),
        (3, 30.0),
    ]


def test_a_run_that_starts_over_keeps_what_was_known_before_its_first_step(tmp_path: Path) -> None:
    first = JsonlTracker(tmp_path, start_step=0)
    first.track(0, {"evaluate/pass@1": 0.1})
    first.track(1, {"loss": 1.0})
    first.close()
    JsonlTracker(tmp_path, start_step=0).close()
    assert lines(tmp_path) == [{"step": 0, "evaluate/pass@1": 0.1}]
