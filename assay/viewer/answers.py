"""What the page asks: each question by its name, with its parameters, answered as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from pydantic import TypeAdapter

from assay.errors import UserError
from assay.maths.comparison import paired_difference
from assay.viewer.folders import Kind, RunFiles, RunsFolder
from assay.viewer.rollouts import Filter, RolloutFiles
from assay.viewer.suspects import rows, suspects, tasks

Parameters = Mapping[str, str]
MOST_ROWS = 500
"""Rows of one answer."""
ORDERS = ("step", "-step", "reward", "-reward", "length", "-length")


FILTER, FILTERS = TypeAdapter(Filter), tuple(field.name for field in fields(Filter))


class UnknownError(UserError):
    """A question about something that is not there."""


class Answers:
    """Answers about the runs of a folder. A name in a question is only ever looked up among those
    that were found there.
    """

    def __init__(self, folder: RunsFolder) -> None:
        self.folder = folder
        self.by_name: dict[str, Callable[[Parameters], Any]] = {
            "runs": self.runs, "run": self.run, "rollouts": self.rollouts, "rollout": self.rollout,
            "text": self.text, "suspects": self.suspects, "tasks": self.tasks,
            "evaluation": self.evaluation, "curves": self.curves,
        }  # fmt: skip

    def runs(self, _: Parameters) -> Any:
        """All runs, the newest first."""
        return {
            "folder": self.folder.root.name,
            "runs": [run.summary() for run in self.folder.runs().values()],
        }

    def run(self, asked: Parameters) -> Any:
        """A run without its rollouts; `have` names the metrics that the page has already, as
        `stage count tag`, with commas between.
        """
        since = {}
        for one in filter(None, asked.get("have", "").split(",")):
            stage, count, tag = one.rsplit(" ", 2)
            since[stage] = int(count), tag
        run = self._run(asked)
        run.refresh()
        return run.details(since)

    def rollouts(self, asked: Parameters) -> Any:
        """A part of the list of rollouts: `start` and `count`; `total` counts all."""
        order, start = asked.get("order", "-step"), int(asked.get("start", 0))
        if order not in ORDERS:
            raise UnknownError(f"unknown order {order!r}; take one of {', '.join(ORDERS)}")
        wanted = FILTER.validate_python({name: asked[name] for name in FILTERS if asked.get(name)})
        table = self._files(asked).select(wanted, order)
        count = min(int(asked.get("count", MOST_ROWS)), MOST_ROWS)
        return {"total": len(table), "start": start, "rows": rows(table[start : start + count])}

    def rollout(self, asked: Parameters) -> Any:
        """One rollout with its turns."""
        found = self._files(asked).rollout(*self._place(asked))
        if found is None:
            raise UnknownError("there is no such rollout; the step may have been trained again")
        return found

    def text(self, asked: Parameters) -> Any:
        """A piece of a long text."""
        turn, start = int(asked["turn"]), int(asked["start"])
        place = self._place(asked)
        return {"text": self._files(asked).text(*place, turn, asked["name"], start)}

    def suspects(self, asked: Parameters) -> Any:
        """Rollouts that may be paid for what they do not do."""
        return suspects(self._files(asked))

    def tasks(self, asked: Parameters) -> Any:
        """Each task's passes and rewards by step."""
        return tasks(self._files(asked).index())

    def evaluation(self, asked: Parameters) -> Any:
        """An evaluation by its number `at` in the report of its run, with its tasks; and how that
        `with_at` of run `with_run` differs from it on the tasks of both.
        """
        found = self._run(asked).evaluation(int(asked["at"]))
        if "with_run" in asked:
            run = self._run({"run": asked["with_run"]})
            other = found["other"] = run.evaluation(int(asked["with_at"]))
            rates, others = (
                {task["id"]: task["passed"] / task["samples"] for task in one["per_task"]}
                for one in (found, other)
            )
            both = [name for name in rates if name in others]
            samples = min(found["samples"], other["samples"])
            sides = [rates[name] for name in both], [others[name] for name in both]
            found["difference"] = asdict(paired_difference(*sides, samples)) if both else None
        return found

    def curves(self, asked: Parameters) -> Any:
        """A metric in every stage of every run that has it, and the names of all metrics."""
        stages = [(run.name, stage) for run in self.folder.runs().values() for stage in run]
        names = {name for _, stage in stages for row in stage.metrics for name in row}
        made = [
            {
                "run": run,
                "stage": stage.name,
                "recipe": stage.recipe(run),
                **stage.curve(asked["metric"]),
            }
            for run, stage in stages
        ]
        return {
            "metrics": sorted(names - {"step"}),
            "curves": [one for one in made if one["steps"]],
        }

    def _run(self, asked: Parameters) -> RunFiles:
        runs = self.folder.known
        if asked["run"] not in runs:
            raise UnknownError(f"there is no run {asked['run']!r} in {self.folder.root}")
        return runs[asked["run"]]

    def _files(self, asked: Parameters) -> RolloutFiles:
        stages = self._run(asked).stages
        kinds: dict[str, Kind] = {"rollouts": "rollouts", "evaluations": "evaluations"}
        if asked["stage"] not in stages or asked["kind"] not in kinds:
            raise UnknownError(f"there is no stage {asked['stage']!r} in run {asked['run']!r}")
        return stages[asked["stage"]].rollouts[kinds[asked["kind"]]]

    def _place(self, asked: Parameters) -> tuple[int, int, int]:
        return int(asked["step"]), int(asked["group"]), int(asked["index"])
