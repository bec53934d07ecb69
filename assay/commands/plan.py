"""assay plan: measures what a run will take, before it trains."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands import options
from assay.errors import SettingsError
from assay.progress import Progress

if TYPE_CHECKING:
    from rich.table import Table

    from assay.config.load_settings import Plan
    from assay.distributed.cards import Gpus
    from assay.distributed.gpu_plan import StageOnGpus
    from assay.train.estimate import Forecast


def plan(
    context: typer.Context,
    config: Annotated[
        Path, typer.Argument(help="Settings in TOML, or the name of a recipe: mine.toml, demo.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Only estimate. Load no model and measure nothing.")
    ] = False,
    gpus: Annotated[
        str,
        typer.Option(
            help="Tell whether the run fits on other GPUs, such as 8xH100: no model is loaded."
        ),
    ] = "",
    longest: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --gpus: tokens of the longest sequence. Default: as the tasks say."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Tell how much memory, time and disk a run of CONFIG would take.

    It first estimates from the model's shapes. With --quick it ends there. Then it loads the model,
    learns from micro-batches, and takes one real step of every stage in a folder that it deletes.
    It stops when a measurement agrees with the estimate, or after a twentieth of the run's time.
    A run that does not fit is refused, and the message names the setting to change. Any setting can
    be changed: --table.key value.

    With --gpus 8xH100, memory is computed for those GPUs from the model's configuration alone, for
    each rank of the learner and each server. The exit code is 1 if something does not fit.
    """
    from assay.config.load_settings import dump
    from assay.distributed.cards import parse_gpus

    if longest and not gpus:
        raise SettingsError("--longest is for --gpus, such as --gpus 8xH100; leave it out")
    if quick and gpus:
        raise SettingsError("--quick has no effect on --gpus, which measures nothing; omit one")
    cards = parse_gpus(gpus) if gpus else None
    planned = options.checked_plan(context, config)
    _require_known_memory(planned)
    options.quiet_transformers()
    if cards:
        _tell_gpus(planned, cards, longest or 0, as_json)
        return
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


def _require_known_memory(planned: Plan) -> None:
    """Raises SettingsError for stages that a server of others learns."""
    for settings in planned.stages:
        if settings.learner.name == "tinker":
            raise SettingsError(
                f"stage {settings.stage!r}: learner.name = 'tinker' learns and generates on a"
                " server, whose memory and time are not known here; `assay train --dry-run` checks"
                " the settings"
            )


def _tell_gpus(planned: Plan, gpus: Gpus, longest: int, as_json: bool) -> None:
    """Print what each stage takes of those GPUs. Exits with 1 where it does not fit."""
    from assay.distributed.gpu_plan import plan_on

    stages = plan_on(planned, gpus, longest)
    fits = not any(stage.problems for stage in stages)
    result = {"fits": fits, "stages": [asdict(stage) for stage in stages]}
    end = "\n".join(_gpu_lines(stage) for stage in stages)
    options.print_result(result, as_json, [_gpu_memory(stage) for stage in stages], end)
    if not fits:
        raise typer.Exit(1)


def _gpu_memory(stage: StageOnGpus) -> Table:
    from rich.table import Table

    from assay.distributed.cards import in_gb

    columns = [("rank 0", stage.leader, stage.room)]
    if stage.rank:
        columns.append(("another rank", stage.rank, stage.room))
    if server := stage.server:
        parts = {"weights": server.weights, "KV cache": server.kv_cache}
        columns.append(("a server's GPU", parts, server.room))
    table = Table(stage.stage, *(name for name, _, _ in columns), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for part in dict.fromkeys(name for _, parts, _ in columns for name in parts):
        if any(parts.get(part) for _, parts, _ in columns):
            table.add_row(part, *(in_gb(parts.get(part, 0)) for _, parts, _ in columns))
    table.add_row("at most", *(in_gb(sum(parts.values())) for _, parts, _ in columns), style="bold")
    table.add_row("there is", *(in_gb(room) for _, _, room in columns))
    return table


def _gpu_lines(stage: StageOnGpus) -> str:
    several = "several micro-batches" if stage.several else "one micro-batch"
    lines = [
        f"\n{stage.stage} on {stage.gpus}: {stage.parameters / 1e9:.2f}B parameters,"
        f" {stage.ranks} rank{'s' * (stage.ranks > 1)}, {several} of up to"
        f" {stage.micro_batch_tokens:,} tokens, sequences of up to {stage.longest:,}"
    ]
    if server := stage.server:
        prefill = (
            "how long a weight update prefills is not estimated for a mixture of experts"
            if server.prefill_seconds is None
            else f"a weight update costs about {server.prefill_seconds:.1f} s of prefill"
        )
        lines.append(
            f"  a server: --kv-cache-memory-bytes {server.kv_cache} holds"
            f" {server.kv_tokens:,} tokens of {server.bytes_per_token:,} bytes:"
            f" {server.at_once} rollouts at their longest; {prefill}"
        )
    lines += [f"  {note}" for note in stage.notes]
    lines += [f"  {problem}" for problem in stage.problems] or ["  it fits"]
    return "\n".join(lines)


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
