"""What a folder of runs holds: stages, metrics, alerts, evaluations. Everything is only read."""

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import SettingsError
from assay.evaluate.compare import OWN
from assay.evaluate.report import Evaluation, title
from assay.maths.estimates import mean_pass_at_k, pass_interval
from assay.paths import real_path
from assay.trackers.jsonl import has_ended
from assay.trackers.rollouts import VOCABULARY
from assay.viewer.file_cache import FileCache, is_below
from assay.viewer.parse import (
    read_evaluations,
    read_events,
    read_metrics,
    read_protocols,
    read_settings,
    read_settings_table,
    require_parquet,
)
from assay.viewer.rollout_index import RolloutFiles, last_turns, read_rows
from assay.viewer.suspects import passes_by_task

KINDS = ("rollouts", "evaluations")
"""The folders of a stage that hold rollouts: of training, and of its evaluations."""
PASS_RATE = "reward/pass_rate"
SPARK, POINTS = 48, 500
"""Most points of a sparkline, and of a curve beside others."""
EVALUATION = "evaluation"
"""What the page calls the stage of a folder that `assay eval` wrote."""
DEPTHS = ("*", "*/*")
"""Where runs lie below the folder that is shown, which may be a run too."""


@dataclass(slots=True)
class StageFiles:
    """A stage of a run."""

    name: str
    path: Path
    rollouts: dict[str, RolloutFiles]
    """By their folder, one of KINDS."""
    cache: FileCache

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl: the step, and the metrics by name."""
        return self.cache.read(self.path / "metrics.jsonl", read_metrics, [])

    @property
    def events(self) -> list[dict[str, Any]]:
        """The warnings of the stage."""
        events: list[Any] = self.cache.read(self.path / "events.jsonl", read_events, [])
        return [{"stage": self.name, **event} for event in events]

    @property
    def place(self) -> dict[str, Any]:
        """Its name, and the last step that was tracked."""
        return {"name": self.name, "step": max((row["step"] for row in self.metrics), default=0)}

    @property
    def settings(self) -> str:
        """Its config.toml; empty where that is damaged."""
        return self.cache.read(self.path / "config.toml", read_settings, "")

    @property
    def settings_table(self) -> dict[str, Any]:
        """Its settings by their dotted names."""
        return self.cache.read(self.path / "config.toml", read_settings_table, {})

    def recipe(self, run: str) -> str:
        """Equal for stages whose settings differ in the run's name, folder and seed alone."""
        top, table, rest = self.settings.partition("\n[")
        shared = [line for line in top.splitlines() if line.partition(" =")[0] not in OWN]
        return "\n".join([self.name, *shared, table, rest]).replace(run, "")

    def curve(self, metric: str) -> dict[str, list[float]]:
        """A metric by step, in at most POINTS points."""
        values = {row["step"]: row[metric] for row in self.metrics if row.get(metric) is not None}
        thin = max(1, -(-len(values) // POINTS))
        steps = sorted(values)[::-1][::thin][::-1]
        return {"steps": steps, "values": [values[step] for step in steps]}

    def columns(self, since: int, tag: str) -> dict[str, Any]:
        """The metrics after the first `since` rows as columns, and the last of those, which an
        evaluation may have joined; all of them where the file is not the one that `tag` names.
        """
        file = self.path / "metrics.jsonl"
        now = _inode(file)
        rows, start = self.metrics, max(0, since - 1) if tag == now else 0
        new = rows[start:]
        names = dict.fromkeys(name for row in new for name in row)
        values = {name: [row.get(name) for row in new] for name in names}
        return {"tag": now, "start": start, "count": len(rows), "columns": values}

    def check(self) -> None:
        """Notice what is damaged of the files that are not read to tell the state of a run: the
        settings, and the beginning and end of Parquet files.
        """
        folders = [self.path / kind for kind in KINDS]
        files = [file for folder in folders for file in folder.glob("step_*.parquet")]
        for file in (self.path / VOCABULARY, *files):
            self.cache.read(file, require_parquet, False)
        self.cache.read(self.path / "config.toml", read_settings, "")

    def points(self) -> list[dict[str, Any]]:
        """pass@1 of each evaluation by step, with its interval over tasks."""
        files = self.rollouts["evaluations"].files()
        points = [self.cache.read(file, read_point, None) for file in files.values()]
        return [{"step": step} | point for step, point in zip(files, points, strict=True) if point]


@dataclass(slots=True)
class RunFiles:
    """A run: its stages in the order in which they ran, and its report."""

    name: str
    path: Path
    cache: FileCache
    stages: dict[str, StageFiles] = field(default_factory=dict)

    def refresh(self) -> None:
        """Find new stages."""
        root = self.cache.root
        folders = [path for path in _stages(self.path) if is_below(root, path / "config.toml")]
        order = sorted(folders, key=lambda path: (_changed(path / "metrics.jsonl"), path.name))
        paths = {path.name: path for path in order}
        if is_below(root, self.path / "evaluations") and (self.path / "evaluations").is_dir():
            paths[EVALUATION] = self.path
        stages = {}
        for name, path in paths.items():
            kinds = {kind: RolloutFiles(path / kind, self.cache) for kind in KINDS}
            stages[name] = self.stages.get(name) or StageFiles(name, path, kinds, self.cache)
        self.stages = stages

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations of report.json."""
        return self.cache.read(self.path / "report.json", read_evaluations, [])

    def evaluation(self, number: int) -> dict[str, Any]:
        """An evaluation of the report: its tasks with their tags, its protocol, and the stage and
        step where its rollouts are. Raises IndexError.
        """
        evaluation = self.evaluations[number]
        protocols = self._protocols()
        stage = self.stages.get(evaluation.name) or next(iter(self), None)
        steps = [*stage.rollouts["evaluations"].files()] if stage else []
        step = 0 if evaluation.name not in self.stages else max(steps, default=0)
        tags = stage.rollouts["evaluations"].tags(step) if stage else {}
        tasks = [asdict(task) | {"tags": tags.get(task.id, {})} for task in evaluation.per_task]
        place = {"stage": stage.name, "step": step} if stage and step in steps else None
        return evaluation_row(evaluation) | {
            "protocol": protocols.get(title(evaluation), []), "per_task": tasks, "place": place,
        }  # fmt: skip

    def _protocols(self) -> dict[str, list[str]]:
        absent: dict[str, list[str]] = {}
        return self.cache.read(self.path / "report.json", read_protocols, absent)

    def damage(self) -> list[str]:
        """A line on each file of the run that is damaged, of those that were read so far."""
        return self.cache.damage(self.path)

    @property
    def changed(self) -> float:
        """When a file of the run changed last, in seconds since 1970."""
        files = [self.path / "report.json", *(stage.path / "metrics.jsonl" for stage in self)]
        return max(map(_changed, files))

    def __iter__(self) -> Iterator[StageFiles]:
        return iter(self.stages.values())

    @property
    def last_stage(self) -> StageFiles | None:
        """The last stage that has begun; None before the first."""
        return next(reversed(self.stages.values()), None)

    @property
    def finished(self) -> bool:
        """Whether its last stage has taken all its steps, and is evaluated where it should be."""
        last = self.last_stage
        if last is None:
            return False
        steps, table = last.place["step"], last.settings_table
        evaluated = last.name in {evaluation.name for evaluation in self.evaluations}
        needs_evaluation = any(name.startswith("evaluate.") for name in table)
        done = steps >= table.get("steps", float("inf")) or has_ended(last.events, steps)
        return done and (evaluated or not needs_evaluation)

    def summary(self) -> dict[str, Any]:
        """The run in the list of runs."""
        curve = [row[PASS_RATE] for stage in self for row in stage.metrics if PASS_RATE in row]
        curve = [value for value in curve if value is not None]
        thin = max(1, -(-len(curve) // SPARK))
        last = self.evaluations[-1:]
        return {
            "name": self.name,
            "stages": [stage.place for stage in self],
            "age": max(0.0, time.time() - self.changed),
            "finished": self.finished,
            "spark": curve[::-1][::thin][::-1],
            "evaluation": evaluation_row(last[0]) if last else None,
            "alerts": sum(len(stage.events) for stage in self),
            "damage": self.damage(),
        }

    def state(self) -> dict[str, Any]:
        """What a program that watches the run needs: newest metrics, evaluations, alerts."""
        stages = [
            stage.place | {"metrics": {key: row[key] for row in stage.metrics for key in row}}
            for stage in self
        ]
        for stage in self:
            stage.check()
        return self._with_report(stages)

    def call_sums(self) -> list[dict[str, Any]]:
        """Of each rollout of an agent, in the newest step of each stage and kind, how many calls
        there were, and their tokens by what became of them.
        """
        return [
            {"run": self.name, "stage": stage.name, "kind": kind} | row
            for stage in self
            for kind, files in stage.rollouts.items()
            for row in files.call_sums()
        ]

    def details(self, since: dict[str, tuple[int, str]]) -> dict[str, Any]:
        """All of the run but its rollouts; `since` gives the rows and the tag of each stage's
        metrics that the reader has.
        """
        stages = [
            {
                "name": stage.name,
                "metrics": stage.columns(*since.get(stage.name, (0, ""))),
                "points": stage.points(),
                "steps": {kind: [*files.files()] for kind, files in stage.rollouts.items()},
                "settings": stage.settings,
                "recipe": stage.recipe(self.name),
            }
            for stage in self
        ]
        for stage in self:
            stage.check()
        return self._with_report(stages)

    def _with_report(self, stages: list[dict[str, Any]]) -> dict[str, Any]:
        state = {
            "name": self.name,
            "age": max(0.0, time.time() - self.changed),
            "finished": self.finished,
            "stages": stages,
            "evaluations": [evaluation_row(evaluation) for evaluation in self.evaluations],
            "alerts": [event for stage in self for event in stage.events],
        }
        self._protocols()  # notices damage
        return state | {"damage": self.damage()}


class RunsFolder:
    """The runs in a folder, or one run."""

    def __init__(self, root: Path) -> None:
        """Raises SettingsError for a folder without a run, PermissionError for one that this user
        may not read.
        """
        self.root = real_path(root)
        if self.root.is_dir() and not os.access(self.root, os.R_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(root))
        self._cache = FileCache(self.root)
        self.by_name: dict[str, RunFiles] = {}
        """The runs that were found last, by name."""
        if not self.runs():
            raise SettingsError(
                f"{root} has no run; give the folder of a run (runs/demo), or one that holds runs;"
                " links that lead out of it are not followed"
            )

    def runs(self) -> dict[str, RunFiles]:
        """By name, the newest first."""
        places = [self.root, *(path for depth in DEPTHS for path in self.root.glob(depth))]
        paths = {
            path: "/".join(path.relative_to(self.root).parts) or path.name
            for path in places
            if is_below(self.root, path)
            and (os.path.lexists(path / "report.json") or _stages(path))
        }
        runs = {
            name: self.by_name.get(name) or RunFiles(name, path, self._cache)
            for path, name in paths.items()
        }
        for run in runs.values():
            run.refresh()
        self.by_name = dict(sorted(runs.items(), key=lambda item: -item[1].changed))
        return self.by_name


def evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation without its tasks."""
    of_tasks = ("per_task", "lost_by_task")
    row = {key: value for key, value in asdict(evaluation).items() if key not in of_tasks}
    return row | {"title": title(evaluation), "lost": evaluation.lost}


def read_point(file: Path) -> dict[str, Any] | None:
    """pass@1 of a file of an evaluation's rollouts; None where the machine lost all."""
    counts = [passes[::-1] for passes in passes_by_task(last_turns(read_rows([file]))).values()]
    if not counts:
        return None
    mean = mean_pass_at_k(counts, 1)
    return {"pass": mean, **asdict(pass_interval(counts)), "tasks": len(counts)}


def _stages(run: Path) -> list[Path]:
    """The folders of a run that have settings, were these a link that leads to nothing."""
    return [path for path in run.glob("*/") if os.path.lexists(path / "config.toml")]


def _inode(file: Path) -> str:
    try:
        return str(file.stat().st_ino)
    except OSError:
        return ""


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
