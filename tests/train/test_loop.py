"""The loop: what is learned is saved, whenever it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.callbacks import StageHistory
from assay.errors import TrainingError
from assay.progress import Progress
from assay.trackers import Trackers
from assay.trackers.rollouts import RolloutTracker
from assay.train.loop import train
from assay.train.run import StageRun, _stopping_on_signals
from assay.train.sources import StepData
from tests.policies import run_settings
from tests.viewer.made import made_rollout


class Interrupted(StageRun):
    """A run that learns nothing from nothing, and is asked to stop while it evaluates after step
    `at`.
    """

    __slots__ = ("at", "kept", "signal", "times")
    at: int
    signal: signal.Signals
    times: int
    kept: list[int]

    async def evaluate(self, step: int) -> None:
        if step + 1 == self.at:
            for _ in range(self.times):
                os.kill(os.getpid(), self.signal)
        await asyncio.sleep(0.05)

    async def save(self, step: int) -> None:
        self.kept.append(step + 1)
        self.saved = step + 1

    def track(self, *_: object) -> None:
        """Nobody looks."""


async def nothing(*_: object) -> StepData:
    return StepData([])


@pytest.mark.parametrize(
    ("every", "at", "kept", "sign"),
    [
        (0, 2, [2], signal.SIGTERM),
        (1, 2, [1, 2], signal.SIGINT),
        (0, 99, [4], signal.SIGTERM),
        (0, 2, [2], signal.SIGHUP),
    ],
)
def test_a_run_asked_to_stop_while_it_evaluates_saves_what_it_has_learned(
    every: int, at: int, kept: list[int], sign: signal.Signals
) -> None:
    run = interrupted(every, at, sign)
    with _stopping_on_signals(run):
        asyncio.run(train(run))
    assert run.kept == kept


def test_under_nohup_a_terminal_that_goes_away_does_not_stop_a_run() -> None:
    run = interrupted(0, 2, signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _stopping_on_signals(run):
            asyncio.run(train(run))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert run.kept == [4]


def test_rollouts_are_kept_where_training_on_them_fails(tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise TrainingError("the loss is nan")

    run = interrupted(0, 2, signal.SIGINT)
    learner: Any = SimpleNamespace(step=fail, learned_from=())
    run.learner, run.tracker = learner, Trackers({"": RolloutTracker(tmp_path, start_step=0)})
    with pytest.raises(TrainingError):
        asyncio.run(run.learn(StepData([], groups=[[made_rollout("set/a")]]), 0))
    assert (tmp_path / "rollouts" / "step_000001.parquet").exists()


def interrupted(every: int, at: int, sign: signal.Signals) -> Interrupted:
    settings = run_settings(
        evaluate={"tasks": "drills:test", "every": 2, "before": False}, save={"every": every}
    )
    learner = SimpleNamespace(step=lambda samples, step: {}, policy=None, learned_from=())
    source = SimpleNamespace(publish=nothing, next=nothing, learned=lambda samples: None)
    stage = SimpleNamespace(settings=settings)
    history = StageHistory("", Path(), 4)
    parts: list[Any] = [stage, None, learner, source, None, None, [], 4, 0, 0, Progress(), history]
    run = Interrupted(*parts)
    run.at, run.kept, run.signal = at, [], sign
    run.times = 2 if sign is signal.SIGHUP else 1  # a terminal that closes may send several
    return run
