"""Warnings while training: once each, about several steps, with the setting that helps."""

from __future__ import annotations

import json
import logging
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest

from assay.errors import UnhealthyError
from assay.trackers import Trackers
from assay.trackers.health import HealthTracker
from assay.trackers.rules import WINDOW
from assay.types import Cause, Metrics, Rollout, Task

SOUND = {
    "rollout/failed": 0.0, "learn/skipped": 0.5, "rollout/truncated": 0.1,
    "rollout/entropy": 0.8,
}  # fmt: skip


def warnings(caplog: pytest.LogCaptureFixture, *steps: Metrics) -> list[str]:
    with caplog.at_level(logging.WARNING), TemporaryDirectory() as folder:
        track(Path(folder), *steps)
    return [record.getMessage() for record in caplog.records]


def track(folder: Path, *steps: Metrics, start_step: int = 0) -> list[dict[str, object]]:
    tracker = HealthTracker(folder, start_step=start_step)
    for number, metrics in enumerate(steps, start_step + 1):
        tracker.track(number, metrics)
    file = folder / "events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_warnings_are_events_and_a_resumed_run_repeats_none_of_them(tmp_path: Path) -> None:
    lost = SOUND | {"rollout/failed": 3.0}
    (event,) = track(tmp_path, SOUND, lost)
    assert (event["step"], event["event"]) == (2, "lost")
    assert "3 rollouts" in str(event["text"])
    assert track(tmp_path, lost, start_step=2) == [event]
    assert [one["step"] for one in track(tmp_path, lost, start_step=1)] == [2]


def test_an_event_names_each_task_that_cannot_be_judged_once_and_says_why(tmp_path: Path) -> None:
    def lost(name: str, cause: Cause) -> Rollout:
        return Rollout(Task(name, "", (), "f"), (), None, failure=f"why of {name}", cause=cause)

    groups = [
        [lost("a", Cause.TASK), lost("a", Cause.TASK)],
        [lost("b", Cause.REFERENCE)],
        [lost("c", Cause.MACHINE)],
    ]
    for start in range(2):  # a resumed run repeats none
        tracker = HealthTracker(tmp_path, start_step=start)
        tracker.rollouts(start + 1, groups)
        tracker.close()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["unjudged/a", "unjudged/b"]
    assert "why of a" in events[0]["text"]


def test_a_webhook_gets_every_warning_and_its_failure_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    posted: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200 if len(posted) == 1 else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ASSAY_WEBHOOK", f"http://127.0.0.1:{server.server_port}/secret")
    folder = tmp_path / "demo" / "grpo"
    folder.mkdir(parents=True)
    tracker = HealthTracker(folder, start_step=0)
    tracker.track(1, SOUND | {"rollout/failed": 3.0})
    tracker.close()
    for step in range(2, WINDOW + 1):
        tracker.track(step, SOUND | {"rollout/truncated": 0.5})
    tracker.close()
    server.shutdown()
    server.server_close()
    assert [(one["run"], one["step"], one["event"]) for one in posted] == [
        ("demo/grpo", 1, "lost"),
        ("demo/grpo", WINDOW, "truncated"),
    ]
    assert str(posted[0]["text"]).startswith("demo/grpo step 1: ")
    (failure,) = [one for one in caplog.messages if "ASSAY_WEBHOOK" in one]
    assert "HTTPStatusError" in failure


@pytest.mark.parametrize(
    ("metric", "value", "warning"),
    [
        ("learn/skipped", 0.9, "of the samples have no gradient"),
        ("rollout/truncated", 0.5, "of the completions are cut off at rollout.max_tokens"),
        ("rollout/entropy", 0.05, "entropy_collapse: entropy collapsed from 0.8 to 0.0"),
    ],
)
def test_a_metric_that_is_bad_over_several_steps_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, metric: str, value: float, warning: str
) -> None:
    bad = SOUND | {metric: value}
    (line,) = warnings(caplog, *[SOUND] * WINDOW, *[bad] * (2 * WINDOW))
    assert warning in line
    assert "\n" not in line


def test_a_gap_is_warned_of_for_each_family_once_there_are_enough_rollouts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    few = SOUND | {"held_out/gap/a/go": 0.5, "held_out/rollouts/a/go": 12.0}
    many = few | {"held_out/gap/a/c": 0.2, "held_out/rollouts/a/c": 13.0}
    small = SOUND | {"held_out/gap/a/c": 0.09, "held_out/rollouts/a/c": 64.0}
    assert warnings(caplog, *[few] * (2 * WINDOW), *[small] * (2 * WINDOW)) == []
    (line,) = warnings(caplog, *[many] * (2 * WINDOW))
    assert line.startswith("step 8: held_out_gap: 20.0% ")
    assert "a/c" in line


