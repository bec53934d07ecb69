"""assay show: the state of runs, for people in a terminal and for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.evaluate.grid import terminal_table
from assay.progress import cell

METRICS = {"reward/pass_rate": ".1%", "reward/mean": ".2f", "rollout/failed": ".0f",
           "rollout/length": ".0f", "learn/entropy": ".2g", "loss": ".3g"}  # fmt: skip
"""The metrics that people are shown, each in as many digits as the console of training shows."""


def show(
    folder: options.Runs = Path("runs"),
    sql: Annotated[
        str | None,
        typer.Option(
            help="Print the result of this query over the tables `metrics` and `rollouts`."
        ),
    ] = None,
    calls: Annotated[
        bool,
        typer.Option(
            "--calls", help="Show the calls of agents, a line for each rollout of the newest step."
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show the stages, newest metrics, evaluations and alerts of runs, also while they train."""
    from assay.viewer.folders import RunsFolder

    if sql and calls:
        raise SettingsError("--sql and --calls show different things; give one of them")
    runs = RunsFolder(folder)
    if sql:
        from assay.viewer.query import query

        columns, answer = query(runs, sql)
        rows = [dict(zip(columns, row, strict=True)) for row in answer]
        options.print_result(
            {"rows": json.loads(json.dumps(rows, default=str))}, as_json, [_table(columns, answer)]
        )
        return
    if calls:
        rows = [row for run in runs.runs().values() for row in run.call_sums()]
        damage = [line for run in runs.runs().values() for line in run.damage()]
        parts = [_calls_table(rows), *_damage_lines(damage)]
        options.print_result({"calls": rows, "damage": damage}, as_json, parts)
        return
    states = [run.state() for run in runs.runs().values()]
    parts = [part for state in states for part in _shown(state)]
    options.print_result({"runs": states}, as_json, parts)


def _shown(run: dict[str, Any]) -> list[Any]:
    evaluations = [
        [row["name"], row["tasks_spec"], f"{row['pass_at'][1]:.1%}",
         f"{row['interval']['low']:.1%} to {row['interval']['high']:.1%}", row["lost"],
         f"{row['mean_length']:.0f}"]
        for row in run["evaluations"]
    ]  # fmt: skip
    head = ["policy", "tasks", "pass@1", "95 %", "lost", "tokens"]
    alerts = [[alert["stage"], alert["step"], alert["text"]] for alert in run["alerts"]]
    finished = "finished, " if run["finished"] else ""
    tables = [_stages_table(run["stages"])] if run["stages"] else []
    tables += [_fitted([head, *evaluations], names=2)] if evaluations else []
    tables += [_table(["alert", "step", ""], alerts)] if alerts else []
    parts: list[Any] = [_text(f"\n{run['name']}, {finished}changed {_ago(run['age'])}")]
    parts += [part for table in tables for part in ("", table)][1:]
    return [*parts, *_damage_lines(run["damage"])]


def _ago(seconds: float) -> str:
    """A time that has passed, in one unit, as the viewer says it."""
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min ago"
    return (
        f"{seconds / 3600:.0f} h ago" if seconds < 172_800 else f"{seconds / 86_400:.0f} days ago"
    )


def _stages_table(stages: Sequence[dict[str, Any]]) -> Any:
    """A line for each stage, with those of METRICS that any of them has."""
    present = [name for name in METRICS if any(name in stage["metrics"] for stage in stages)]
    rows = [
        [stage["name"], stage["step"], *(_rounded(name, stage["metrics"]) for name in present)]
        for stage in stages
    ]
    return _fitted([["stage", "step", *(name.replace("/", "/\n") for name in present)], *rows])


def _rounded(name: str, metrics: Mapping[str, float | None]) -> str:
    value = metrics.get(name)
    return "" if value is None else format(value, METRICS[name])


def _fitted(lines: Sequence[Sequence[Any]], names: int = 1) -> Any:
    return terminal_table([[_written(value) for value in line] for line in lines], names)


def _damage_lines(damage: Sequence[str]) -> list[Any]:
    return [_text(f"damaged: {line}") for line in damage]


def _calls_table(rows: Sequence[dict[str, Any]]) -> Any:
    """A line for each rollout with calls."""
    if not rows:
        return _text("no agent called in the newest steps")
    lines = []
    for row in rows:
        tokens = dict(row["tokens"])
        learned = tokens.pop("learned", 0)
        others = ", ".join(f"{name} {count}" for name, count in tokens.items())
        place = f"{row['stage']}, {row['kind']}", row["step"], f"{row['group']}.{row['index']}"
        lines.append([row["run"], *place, row["task_id"], row["calls"], learned, others])
    columns = ["run", "stage", "step", "rollout", "task", "calls", "learned", "not learned"]
    return _table(columns, lines)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(_text(column))
    for row in rows:
        table.add_row(*(_text(_written(value)) for value in row))
    return table


def _written(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _text(value: object) -> Any:
    """A cell whose text cannot write to a terminal."""
    return cell(value)
