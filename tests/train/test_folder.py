"""Checkpoints: the newest and the best are kept, a full disk loses nothing, what was not finite can
be looked at.
"""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from assay import files
from assay.algorithms import algorithms
from assay.config.load_settings import load_plan
from assay.errors import MachineError, ModelError, SettingsError, TrainingError
from assay.policy.checkpoints import best_of
from assay.train import folder as folder_module
from assay.train.folder import StageFolder, locked
from assay.train.learner import Learner
from assay.train.stages import run_plan
from tests.policies import NoSource, checkpoint, random_samples, run_settings, tiny_policy
from tests.train.test_stages import PLAN

PASS = "evaluate/pass@1"


def make(folder: Path, **save: Any) -> tuple[StageFolder, Learner]:
    settings = run_settings(folder=str(folder / "runs"), save=save)
    algorithm = algorithms["grpo"].build(settings.algorithm)
    return StageFolder(settings), Learner(
        settings, algorithm, tiny_policy(folder), steps=4, temperature=1.0
    )


def kept(folder: StageFolder) -> list[str]:
    return sorted(path.name for path in folder.checkpoints.iterdir())


def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path: Path) -> None:
    folder, learner = make(tmp_path, keep=1, best=PASS)
    for step, rate in enumerate((0.5, 0.4, 0.5), start=1):
        folder.save(learner, step, {})
        folder.track_best(step, {PASS: rate})
    assert kept(folder) == ["step_000001", "step_000003"], "the first of equals is the best"
    assert best_of(folder.path) == folder.checkpoints / "step_000001"
    folder.track_best(3, {PASS: 0.6})
    folder.save(learner, 4, {})
    assert kept(folder) == ["step_000003", "step_000004"]
    assert json.loads((folder.path / "best.json").read_text()) == {"step": 3, PASS: 0.6}
    by_reward, learner = make(tmp_path, keep=1, best="evaluate/reward")
    by_reward.track_best(4, {PASS: 0.1, "evaluate/reward": -2.0})
    assert json.loads((folder.path / "best.json").read_text()) == {"step": 4, "evaluate/reward": -2}


def test_without_a_checkpoint_or_without_being_asked_nothing_is_the_best(tmp_path: Path) -> None:
    folder, learner = make(tmp_path, keep=1, best=PASS)
    folder.track_best(1, {PASS: 0.9})
    assert best_of(folder.path) is None
    plain, learner = make(tmp_path)
    plain.save(learner, 1, {})
    plain.track_best(1, {PASS: 0.9})
    assert best_of(plain.path) is None


