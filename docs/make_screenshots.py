"""Make the pictures of the viewer in docs/ from a folder of runs.

    python docs/make_screenshots.py runs demo calculator

The first name is a run with SFT and RL, such as `make demo` leaves. The second is a run of an
outside agent, whose calls form a tree. Each view becomes one sheet, docs/viewer/VIEW.webp: light
above dark, 1280 pixels wide beside 390. docs/viewer.png is the README's picture.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.viewer.chromium import chromium, open_page, served  # noqa: E402

THEMES, WIDTHS = ("light", "dark"), (1280, 390)
GAP = 16
LARGEST = 120_000
"""Bytes of a sheet."""


@dataclass(frozen=True)
class View:
    """A view of the page: its address, what is there once it is drawn, and what is clicked then."""

    name: str
    address: str
    selector: str
    clicks: tuple[str, ...] = ()


def views(run: str, agent: str, find: Callable[[str, str], str]) -> Iterator[View]:
    """Every view. `find` opens an address, clicks at a selector, and says where that leads."""
    rollouts = f"rollouts?run={run}&stage=grpo"
    failure = find(rollouts, ".list .mark.fail >> nth=2")
    calls = find(f"rollouts?run={agent}&stage=grpo", ".list .row.first")
    pair = find(f"changes?run={run}", ".changes button >> nth=0")
    tasks = f"tasks?run={run}&stage=sft&kind=evaluations"
    task = find(tasks, "td.task a >> nth=0")
    yield View("runs", "", "tr.chosen")
    yield View("curves", "curves", ".curves .swatch")
    yield View("run", f"run?run={run}", "section[aria-label='stage grpo'] canvas")
    yield View("rollouts", failure, "article .checks", ("text=log-probability",))
    yield View("agent", calls, ".call-tree", (".call-tree li:nth-child(1) summary",))
    yield View("groups", f"groups?run={run}", ".groups .dot")
    yield View("tasks", tasks, "main .spark")
    yield View("task", task, ".plot canvas")
    yield View("evaluations", f"evaluations?run={run}&with_run={run}&with_at=1", ".per-task a")
    yield View("changes", f"changes?run={run}", ".changes")
    yield View("compare", pair, ".diff .added, .diff .removed")
    yield View("suspects", f"suspects?run={run}", "h2")
    yield View("settings", f"settings?run={run}", "pre.panel")


def shoot(folder: Path, run: str, agent: str) -> None:
    """Write a sheet for each view, and the README's picture."""
    with served(folder) as at, chromium() as browser:

        def find(address: str, selector: str) -> str:
            with open_page(browser, f"{at}/#{address}") as (page, _):
                page.click(selector)
                page.wait_for_function("old => location.hash !== old", arg=f"#{address}")
                place: str = page.evaluate("location.hash.slice(1)")
                return place

        for view in list(views(run, agent, find)):
            screens = [
                [picture(browser, at, view, theme, width) for width in WIDTHS] for theme in THEMES
            ]
            write_sheet(screens, ROOT / "docs" / "viewer" / f"{view.name}.webp")
            if view.name == "rollouts":
                screens[0][0].quantize(128).save(ROOT / "docs" / "viewer.png", optimize=True)


def picture(browser: Any, at: str, view: View, theme: str, width: int) -> Image.Image:
    """What a screen shows of a view."""
    with opened(browser, at, view, theme, width) as page:
        screen = Image.open(BytesIO(page.screenshot())).convert("RGB")
        # Text stays sharp, and a picture is half of what it would be with all colours.
        return screen.quantize(112, dither=Image.Dither.NONE).convert("RGB")


@contextmanager
def opened(browser: Any, at: str, view: View, theme: str, width: int) -> Iterator[Any]:
    """A page that shows a view."""
    with open_page(browser, f"{at}/#{view.address}", theme, width) as (page, did):
        page.wait_for_selector(view.selector)
        for selector in view.clicks:
            page.click(selector)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)
        assert did.problems == [], view.name
        yield page


def write_sheet(screens: list[list[Image.Image]], file: Path) -> None:
    """Put the screens of a view into one picture: a row for each theme."""
    width = sum(screen.width + GAP for screen in screens[0]) - GAP
    height = sum(row[0].height + GAP for row in screens) - GAP
    sheet, top = Image.new("RGB", (width, height), "#8a8a8a"), 0
    for row in screens:
        left = 0
        for screen in row:
            sheet.paste(screen, (left, top))
            left += screen.width + GAP
        top += row[0].height + GAP
    file.parent.mkdir(exist_ok=True)
    sheet.save(file, lossless=True, method=6)
    assert file.stat().st_size < LARGEST, f"{file.name} has {file.stat().st_size} bytes"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("run")
    parser.add_argument("agent")
    arguments = parser.parse_args()
    shoot(arguments.folder, arguments.run, arguments.agent)
