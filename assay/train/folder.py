"""A stage's folder: settings, checkpoints, resume and the wish to stop. Everything in it is whole or absent."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from assay.config.load import dump
from assay.config.sections import RunSettings
from assay.errors import SettingsError
from assay.files import remove_leftovers, replacing, write_atomically
from assay.policy.load import load_policy
from assay.policy.save import save_policy
from assay.train.learner import Learner

MAY_CHANGE = ("steps", "epochs", "evaluate", "save", "trackers", "judge", "learner", "folder")
"""Settings that may differ when a run goes on: they do not alter what a step does."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved policy with what learning needs to go on."""

    folder: Path
    step: int
    """Steps done when it was saved."""


class StageFolder:
    """The folder of one stage of a run."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.run = Path(settings.folder) / settings.name
        self.path = self.run / settings.stage
        self.checkpoints = self.path / "checkpoints"

    def open(self) -> None:
        """Make the folder, or take it up again. Raises SettingsError when it was made with other settings."""
        saved = self.path / "config.toml"
        if saved.is_file():
            self._refuse_other_settings(tomllib.loads(saved.read_text(encoding="utf-8")))
            remove_leftovers(self.path)
            remove_leftovers(self.checkpoints)
        write_atomically(saved, dump(self.settings))

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint, if any."""
        return max(self._all(), key=lambda one: one.step, default=None)

    def save(self, learner: Learner, step: int) -> Checkpoint:
        """Write a checkpoint of `step` steps done, whole or not at all; drop the oldest beyond `save.keep`."""
        checkpoint = Checkpoint(self.checkpoints / f"step_{step:06d}", step)
        with replacing(checkpoint.folder) as partial:
            save_policy(learner.policy, partial)
            state = partial / "assay"
            state.mkdir()
            learner.optimizer.save(state / "optimizer.safetensors")
            (state / "state.json").write_text(json.dumps({"step": step, "seed": self.settings.seed}))
        for old in sorted(self._all(), key=lambda one: one.step)[: -self.settings.save.keep]:
            shutil.rmtree(old.folder)
        return checkpoint

    def restore(self, learner: Learner, checkpoint: Checkpoint) -> None:
        """Put the checkpoint's weights and the optimizer's state into the learner."""
        saved = load_policy(self.settings.policy.model_copy(update={"model": str(checkpoint.folder)}))
        for name, parameter in learner.policy.trainable.items():
            parameter.data.copy_(saved.trainable[name].data)
        learner.optimizer.load(checkpoint.folder / "assay" / "optimizer.safetensors")

    def _all(self) -> list[Checkpoint]:
        if not self.checkpoints.is_dir():
            return []
        return [
            Checkpoint(path, int(path.name.removeprefix("step_")))
            for path in self.checkpoints.iterdir()
            if re.fullmatch(r"step_\d{6,}", path.name)
        ]

    def _refuse_other_settings(self, old: dict[str, object]) -> None:
        new = tomllib.loads(dump(self.settings))
        changed = sorted(
            key for key in old.keys() | new.keys() if key not in MAY_CHANGE and old.get(key) != new.get(key)
        )
        if changed:
            raise SettingsError(
                f"{self.path} was made with other settings ({', '.join(changed)}): "
                "choose another --name, or start over with --fresh"
            )
