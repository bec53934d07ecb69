"""What a person sees of a run, in a terminal and in a log file."""

from __future__ import annotations

import os
import pty
import sys

import pytest

from assay.progress import Progress
from assay.trackers.console import BarTracker, LineTracker, open_console
from tests.terminals import everything_written, lines_shown

STEP = {
    "reward/mean": 0.5,
    "reward/pass_rate": 0.4126,
    "rollout/zero_variance_groups": 1.0,
    "rollout/truncated": 1.0,
    "rollout/entropy": 0.4123,
    "rollout/length": 118.4,
    "rollout/taught_so_far": 0.687,
    "learn/kl_engine": 2.1e-4,
    "learn/grad_norm": 0.3125,
    "learn/lr": 3e-4,
    "loss": 0.03125,
    "time/generate": 3.14,
    "time/judge": 0.42,
    "time/learn": 1.25,
}
SEVEN = "reward 0.50  zero-var 100%  cut 100%  entropy 0.41  KL 2e-4  grad 0.31  lr 3e-4"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(total: int, clock: Clock) -> LineTracker:
    return LineTracker(Progress(), run="demo/grpo", total_steps=total, clock=clock)


def steps(out: str) -> list[int]:
    return [int(line.split()[2].split("/")[0]) for line in out.splitlines()]


def test_a_line_holds_the_metrics_that_matter_and_is_never_wrapped_or_styled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines(200, Clock()).track(12, STEP)
    assert (
        capsys.readouterr().out
        == f"demo/grpo step 12/200  {SEVEN}  taught 69%  pass 41.3%  tokens 118  generate 3.1 s"
        "  judge 0.4 s  learn 1.2 s\n"
    )


def test_the_loss_is_shown_only_where_nothing_is_rewarded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines(200, Clock()).track(12, {"loss": 0.03125, "learn/lr": 2.5e-5, "learn/grad_norm": 0.0})
    assert capsys.readouterr().out == "demo/grpo step 12/200  grad 0  loss 0.0312  lr 2.5e-5\n"


def test_a_stage_that_learns_from_pairs_or_labels_shows_margin_and_accuracy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    learned = {"learn/margin": -0.125, "learn/accuracy": 0.5}
    lines(200, Clock()).track(12, {"loss": 0.5, "learn/lr": 2.5e-5, **learned})
    assert capsys.readouterr().out.endswith("loss 0.5  margin -0.12  accuracy 50%  lr 2.5e-5\n")


@pytest.mark.parametrize(
    ("columns", "shown"),
    [(80, ""), (120, "  taught 69%  pass 41.3%  tokens 118")],
)
def test_under_the_bar_are_as_many_metrics_as_fit_the_seven_of_health_first(
    monkeypatch: pytest.MonkeyPatch, columns: int, shown: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    progress = Progress()
    BarTracker(progress, run="demo/grpo").track(12, STEP)
    assert progress.note == SEVEN + shown
    assert len(progress.note) < columns


def test_a_fast_run_prints_its_first_step_and_each_tenth_of_the_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tracker = lines(200, Clock())
    for step in range(1, 201):
        tracker.track(step, STEP)
    assert steps(capsys.readouterr().out) == [1, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200]


def test_a_slow_run_prints_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    tracker = lines(10_000, clock)
    for step in range(1, 31):
        clock.now += 1.0
        tracker.track(step, STEP)
    assert steps(capsys.readouterr().out) == [1, 6, 11, 16, 21, 26]


def test_every_evaluation_is_printed_and_delays_no_other_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tracker = lines(100, Clock())
    tracker.track(0, {"evaluate/pass@1": 0.25, "evaluate/length": 90.0})
    tracker.track(1, {"loss": 1.0})
    tracker.track(2, {"loss": 1.0})
    tracker.track(2, {"evaluate/pass@1": 0.5})
    assert capsys.readouterr().out.splitlines() == [
        "demo/grpo step 0/100  evaluation: pass@1 25.0%  tokens 90",
        "demo/grpo step 1/100  loss 1",
        "demo/grpo step 2/100  evaluation: pass@1 50.0%",
    ]


def test_a_terminal_shows_a_bar_that_starts_where_the_run_was_resumed_and_leaves_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        with Progress(terminal) as progress:
            tracker = open_console(progress, run="demo/[grpo]", start_step=40, total_steps=200)
            assert isinstance(tracker, BarTracker)
            tracker.track(41, STEP)
            with progress.interrupted():
                progress.phase("evaluating", total=165)
            tracker.track(41, {"evaluate/pass@1": 0.5})
            tracker.track(42, {"loss": 0.25})
            tracker.close()
    shown = everything_written(reader)
    for text in ("40/200", "42/200", "step 41  evaluation: pass@1 50.0%", "step 42  loss 0.25"):
        assert text in shown
    assert "demo/[grpo]" in shown.rpartition("step 42  loss 0.25")[0]


def test_a_terminal_breaks_the_last_step_between_metrics_and_not_within_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = pty.openpty()
    monkeypatch.setenv("COLUMNS", "40")
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        with Progress(terminal) as progress:
            tracker = open_console(progress, run="demo/grpo", start_step=0, total_steps=1)
            tracker.track(1, {"reward/mean": 0.5, "learn/lr": 1e-3, "time/judge": 1.0})
            tracker.close()
    lines = lines_shown(everything_written(reader), 40)
    assert lines[:2] == ["demo/grpo step 1  reward 0.50  lr 1e-3", "  judge 1.0 s"]


def test_without_a_terminal_the_console_prints_lines() -> None:
    assert not sys.stdout.isatty()
    assert isinstance(
        open_console(Progress(), run="demo/sft", start_step=0, total_steps=10), LineTracker
    )
