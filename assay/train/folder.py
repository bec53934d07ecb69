"""A stage's folder: settings, checkpoints and where the run stands. Everything in it is whole or absent."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from assay.config.load import dump
from assay.config.sections import RunSettings
from assay.errors import SettingsError
from assay.files import remove_leftovers, replacing, write_atomically
from assay.policy.load import load_policy
from assay.train.learner import Learner

MAY_CHANGE = ("evaluate", "save", "trackers", "learner", "judge.slots", "judge.allow_weak_isolation")
"""Settings that may differ when a run goes on: they do not alter what a step does."""
LENGTH = ("steps", "epochs")
"""Settings that may differ under a constant schedule only: the others' rates depend on the length."""


class StageFolder:
    """The folder of one stage of a run. A checkpoint in it is a policy with what learning needs to go on."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.run = Path(settings.folder) / settings.name
        self.path = self.run / settings.stage
        self.saved = self.path / "config.toml"
        self.checkpoints = self.path / "checkpoints"

    def check(self) -> None:
        """Raises SettingsError when the folder holds what other settings have learned."""
        if self.saved.is_file() and self.latest():
            old = _flat(tomllib.loads(self.saved.read_text(encoding="utf-8")))
            new = _flat(tomllib.loads(dump(self.settings)))
            free = (*MAY_CHANGE, *(LENGTH if self.settings.optimizer.schedule == "constant" else ()))
            differ = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            if changed := sorted(key for key in differ if not _within(key, free)):
                raise SettingsError(
                    f"{self.path} was made with other settings ({', '.join(changed)}): "
                    "choose another --name, or start over with --fresh"
                )

    def open(self) -> None:
        """Make the folder, or take it up again, with the settings that hold from now on."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.path)
        remove_leftovers(self.checkpoints)
        write_atomically(self.saved, dump(self.settings))

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

    def save(self, learner: Learner, step: int) -> None:
        """Write a checkpoint of `step` steps done, whole or not at all; drop the oldest beyond `save.keep`."""
        with replacing(self.checkpoints / f"step_{step:06d}") as partial:
            learner.policy.save(partial)
            state = partial / "assay"
            state.mkdir()
            learner.optimizer.save(state / "optimizer.safetensors")
            save_file(learner.state, state / "learner.safetensors")
        for old in self._all()[: -self.settings.save.keep]:
            shutil.rmtree(old)

    def restore(self, learner: Learner, checkpoint: Path) -> int:
        """Put the checkpoint's weights and the optimizer's state into the learner; the steps done."""
        saved = load_policy(self.settings.policy.model_copy(update={"model": str(checkpoint), "device": "cpu"}))
        for name, parameter in learner.policy.trainable.items():
            parameter.data.copy_(saved.trainable[name].data)
        learner.optimizer.load(checkpoint / "assay" / "optimizer.safetensors")
        learned = load_file(checkpoint / "assay" / "learner.safetensors")
        for name, tensor in learner.state.items():
            tensor.data.copy_(learned[name])
        return _steps(checkpoint)

    def _all(self) -> list[Path]:
        """The checkpoints, oldest first."""
        found = (path for path in self.checkpoints.glob("step_*") if re.fullmatch(r"step_\d{6,}", path.name))
        return sorted(found, key=_steps)


def _steps(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step_"))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _within(key: str, tables: Sequence[str]) -> bool:
    return any(key == table or key.startswith(f"{table}.") for table in tables)
