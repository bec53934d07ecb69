"""assay view: a page over the runs of a folder."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from assay.commands import options
from assay.paths import require_output

WINDOWS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Variables of which Linux has one where a browser opens a window. Any other browser would run in
this terminal and wait for a server that waits for it."""


def view(
    folder: options.Runs = Path("runs"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8642,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write one HTML file that you can send, and serve nothing."
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address; open no browser.")
    ] = False,
) -> None:
    """Show runs in the browser, while they train too: curves, evaluations and every rollout."""
    from assay.viewer.folders import RunsFolder

    runs = RunsFolder(folder)
    if export:
        from assay.viewer.single_page import export_page

        # an older page may lie beside the runs, and is none of their files
        require_output(export, [] if export.suffix == ".html" else [folder])
        options.echo(export_page(runs, export))
        return
    from assay.viewer.page_server import serve

    def announce(address: str) -> None:
        options.echo(f"assay shows {folder} on {address}; Ctrl-C ends it")
        if not no_browser and (sys.platform != "linux" or any(map(os.environ.get, WINDOWS))):
            webbrowser.open(address)

    asyncio.run(serve(runs, port, announce))
