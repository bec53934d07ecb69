"""Dashboards: TensorBoard's event files, Weights & Biases, and trackio."""

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any

from assay.config.sections import RunSettings
from assay.errors import SettingsError
from assay.files import write_atomically
from assay.trackers.base import Tracker
from assay.types import Metrics, Rollout, Sample

TABLE_EVERY, TABLE_ROWS = 10, 8
"""Steps between tables of sample rollouts, and rollouts in a table."""
EXTRAS = {"tensorboard": "tb", "wandb": "wandb", "trackio": "trackio"}
"""The extra of assay that brings a tracker's package."""
COLUMNS = ["step", "task", "prompt", "completion", "verdict", "reward"]


def require_package(tracker: str) -> None:
    """Raises SettingsError for a tracker whose package is absent. Imports none."""
    spec = find_spec(tracker) if tracker in EXTRAS else None
    if tracker in EXTRAS and not (spec and spec.origin):  # a folder `wandb` is no package
        raise SettingsError(
            f"tracker {tracker!r} needs a package: pip install -e '.[{EXTRAS[tracker]}]' in assay's"
            " checkout, or take it out of `trackers`"
        )


class TensorboardTracker(Tracker):
    """Needs the extra `tb`. Raises SettingsError without it."""

    def __init__(self, folder: Path, *, start_step: int) -> None:
        """Open the event file; TensorBoard hides points after `start_step` that exist already, and
        all of a run that starts over.
        """
        require_package("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(
            str(folder / "tensorboard"),
            purge_step=start_step + 1 if start_step else 0,
            flush_secs=10,
        )

    def track(self, step: int, metrics: Metrics) -> None:
        """Add a point to the curve of each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class DashboardTracker(Tracker):
    """W&B, or trackio, which has the same functions; each needs the extra of its name.

    All stages and resumes of a run are one run there: the run's id is kept in the run's folder, and
    the metrics of a stage are named `STAGE/...`, over `STAGE/step`. Its history only grows, so a
    step that a resumed run repeats is not logged again: the folder holds the last step of each kind
    of numbers that was logged. Raises SettingsError without the package, or when the dashboard
    refuses to start.
    """

    def __init__(self, package: str, run_folder: Path, settings: RunSettings) -> None:
        """Start the run, or continue it, with the resolved settings of the stage as its config."""
        require_package(package)
        self._name, self._stage = package, settings.stage
        self._logged = run_folder / f"{package}_{self._stage}_steps.json"
        file = run_folder / f"{package}_id"
        if not file.exists():
            write_atomically(file, token_hex(4))
        arguments: dict[str, Any] = {
            "project": settings.dashboard.project,
            "resume": "allow",
            "config": {settings.stage: settings.model_dump(mode="json")},
        }
        if package == "wandb":
            arguments |= {"id": file.read_text(), "name": settings.name, "dir": str(run_folder)}
        else:  # trackio knows a run by its name
            arguments |= {"name": f"{settings.name}-{file.read_text()}", "embed": False}
        try:
            self._package = import_module(package)
            self._run = self._package.init(**arguments)
        except Exception as error:
            raise SettingsError(
                f"tracker {package!r} cannot start ({error}); log in, set WANDB_MODE=offline for"
                " wandb, or take it out of `trackers`"
            ) from error
        if package == "wandb":
            self._run.define_metric(f"{self._stage}/*", step_metric=f"{self._stage}/step")

    def track(self, step: int, metrics: Metrics) -> None:
        """Log the metrics of a step under the name of the stage."""
        is_evaluation = any(name.startswith("evaluate/") for name in metrics)
        self._log_once("evaluation" if is_evaluation else "step", step, metrics)

    def rollouts(
        self, step: int, groups: Sequence[Sequence[Rollout]], samples: Sequence[Sample] = ()
    ) -> None:
        """Log one rollout from each of the first groups, every few steps: a table in W&B, traces in
        trackio.
        """
        if step % TABLE_EVERY == 1:
            some = [rollout for group in groups[:TABLE_ROWS] for rollout in group[:1]]
            self._log_once("samples", step, {"samples": self._samples(step, some)})

    def close(self) -> None:
        """Finish the run and upload what is left."""
        self._run.finish()

    def _samples(self, step: int, rollouts: Sequence[Rollout]) -> Any:
        if self._name == "trackio":
            return [
                self._package.Trace(_messages(rollout), _labels(rollout)) for rollout in rollouts
            ]
        return self._package.Table(
            columns=COLUMNS, data=[_row(step, rollout) for rollout in rollouts]
        )

    def _log_once(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        last = json.loads(self._logged.read_text()) if self._logged.exists() else {}
        if step > last.get(kind, -1):
            row = {"step": step, **values}
            self._run.log({f"{self._stage}/{name}": value for name, value in row.items()})
            write_atomically(self._logged, json.dumps(last | {kind: step}))


def _row(step: int, rollout: Rollout) -> list[Any]:
    completions = "\n---\n".join(turn.completion.text for turn in rollout.turns)
    task, *verdict_and_reward = _labels(rollout).values()
    return [step, task, rollout.task.prompt, completions, *verdict_and_reward]


def _messages(rollout: Rollout) -> list[dict[str, str]]:
    """The rollout as a dialogue: the prompt, and each completion with what the environment said."""
    messages = [{"role": "user", "content": rollout.task.prompt}]
    for turn in rollout.turns:
        messages.append({"role": "assistant", "content": turn.completion.text})
        if turn.observation:
            messages.append({"role": "user", "content": turn.observation})
    return messages


def _labels(rollout: Rollout) -> dict[str, Any]:
    verdict = str(rollout.execution.verdict) if rollout.execution else rollout.failure
    reward = rollout.score.total if rollout.score else None
    return {"task": rollout.task.id, "verdict": verdict, "reward": reward}