def test_one_bad_step_and_sound_ones_give_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    bad = SOUND | {"learn/skipped": 1.0, "rollout/truncated": 1.0}
    assert warnings(caplog, *[SOUND] * WINDOW, bad, *[SOUND] * WINDOW) == []


def test_rollouts_that_the_machine_lost_are_warned_of_at_the_first_step_that_has_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost = SOUND | {"rollout/failed": 3.0}
    (line,) = warnings(caplog, SOUND, lost, lost)
    assert line.startswith("step 2: ")
    assert "3 rollouts" in line


def test_a_falling_entropy_under_sft_is_no_collapse(caplog: pytest.LogCaptureFixture) -> None:
    high, low = {"rollout/entropy": 5.0}, {"rollout/entropy": 0.1}
    assert warnings(caplog, *[high] * WINDOW, *[low] * WINDOW) == []


def test_groups_of_one_that_teach_are_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    taught = SOUND | {"rollout/zero_variance_groups": 1.0, "learn/advantage_std": 0.4}
    assert warnings(caplog, *[taught] * WINDOW) == []


def test_advantages_of_0_are_warned_of_even_where_a_penalty_has_a_gradient(
    caplog: pytest.LogCaptureFixture,
) -> None:
    zero = {"learn/advantage_std": 0.0, "learn/advantage_mean": 0.0}
    (line,) = warnings(caplog, *[SOUND | zero] * WINDOW)
    assert "100%" in line


def test_equal_advantages_that_teach_are_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """As RAFT's and on-policy distillation's, which are all 1."""
    equal = SOUND | {"learn/advantage_std": 0.0, "learn/advantage_mean": 1.0}
    assert warnings(caplog, *[equal] * WINDOW) == []


@pytest.mark.parametrize(
    ("kl_engine", "advice"),
    [
        (0.002, "algorithm.importance_sampling = 'token_truncate'"),
        (0.05, "the dtype of the policy in the engine"),
    ],
    ids=["products over completions", "tokens that differ"],
)
def test_importance_weights_far_from_1_are_warned_of_with_the_setting_that_helps(
    caplog: pytest.LogCaptureFixture, kl_engine: float, advice: str
) -> None:
    spread = {"learn/importance_weight": 1.0, "learn/importance_weight_spread": 0.45}
    rounded = SOUND | {"learn/importance_weight_spread": 0.03, "learn/kl_engine": 0.002}
    assert warnings(caplog, *[rounded] * (2 * WINDOW)) == []
    (line,) = warnings(caplog, *[SOUND | spread | {"learn/kl_engine": kl_engine}] * (2 * WINDOW))
    assert advice in line


def test_a_warning_that_stop_if_names_ends_the_run_after_its_step_and_others_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    health = HealthTracker(tmp_path, start_step=0, stop_if=["truncated"])
    tracker = Trackers({"health": health})
    tracker.track(1, SOUND | {"rollout/failed": 3.0})
    assert "step 1: lost: " in caplog.text
    for step in range(2, WINDOW):
        tracker.track(step, SOUND | {"rollout/truncated": 0.9})
    with pytest.raises(UnhealthyError, match=f"step {WINDOW}: truncated: .* raise it"):
        tracker.track(WINDOW, SOUND | {"rollout/truncated": 0.9})
    assert "truncated" not in caplog.text, "the error says it once"
    events = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in events] == ["lost", "truncated"]


def test_a_run_that_stopped_and_goes_on_stops_again_if_it_is_as_bad(tmp_path: Path) -> None:
    bad = [SOUND | {"rollout/truncated": 0.9}] * WINDOW
    for _ in range(2):
        with pytest.raises(UnhealthyError):
            track_until(tmp_path, bad, stop_if=["truncated"])


def track_until(folder: Path, steps: list[Metrics], stop_if: list[str]) -> None:
    tracker = HealthTracker(folder, start_step=0, stop_if=stop_if)
    for number, metrics in enumerate(steps, 1):
        tracker.track(number, metrics)


def test_a_resumed_run_is_compared_with_the_steps_before_it_stopped(tmp_path: Path) -> None:
    lines = ({"step": n, "time": 0.0, "loss": None, **SOUND} for n in range(1, WINDOW + 1))
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    low = [SOUND | {"rollout/entropy": 0.01}] * 3
    (event,) = track(tmp_path, *low, start_step=WINDOW)
    assert (event["event"], event["step"]) == ("entropy_collapse", WINDOW + 3)
