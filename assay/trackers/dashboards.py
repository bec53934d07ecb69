"""The numbers of a run on dashboards: TensorBoard's event files, in `tensorboard/`, and Weights &
Biases.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from assay.errors import SettingsError
from assay.trackers.base import Tracker
from assay.types import Metrics


class TensorboardTracker(Tracker):
    """Needs the extra `tb`. Raises SettingsError without it."""

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Go on after `start_step`: TensorBoard hides later points that are there already."""
        writer = _package("torch.utils.tensorboard", "tensorboard", "tb").SummaryWriter
        self._writer = writer(str(folder / "tensorboard"), purge_step=start_step + 1, flush_secs=10)

    def track(self, step: int, metrics: Metrics) -> None:
        """Add a point to each number's curve."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class WandbTracker(Tracker):
    """Needs the extra `wandb`; with WANDB_MODE=offline the numbers stay in the run's folder.

    Raises SettingsError without it, or where W&B refuses to start.
    """

    def __init__(self, folder: Path, *, run: str, start_step: int) -> None:
        """A run that is resumed becomes another of the same group, named after the step it goes on
        from.
        """
        wandb = _package("wandb", "wandb", "wandb")
        name = f"{run} from step {start_step}" if start_step else run
        try:
            self._run = wandb.init(project="assay", group=run, name=name, dir=str(folder))
        except wandb.errors.Error as error:
            raise SettingsError(
                f"tracker 'wandb' cannot start ({error}); run `wandb login`, or set"
                " WANDB_MODE=offline"
            ) from error

    def track(self, step: int, metrics: Metrics) -> None:
        """Log the numbers under their step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run and upload what is left."""
        self._run.finish()


def _package(module: str, tracker: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise SettingsError(
            f"tracker {tracker!r} needs a package: pip install 'assay[{extra}]', or take it out of"
            " `trackers`"
        ) from error
