"""The numbers of a run in Weights & Biases; with WANDB_MODE=offline they stay in the run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from assay.errors import SettingsError
from assay.types import Metrics, Rollout


class WandbTracker:
    """Needs the extra `wandb`. Raises SettingsError without it, or where W&B refuses to start."""

    def __init__(self, folder: Path, *, run: str, start_step: int) -> None:
        """A run that is resumed becomes another of the same group, named after the step it goes on from."""
        try:
            wandb = import_module("wandb")
        except ImportError as error:
            raise SettingsError(
                "tracker 'wandb' needs Weights & Biases: pip install 'assay[wandb]', or take it out of `trackers`"
            ) from error
        name = f"{run} from step {start_step}" if start_step else run
        try:
            self._run = wandb.init(project="assay", group=run, name=name, dir=str(folder))
        except wandb.errors.Error as error:
            raise SettingsError(
                f"tracker 'wandb' cannot start ({error}); run `wandb login`, or set WANDB_MODE=offline"
            ) from error

    def track(self, step: int, metrics: Metrics) -> None:
        """Log the numbers under their step."""
        self._run.log(dict(metrics), step=step)

    def rollouts(self, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
        """Nothing: rollouts stay on this machine."""

    def close(self) -> None:
        """Finish the run and upload what is left."""
        self._run.finish()
