"""metrics.jsonl is readable at every moment, also after a kill and a resume."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

from assay.trackers.jsonl import JsonlTracker


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_each_tracked_step_is_a_line_that_can_be_read_at_once(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path, start_step=0)
    tracker.track(1, {"loss": 2.0})
    assert lines(tmp_path) == [{"step": 1, "loss": 2.0}]
    tracker.track(1, {"evaluate/pass@1": 0.5})
    tracker.close()
    assert lines(tmp_path) == [{"step": 1, "loss": 2.0}, {"step": 1, "evaluate/pass@1": 0.5}]


def test_a_number_that_is_not_finite_is_null_as_json_knows_no_other(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path, start_step=0)
    tracker.track(1, {"loss": nan, "learn/grad_norm": inf, "reward/mean": 0.25})
    tracker.close()
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 1, "loss": null, "learn/grad_norm": null, "reward/mean": 0.25}\n'
    )


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
