"""Trackers together: a misconfigured one refuses to start, a broken one does not end the run."""

from __future__ import annotations

import gc
import importlib.util
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import pytest
import typer
from typer.main import get_command

from assay.cli import app
from assay.commands.train import _plans
from assay.config.sections import RunSettings, TrackerName
from assay.errors import SettingsError
from assay.progress import Progress
from assay.trackers import Tracker, Trackers, dashboards, open_trackers
from assay.types import (
    Completion,
    Execution,
    Metrics,
    Rollout,
    Sample,
    Score,
    Task,
    Turn,
    Verdict,
)  # fmt: skip
from tests.policies import run_settings


class Full(Tracker):
    """A tracker whose disk is full."""

    def track(self, step: int, metrics: Metrics) -> None:
        raise OSError("no space left")

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        raise OSError("no space left")

    def close(self) -> None:
        raise OSError("no space left")


class Kept(Tracker):
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def track(self, step: int, metrics: Metrics) -> None:
        self.seen.append((step, metrics))

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        self.seen.append((step, groups))

    def close(self) -> None:
        self.seen.append("closed")


def opened(names: Sequence[TrackerName], folder: Path, start: int = 0) -> Trackers:
    settings = run_settings(trackers=names, name="demo", stage="grpo")
    return open_trackers(settings, folder, Progress(), start_step=start, total_steps=10)


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
    row = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row == {"step": 1, "time": row["time"], "loss": 0.5}
    assert (tmp_path / "rollouts" / "step_000001.parquet").is_file()
    assert capsys.readouterr().out == "demo/grpo step 1/10  loss 0.5\n"


