"""Trackers together: a misconfigured one refuses to start, a broken one does not end the run."""

from __future__ import annotations

import gc
import importlib.util
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from assay.config.sections import RunSettings, TrackerName
from assay.errors import SettingsError
from assay.progress import Progress
from assay.trackers import Tracker, Trackers, open_trackers
from assay.types import Metrics, Rollout


class Full(Tracker):
    """A tracker whose disk is full."""

    def track(self, step: int, metrics: Metrics) -> None:
        raise OSError("no space left")

    def rollouts(self, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
        raise OSError("no space left")

    def close(self) -> None:
        raise OSError("no space left")


class Kept(Tracker):
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def track(self, step: int, metrics: Metrics) -> None:
        self.seen.append((step, metrics))

    def rollouts(self, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
        self.seen.append((step, groups))

    def close(self) -> None:
        self.seen.append("closed")


def opened(names: Sequence[TrackerName], folder: Path) -> Trackers:
    return open_trackers(names, folder, Progress(), run="demo/grpo", start_step=0, total_steps=10)


def test_a_tracker_that_breaks_is_warned_of_once_and_the_others_get_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = Kept()
    trackers = Trackers({"full": Full(), "kept": kept})
    with caplog.at_level(logging.WARNING):
        for step in (1, 2):
            trackers.track(step, {"loss": 1.0})
        trackers.rollouts(2, [])
        trackers.close()
    assert kept.seen == [(1, {"loss": 1.0}), (2, {"loss": 1.0}), (2, []), "closed"]
    assert [record.getMessage() for record in caplog.records] == [
        "tracker 'full' failed, the run goes on: OSError: no space left"
    ]


def test_an_interrupt_is_no_tracker_failure() -> None:
    class Interrupted(Kept):
        def track(self, step: int, metrics: Metrics) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trackers({"one": Interrupted()}).track(1, {})


def test_the_default_trackers_write_numbers_and_rollouts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trackers = opened(("console", "jsonl", "rollouts"), tmp_path)
    trackers.track(1, {"loss": 0.5})
    trackers.rollouts(1, [])
    trackers.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": 0.5}
    assert (tmp_path / "rollouts" / "step_000001.parquet").is_file()
    assert capsys.readouterr().out == "demo/grpo step 1/10  loss 0.5\n"


def test_an_unknown_name_is_a_wrong_setting() -> None:
    with pytest.raises(
        ValueError, match=r"'console', 'jsonl', 'rollouts', 'tensorboard' or 'wandb'"
    ):
        RunSettings.model_validate({"trackers": ["jsonlines"]})


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_refusal_closes_the_trackers_that_were_opened_before_it(tmp_path: Path) -> None:
    (tmp_path / "rollouts").write_text("")
    with pytest.raises(SettingsError, match="tracker 'rollouts' cannot write"):
        opened(("jsonl", "rollouts"), tmp_path)
    gc.collect()


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="tracker 'jsonl' cannot write"):
        opened(("jsonl",), tmp_path / "file")


@pytest.mark.parametrize(("name", "extra"), [("tensorboard", "tb"), ("wandb", "wandb")])
def test_a_tracker_whose_package_is_absent_says_what_to_install(
    tmp_path: Path, name: TrackerName, extra: str
) -> None:
    if importlib.util.find_spec(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(SettingsError, match=rf"pip install 'assay\[{extra}\]'"):
        opened((name,), tmp_path)


def test_tensorboard_gets_every_number_under_its_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tb` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trackers = opened(("tensorboard",), tmp_path)
    trackers.track(3, {"reward/mean": 0.25})
    trackers.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward/mean")] == [(3, 0.25)]


def test_wandb_keeps_an_offline_run_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    trackers = opened(("wandb",), tmp_path)
    trackers.track(1, {"reward/mean": 0.25})
    trackers.close()
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.parametrize("name", get_args(TrackerName))
def test_every_known_name_opens_a_tracker_or_says_what_to_install(
    tmp_path: Path, name: TrackerName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    said = ""
    try:
        opened((name,), tmp_path).close()
    except SettingsError as error:
        said = str(error)
    assert not said or "pip install" in said
