"""The numbers of a run as TensorBoard's event files, in `tensorboard/`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.errors import SettingsError
from assay.types import Metrics, Rollout


class TensorboardTracker:
    """Needs the extra `tb`. Raises SettingsError without it."""

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Go on after `start_step`: TensorBoard hides later points that are there already."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise SettingsError(
                "tracker 'tensorboard' needs TensorBoard: pip install 'assay[tb]', or take it out of `trackers`"
            ) from error
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=start_step + 1, flush_secs=10)

    def track(self, step: int, metrics: Metrics) -> None:
        """Add a point to each number's curve."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def rollouts(self, step: int, groups: Sequence[Sequence[Rollout]]) -> None:
        """Nothing: rollouts are no numbers."""

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()
