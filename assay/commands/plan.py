"""assay plan: measures what a run will take, before it trains."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands import options
from assay.progress import Progress

if TYPE_CHECKING:
    from rich.table import Table

    from assay.train.estimate import Forecast


def plan(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="Settings in TOML, or the name of a recipe: mine.toml, demo.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Estimate alone: no model is loaded or measured.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Tell what a run of CONFIG would take: memory by part, seconds of a step and of the run, disk.

    First comes an estimate from the model's shapes; --quick ends there. Then it loads the model,
    learns from micro-batches, and takes one real step of every stage in a folder that is deleted
    again, until a measurement agrees with the estimate or a twentieth of the run's time is spent.
    What does not fit is refused with the setting to change. Any setting can be changed:
    --table.key value.
    """
    from assay.config.load_settings import dump

    planned = options.checked_plan(context, config)
    options.quiet_transformers()
    if not as_json:
        for settings in planned.stages:
            changed = dump(settings, exclude_defaults=True)
            options.echo(f"# stage {settings.stage}: what is not at its default\n{changed}")
    with Progress() as progress:
        from assay.train.estimate import in_time
        from assay.train.forecast import forecast

        forecasts = forecast(planned, progress, quick=quick)
    total = sum(stage.total for stage in forecasts)
    stages = [{**asdict(stage), "total": stage.total} for stage in forecasts]
    end = "\n".join([*map(_lines, forecasts), f"\nthe whole run: {in_time(total)}"])
    options.print_result({"stages": stages, "total": total}, as_json, [_memory(forecasts)], end)


def _memory(forecasts: list[Forecast]) -> Table:
    from rich.table import Table

    from assay.train.memory import in_words

    table = Table("memory", *(stage.stage for stage in forecasts), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for part in dict.fromkeys(
        name for stage in forecasts for name in stage.parts if stage.parts[name]
    ):
        table.add_row(part, *(in_words(stage.parts[part]) for stage in forecasts))
    table.add_row("at most at once", *(in_words(stage.peak) for stage in forecasts), style="bold")
    table.add_row("there is", *(in_words(stage.room) for stage in forecasts))
    return table


def _lines(stage: Forecast) -> str:
    from assay.train.memory import in_words

    shares = ", ".join(
        f"{key.partition('/')[2].replace('_', ' ')} {share:.0%}"
        for key, share in stage.sample.items()
    )
    measured = ", ".join(dict.fromkeys(stage.measured))
    return (
        f"\n{stage.line}"
        f"\n  measured: {measured or 'nothing'}; the rest is estimated"
        + (f"\n  its completions: {shares}" if shares else "")
        + f"\n  disk: {in_words(stage.disk)} of {in_words(stage.disk_free)} free"
    )
