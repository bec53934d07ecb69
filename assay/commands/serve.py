"""assay serve: the judge over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options

SLOTS_PER_CORE = 2
"""Half of the slots can hold programs that hang, and the cores are still used."""


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any other than loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token; default: $ASSAY_TOKEN.")
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="How many programs run at once; default: two per core."),
    ] = None,
    waiting: Annotated[
        int, typer.Option(min=0, help="How many requests may wait. Further ones get status 503.")
    ] = 256,
    body_mb: Annotated[float, typer.Option(min=0.001, help="Largest request body in MiB.")] = 8,
    cpu_seconds: options.CpuSeconds = 4.0,
    wall_seconds: Annotated[
        float, typer.Option(min=0.05, max=86_400, help="Wall time limit of one program.")
    ] = 20.0,
    memory_mb: options.MemoryMb = 1024,
    plugins: options.Plugins = None,
    allow_weak: options.AllowWeak = False,
) -> None:
    """Serve the judge over HTTP, with assay's API and SandboxFusion's, until stopped."""
    from assay.integrations.serve import serve as serving
    from assay.integrations.service import Bounds
    from assay.judge import Judge
    from assay.sandbox.cores import cores
    from assay.sandbox.limits import Limits

    slots = slots or SLOTS_PER_CORE * cores()
    judge = Judge(
        Limits(cpu_seconds, wall_seconds, memory_mb), slots, stop_early=False,
        allow_weak=allow_weak,
    )  # fmt: skip
    bounds = Bounds(waiting=waiting, body_mb=body_mb)
    serving_until_stopped = serving(
        judge, host, port, token_file, bounds, announce=typer.echo, plugins=plugins or ()
    )
    asyncio.run(serving_until_stopped)
