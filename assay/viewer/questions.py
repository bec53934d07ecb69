"""What the page asks: each question by its name, with its parameters, answered as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from pydantic import TypeAdapter

from assay.errors import UserError
from assay.evaluate.compare import OWN
from assay.maths.comparison import paired_difference
from assay.viewer.folders import RunFiles, RunsFolder
from assay.viewer.rollout_index import RolloutFiles, RolloutFilter
from assay.viewer.suspects import rows, suspects, tasks

Parameters = Mapping[str, str]
MOST_ROWS = 500
"""Rows of one answer."""
ORDERS = ("step", "-step", "reward", "-reward", "length", "-length")


FILTER, FILTERS = TypeAdapter(RolloutFilter), tuple(field.name for field in fields(RolloutFilter))


class UnknownError(UserError):
    """A question about something that is not there."""


class ViewerAnswers:
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
        """All runs, the newest first, with the settings in which their last stages differ."""
        runs = self.folder.runs().values()
        tables = [run.last_stage.settings_table if run.last_stage else {} for run in runs]
        names = {name for table in tables for name in table if name not in OWN}
        differ = [name for name in names if any(table.get(name) != tables[0].get(name)
                                                for table in tables)]  # fmt: skip
        return {
            "folder": self.folder.root.name,
            "runs": [
                run.summary() | {"settings": {name: table.get(name) for name in differ}}
                for run, table in zip(runs, tables, strict=True)
            ],
        }

    def run(self, query: Parameters) -> Any:
        """A run without its rollouts; `have` names the metrics that the page has already, as
        `stage count tag`, with commas between.
        """
        since = {}
        for part in filter(None, query.get("have", "").split(",")):
            stage, count, tag = part.rsplit(" ", 2)
            since[stage] = int(count), tag
        run = self._run(query)
        run.refresh()
        return run.details(since)

    def rollouts(self, query: Parameters) -> Any:
        """A part of the list of rollouts: `start` and `count`; `total` counts all."""
        order, start = query.get("order", "-step"), int(query.get("start", 0))
        if order not in ORDERS:
            raise UnknownError(f"unknown order {order!r}; take one of {', '.join(ORDERS)}")
        rule = FILTER.validate_python({name: query[name] for name in FILTERS if query.get(name)})
        table = self._files(query).select(rule, order)
        count = min(int(query.get("count", MOST_ROWS)), MOST_ROWS)
        return {"total": len(table), "start": start, "rows": rows(table[start : start + count])}

    def rollout(self, query: Parameters) -> Any:
        """One rollout with its turns."""
        rollout = self._files(query).rollout(*self._place(query))
        if rollout is None:
            raise UnknownError("there is no such rollout; the step may have been trained again")
        return rollout

    def text(self, query: Parameters) -> Any:
        """A piece of a long text."""
        turn, start = int(query["turn"]), int(query["start"])
        place = self._place(query)
        return {"text": self._files(query).text(*place, turn, query["name"], start)}

    def suspects(self, query: Parameters) -> Any:
        """Rollouts that may be paid for what they do not do."""
        return suspects(self._files(query))

    def tasks(self, query: Parameters) -> Any:
        """Each task's passes and rewards by step."""
        return tasks(self._files(query).index())

    def evaluation(self, query: Parameters) -> Any:
        """An evaluation by its number `at` in the report of its run, with its tasks; and how that
        `with_at` of run `with_run` differs from it on the tasks of both.
        """
        result = self._run(query).evaluation(int(query["at"]))
        if "with_run" in query:
            run = self._run({"run": query["with_run"]})
            other = result["other"] = run.evaluation(int(query["with_at"]))
            rates, others = (
                {task["id"]: task["passed"] / task["samples"] for task in row["per_task"]}
                for row in (result, other)
            )
            both = [name for name in rates if name in others]
            samples = min(result["samples"], other["samples"])
            sides = [rates[name] for name in both], [others[name] for name in both]
            result["difference"] = asdict(paired_difference(*sides, samples)) if both else None
        return result

    def curves(self, query: Parameters) -> Any:
        """A metric in every stage of every run that has it, and the names of all metrics."""
        stages = [(run.name, stage) for run in self.folder.runs().values() for stage in run]
        names = {name for _, stage in stages for row in stage.metrics for name in row}
        curves = [
            {
                "run": run,
                "stage": stage.name,
                "recipe": stage.recipe(run),
                **stage.curve(query["metric"]),
            }
            for run, stage in stages
        ]
        return {
            "metrics": sorted(names - {"step"}),
            "curves": [curve for curve in curves if curve["steps"]],
        }

    def _run(self, query: Parameters) -> RunFiles:
        runs = self.folder.by_name
        if query["run"] not in runs:
            raise UnknownError(f"there is no run {query['run']!r} in {self.folder.root}")
        return runs[query["run"]]

    def _files(self, query: Parameters) -> RolloutFiles:
        stage = self._run(query).stages.get(query["stage"])
        if stage is None or query["kind"] not in stage.rollouts:
            raise UnknownError(f"there is no stage {query['stage']!r} in run {query['run']!r}")
        return stage.rollouts[query["kind"]]

    def _place(self, query: Parameters) -> tuple[int, int, int]:
        return int(query["step"]), int(query["group"]), int(query["index"])