def test_an_unknown_name_is_a_wrong_setting() -> None:
    with pytest.raises(
        ValueError, match=r"'console', 'jsonl', 'rollouts', 'tensorboard', 'wandb' or 'trackio'"
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


@pytest.mark.parametrize(
    ("name", "extra"), [("tensorboard", "tb"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_tracker_whose_package_is_absent_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: TrackerName, extra: str
) -> None:
    if importlib.util.find_spec(name):
        pytest.skip(f"{name} is installed")
    with pytest.raises(SettingsError, match=rf"pip install -e '\.\[{extra}\]'"):
        opened((name,), tmp_path)
    (tmp_path / name).mkdir()  # as W&B leaves one
    context = cast(
        typer.Context, get_command(app).make_context("assay", [], resilient_parsing=True)
    )
    context.args = ["--trackers", name]
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match="needs a package"):
        _plans(context, Path("arithmetic"), {})


def test_tensorboard_gets_every_number_under_its_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tb` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trackers = opened(("tensorboard",), tmp_path)
    trackers.track(3, {"reward/mean": 0.25})
    trackers.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward/mean")] == [(3, 0.25)]


@pytest.mark.parametrize(
    ("start", "kept"), [(2, [(0, 0.5), (1, 1.0), (2, 1.0), (3, 7.0)]), (0, [(3, 7.0)])],
    ids=["from a checkpoint", "without one"],
)  # fmt: skip
def test_tensorboard_shows_no_step_twice_after_a_resume(
    tmp_path: Path, start: int, kept: list[tuple[int, float]]
) -> None:
    pytest.importorskip("tensorboard", reason="the extra `tb` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trackers = opened(("tensorboard",), tmp_path)
    trackers.track(0, {"loss": 0.5})
    for step in (1, 2, 3, 4):
        trackers.track(step, {"loss": 1.0})
    trackers.close()
    resumed = opened(("tensorboard",), tmp_path, start)
    resumed.track(3, {"loss": 7.0})
    resumed.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == kept


class History:
    """What W&B's or trackio's `init` returns: it keeps what is logged."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def init(self, **arguments: object) -> History:
        return self

    def log(self, values: dict[str, object]) -> None:
        self.rows.append(values)

    def finish(self) -> None:
        pass

    def define_metric(self, *names: object, **options: object) -> None:
        pass

    Table = Trace = staticmethod(lambda *parts, **columns: "samples")


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_dashboard_whose_history_only_grows_gets_no_step_twice_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: TrackerName
) -> None:
    history = History()
    monkeypatch.setattr(dashboards, "require_package", lambda tracker: None)
    monkeypatch.setattr(dashboards, "import_module", lambda package: history)
    for stage, start, steps in (("sft", 0, (1, 2, 3)), ("sft", 1, (2, 3, 4)), ("grpo", 0, (1, 2))):
        settings = run_settings(trackers=(name,), name="demo", stage=stage)
        folder = tmp_path / "demo" / stage
        folder.mkdir(parents=True, exist_ok=True)
        trackers = open_trackers(settings, folder, Progress(), start_step=start, total_steps=4)
        for step in steps:
            trackers.rollouts(step, [[ROLLOUT]])
            trackers.track(step, {"loss": 1.0})
            trackers.track(step, {"evaluate/pass@1": 0.5})
        trackers.close()
    for metric in ("loss", "evaluate/pass@1"):
        steps_of = {
            stage: [row[f"{stage}/step"] for row in history.rows if f"{stage}/{metric}" in row]
            for stage in ("sft", "grpo")
        }
        assert steps_of == {"sft": [1, 2, 3, 4], "grpo": [1, 2]}
    assert [row["sft/step"] for row in history.rows if "sft/samples" in row] == [1]


ROLLOUT = Rollout(
    Task("add", "Add.", (), "f"),
    (Turn((1,), Completion("x", (7,), (-1.0,), "stop", (1,)), "x", Execution(Verdict.WRONG)),),
    Score(0.5, {"tests": 0.5}),
)


def test_wandb_gets_the_settings_a_table_and_one_run_for_all_stages_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    ids = set()
    for stage, step in (("sft", 1), ("grpo", 1), ("grpo", 11)):
        settings = run_settings(
            trackers=("wandb",), name="demo", stage=stage,
            dashboard={"project": "mine"},
        )  # fmt: skip
        folder = tmp_path / "demo" / stage
        folder.mkdir(parents=True, exist_ok=True)
        trackers = open_trackers(settings, folder, Progress(), start_step=step - 1, total_steps=20)
        run = wandb.run
        ids.add(run.id)
        assert (run.project, run.name) == ("mine", "demo")
        assert run.config[stage]["algorithm"] == {"name": "grpo"}
        trackers.rollouts(step, [[ROLLOUT]])
        trackers.track(step, {"reward/mean": 0.25})
        summary = run.summary
        assert (summary[f"{stage}/reward/mean"], summary[f"{stage}/step"]) == (0.25, step)
        assert summary[f"{stage}/samples"]["nrows"] == 1
        trackers.close()
    assert ids == {(tmp_path / "demo/wandb_id").read_text()}
    files = [file.read_bytes() for file in tmp_path.rglob("*.wandb")]
    assert len(files) == 3
    for what in (b'"tasks_per_step"', b"grpo/reward/mean", b"grpo/samples"):
        assert any(what in file for file in files), f"{what!r} is not in the offline files"
    tables = {
        tuple(json.loads(table.read_text())["data"][0])
        for table in tmp_path.rglob("*samples*.table.json")
    }
    assert tables == {(step, "add", "Add.", "x", "wrong", 0.5) for step in (1, 11)}


def test_trackio_gets_every_metric_of_all_stages_and_traces_under_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trackio", reason="the extra `trackio` is not installed")
    code = """
import sys, sqlite3
from pathlib import Path
from assay.progress import Progress
from assay.trackers import open_trackers
from tests.policies import run_settings
from tests.trackers.test_open_trackers import ROLLOUT
for stage in ("sft", "grpo"):
    settings = run_settings(trackers=("trackio",), name="demo", stage=stage)
    folder = Path(sys.argv[1]) / "demo" / stage
    folder.mkdir(parents=True)
    trackers = open_trackers(settings, folder, Progress(), start_step=0, total_steps=10)
    trackers.rollouts(1, [[ROLLOUT]])
    trackers.track(1, {"reward/mean": 0.25})
    trackers.close()
"""
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True,
        check=False, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(file) as connection:
        rows = connection.execute("select run_name, metrics from metrics").fetchall()
        traces = connection.execute("select messages, metadata from traces").fetchall()
    assert len({name for name, _ in rows}) == 1
    text = " ".join(str(metrics) for _, metrics in rows)
    assert "sft/reward/mean" in text
    assert "grpo/reward/mean" in text
    messages, metadata = (json.loads(one) for one in traces[0])
    assert [(one["role"], one["content"]) for one in messages][:2] == [
        ("user", "Add."), ("assistant", "x"),
    ]  # fmt: skip
    assert metadata == {"task": "add", "verdict": "wrong", "reward": 0.5}
    assert len(traces) == 2, "one of each stage"


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