@contextmanager
def disk_of(size: str, folder: Path) -> Iterator[None]:
    """A file system of its own on `folder`, with room for less than two checkpoints of 1.6 MB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def is_as_it_was(folder: StageFolder, learner: Learner, checkpoint: Path) -> None:
    """The first checkpoint is the only one, and learning goes on from it."""
    assert kept(folder) == [checkpoint.name]
    before = [parameter.detach().clone() for parameter in learner.policy.trainable.values()]
    for parameter in learner.policy.trainable.values():
        parameter.data.zero_()
    assert folder.restore(learner, NoSource()) == 1
    assert all(
        torch.equal(p, old)
        for p, old in zip(learner.policy.trainable.values(), before, strict=True)
    )


@pytest.mark.parametrize("size", ["1900k", "2500k"])
def test_a_disk_that_fills_up_while_saving_leaves_the_checkpoint_before(
    tmp_path: Path, size: str
) -> None:
    folder, learner = make(tmp_path)
    with disk_of(size, tmp_path / "runs"):
        learner.step(random_samples(8), 0)
        folder.save(learner, 1, {})
        first = folder.checkpoints / "step_000001"
        with pytest.raises(
            MachineError, match=r"o space left.*the last good checkpoint is .*step_000001"
        ) as caught:
            folder.save(learner, 2, {})
        assert "\n" not in str(caught.value)
        is_as_it_was(folder, learner, first)


def test_a_file_that_may_not_grow_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    folder, learner = make(tmp_path)
    learner.step(random_samples(8), 0)
    folder.save(learner, 1, {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, before[1]))
    try:
        with pytest.raises(
            MachineError, match=r"step 2 cannot be saved .*File too large.*ulimit -f"
        ):
            folder.save(learner, 2, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    is_as_it_was(folder, learner, folder.checkpoints / "step_000001")


def test_what_was_not_finite_is_written_whole_with_the_checkpoint_that_is_left_named(
    tmp_path: Path,
) -> None:
    folder, learner = make(tmp_path)
    folder.save(learner, 1, {})
    samples = random_samples(4)
    broken = [
        replace(sample, reward=float("inf") if n == 0 else 0.0) for n, sample in enumerate(samples)
    ]
    with pytest.raises(TrainingError) as caught:
        learner.step(broken, 3)
    error = folder.explain(caught.value)
    left, there = folder.checkpoints / "step_000001", folder.path / "not_finite"
    assert str(error) == (
        f"step 4: the loss is nan; lower optimizer.lr; the last good checkpoint is {left}; "
        f"its batches are in {there}"
    )
    tensors = load_file(there / "batches.safetensors")
    longest = max((sample.tokens for sample in samples), key=len)
    assert tensors["0/tokens"].shape == (4, len(longest))
    assert list(longest) in tensors["0/tokens"].tolist()
    assert tensors["0/advantages"].isnan().any()
    shown = json.loads((there / "batches.json").read_text())
    assert shown["error"] == "step 4: the loss is nan; lower optimizer.lr"
    assert shown["tensors"]["0/mask"] == ["bool", 4, len(longest)]


def test_an_error_without_numbers_names_the_checkpoint_alone(tmp_path: Path) -> None:
    folder, _ = make(tmp_path)
    assert (
        str(folder.explain(TrainingError("memory ran out")))
        == "memory ran out; no checkpoint was saved yet"
    )
    assert not folder.path.exists()


def test_an_error_that_another_path_avoids_is_the_users(tmp_path: Path) -> None:
    folder, learner = make(tmp_path)
    folder.save(learner, 1, {})
    error = folder.explain_disk(PermissionError(13, "Permission denied", "x/metrics.jsonl"))
    assert isinstance(error, SettingsError)
    left = folder.checkpoints / "step_000001"
    assert str(error) == (
        "x/metrics.jsonl: Permission denied; choose another path; the last good checkpoint is"
        f" {left}"
    )
    assert isinstance(folder.explain_disk(OSError(5, "Input/output error")), MachineError)
    (tmp_path / "file").touch()
    folder.checkpoints = tmp_path / "file" / "checkpoints"
    with pytest.raises(SettingsError, match=r"step 2 cannot be saved .*Not a directory"):
        folder.save(learner, 2, {})


def test_an_evaluation_of_other_tasks_is_another_one(tmp_path: Path) -> None:
    settings = run_settings(folder=str(tmp_path), evaluate={"tasks": "drills:test", "every": 2})
    folder = StageFolder(settings)
    folder.note_evaluation(4)
    assert folder.is_evaluated(4)
    assert not folder.is_evaluated(6)
    assert settings.evaluate
    for change, same in (
        ({"tasks": ("mbpp",)}, False),
        ({"samples": 2}, False),
        ({"every": 1}, True),
    ):
        evaluate = settings.evaluate.model_copy(update=change)
        changed = StageFolder(settings.model_copy(update={"evaluate": evaluate}))
        assert changed.is_evaluated(4) == same, change


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_run_that_fails_before_it_writes_leaves_no_folder(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "deep" / "mine"
    with pytest.raises(ModelError), locked(run):
        raise ModelError(f"the model cannot be loaded: {files_of(run)}")
    assert files_of(tmp_path) == []


def test_a_folder_that_was_there_or_that_holds_more_than_the_lock_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(ModelError), locked(tmp_path / "mine"):
        raise ModelError("the model cannot be loaded")
    with locked(tmp_path / "runs" / "begun"):
        (tmp_path / "runs" / "begun" / "first").mkdir()
    assert files_of(tmp_path) == ["mine", "runs", "runs/begun", "runs/begun/first",
                                  "runs/begun/lock"]  # fmt: skip


def test_a_lock_that_its_holder_removes_keeps_nobody_out_and_lets_no_two_in(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    with locked(run):
        with pytest.raises(SettingsError, match="in use by pid"), locked(run):
            pass
        assert files_of(run) == ["lock"], "who is refused removes nothing"
    with locked(run), pytest.raises(SettingsError, match="in use by pid"), locked(run):
        pass


def test_a_lock_that_was_removed_before_it_was_locked_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real = tmp_path / "mine", files.lock

    def late(file: Any) -> bool:
        monkeypatch.setattr(folder_module, "lock", real)
        (run / "lock").unlink()  # as its holder does at its end
        return real(file)

    monkeypatch.setattr(folder_module, "lock", late)
    with locked(run):
        assert files_of(run) == ["lock"]


def test_a_model_that_cannot_be_loaded_leaves_no_run(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "model", "llama")
    (first / "model.safetensors").write_bytes(b"cut off")
    (tmp_path / "plan.toml").write_text(PLAN)
    words = ["--policy.model", str(first), "--folder", str(tmp_path / "runs")]
    with pytest.raises(ModelError):
        run_plan(load_plan(tmp_path / "plan.toml", words))
    assert not (tmp_path / "runs").exists()
