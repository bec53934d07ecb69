"""A run's folder and the folders of its stages: the lock, settings, checkpoints and progress.

Every file in them is complete or absent.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from assay.config.load import dump
from assay.config.sections import RunSettings
from assay.config.toml_files import absolute
from assay.errors import MachineError, SettingsError, TrainingError
from assay.files import advice, error_number, remove_leftovers, replacing, write_atomically
from assay.policy.load import load_policy
from assay.prompts import CARD
from assay.registry import one_line
from assay.train.learner import Learner
from assay.types import Metrics

MAY_CHANGE = (
    "evaluate", "save", "trackers", "dashboard", "learner", "policy.gradient_checkpointing",
    "judge.slots", "judge.allow_weak_isolation",
    "engine.kv_cache_tokens", "engine.servers", "engine.python", "engine.arguments",
    "engine.weights_folder",
)  # fmt: skip
"""Settings that may differ when a run continues: they do not change what a step computes."""
LENGTH = ("steps", "epochs")
"""Settings that may differ under a constant schedule only: the learning rate of other schedules
depends on the length."""
LOCK = "lock"
"""Name of the file in a run's folder that a trainer locks."""
log = logging.getLogger(__name__)


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep other trainers out of a run's folder; the kernel unlocks it when this process ends.

    Raises SettingsError that names the process which holds the lock.
    """
    run.mkdir(parents=True, exist_ok=True)
    with (run / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise SettingsError(
                f"{run} is in use by {file.read() or 'another process'}; wait for it to end, or"
                " choose another --name"
            ) from None
        except OSError as error:
            log.warning("%s cannot be locked (%s): start no second trainer in it", run, error)
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {gethostname()} since {datetime.now():%Y-%m-%d %H:%M:%S}")
        file.flush()
        yield


class StageFolder:
    """The folder of one stage of a run, with its checkpoints.

    A checkpoint is a model in Hugging Face format plus the state that training needs to continue.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.run = Path(settings.folder) / settings.name
        self.path = self.run / settings.stage
        self.saved = self.path / "config.toml"
        self.checkpoints = self.path / "checkpoints"

    def check(self) -> None:
        """Raises SettingsError when the folder has checkpoints that other settings made."""
        if self.saved.is_file() and self.latest():
            texts = self.saved.read_text(encoding="utf-8"), dump(self.settings, self.path)
            old, new = (_flat(absolute(tomllib.loads(text), self.path)) for text in texts)
            free = (
                *MAY_CHANGE,
                *(LENGTH if self.settings.optimizer.schedule == "constant" else ()),
            )
            differ = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            if changed := sorted(key for key in differ if not _within(key, free)):
                raise SettingsError(
                    f"{self.path} was made with other settings ({', '.join(changed)}): "
                    "choose another --name, or start over with --fresh"
                )

    def open(self) -> None:
        """Create the folder, or clean up after a killed trainer; write the current settings."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path)
        remove_leftovers(self.checkpoints)
        self._prune()
        write_atomically(self.saved, dump(self.settings, self.path))

    @property
    def evaluated(self) -> int | None:
        """Steps done at the newest evaluation; None before the first."""
        file = self.path / "evaluated.json"
        return int(json.loads(file.read_text())["step"]) if file.is_file() else None

    @evaluated.setter
    def evaluated(self, done: int) -> None:
        write_atomically(self.path / "evaluated.json", json.dumps({"step": done}))

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, if any."""
        return next(reversed(self._all()), None)

    def best(self) -> Path | None:
        """The folder of the best checkpoint by `save.best`, if any."""
        file = self.path / "best.json"
        found = self._at(json.loads(file.read_text())["step"]) if file.is_file() else None
        return found if found and found.is_dir() else None

    def track_best(self, step: int, metrics: Metrics) -> None:
        """Note the checkpoint after `step` steps as the best if its metric is higher."""
        name, before = self.settings.save.best, self.best()
        if name and self._at(step).is_dir():
            bar = (
                json.loads((self.path / "best.json").read_text())[name] if before else float("-inf")
            )
            if metrics[name] > bar:
                write_atomically(
                    self.path / "best.json", json.dumps({"step": step, name: metrics[name]})
                )

    def save(
        self, learner: Learner, step: int, position: Mapping[str, Any], card: str = "{}"
    ) -> None:
        """Write a checkpoint after `step` steps with the source's `position` and the prompt `card`.

        Older checkpoints beyond `save.keep` are deleted, except the best. Raises MachineError when
        the disk is full or fails; earlier checkpoints stay.
        """
        try:
            with replacing(self._at(step)) as partial:
                learner.policy.save(partial)
                (partial / CARD).write_text(card)
                state = partial / "assay"
                state.mkdir()
                learner.optimizer.save(state / "optimizer.safetensors")
                save_file(learner.state, state / "learner.safetensors")
                (state / "source.json").write_text(json.dumps(position))
        except Exception as error:
            if error_number(error) is None:
                raise
            raise MachineError(
                f"step {step} cannot be saved in {self.checkpoints}: {one_line(error)};"
                f" {advice(error)}; {self._left()}"
            ) from error
        self._prune()

    def explain(self, error: TrainingError) -> TrainingError:
        """The error with the last checkpoint named; its batches are saved for inspection."""
        message = f"{error}; {self._left()}"
        if not error.batches:
            return TrainingError(message)
        tensors = {
            f"{number}/{field.name}": value.contiguous().clone()
            for number, batch in enumerate(error.batches)
            for field in fields(batch)
            if isinstance(value := getattr(batch, field.name), Tensor)
        }
        shapes = {
            name: [str(value.dtype).removeprefix("torch."), *value.shape]
            for name, value in tensors.items()
        }
        try:
            with replacing(self.path / "not_finite") as partial:
                partial.mkdir()
                save_file(tensors, partial / "batches.safetensors")
                text = json.dumps({"error": str(error), "tensors": shapes}, indent=1)
                (partial / "batches.json").write_text(text + "\n")
        except (OSError, SafetensorError) as full:
            return TrainingError(f"{message}; its batches could not be saved: {one_line(full)}")
        return TrainingError(f"{message}; its batches are in {self.path / 'not_finite'}")

    def explain_disk(self, error: OSError) -> MachineError:
        """The error with the last checkpoint named."""
        return MachineError(
            f"{error.filename or self.path}: {error.strerror or one_line(error)}; {advice(error)};"
            f" {self._left()}"
        )

    def position(self, checkpoint: Path) -> dict[str, Any]:
        """The position of the source in a checkpoint."""
        return dict(json.loads((checkpoint / "assay" / "source.json").read_text()))

    def restore(self, learner: Learner, checkpoint: Path) -> int:
        """Load weights and optimizer state of a checkpoint; returns the number of steps done."""
        plain = {"model": str(checkpoint), "device": "cpu", "quantize": None}
        saved = load_policy(self.settings.policy.model_copy(update=plain))
        for name, parameter in learner.policy.trainable.items():
            parameter.data.copy_(saved.trainable[name].data)
        learner.optimizer.load(checkpoint / "assay" / "optimizer.safetensors")
        learned = load_file(checkpoint / "assay" / "learner.safetensors")
        for name, tensor in learner.state.items():
            tensor.data.copy_(learned[name])
        return _steps(checkpoint)

    def _prune(self) -> None:
        for old in self._all()[: -self.settings.save.keep]:
            if old != self.best():
                shutil.rmtree(old)

    def _left(self) -> str:
        latest = self.latest()
        return f"the last good checkpoint is {latest}" if latest else "no checkpoint was saved yet"

    def _at(self, step: int) -> Path:
        return self.checkpoints / f"step_{step:06d}"

    def _all(self) -> list[Path]:
        """The checkpoints, oldest first."""
        found = (
            path
            for path in self.checkpoints.glob("step_*")
            if re.fullmatch(r"step_\d{6,}", path.name)
        )
        return sorted(found, key=_steps)


def _steps(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (
            _flat(value, f"{prefix}{key}.")
            if isinstance(value, dict)
            else {f"{prefix}{key}": value}
        )
    return flat


def _within(key: str, tables: Sequence[str]) -> bool:
    return any(key == table or key.startswith(f"{table}.") for table in tables)
