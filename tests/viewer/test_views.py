"""Every view on a wide screen and on a phone's, light and dark, over runs that are written here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.trackers.jsonl import JsonlTracker
from tests.viewer.chromium import BROWSER, faint, is_quiet, open_page, served, unnamed
from tests.viewer.made import HOSTILE, made_rollout, make_run

pytestmark = BROWSER
SIDES = "a=made|grpo|rollouts|3|0|0&b=made|grpo|rollouts|3|0|1"
VIEWS = {
    "": "tr.chosen",
    "run?run=made": "canvas",
    "rollouts?run=made": ".list .row.first",
    "rollouts?run=made&at=3.0.1": "article section",
    "groups?run=made": ".groups .dot",
    "changes?run=made": ".changes",
    "suspects?run=made": "h2",
    "settings?run=made": "pre",
    f"compare?run=made&{SIDES}": ".diff .added, .diff .removed",
}
"""Each view's address, and what is there once it is drawn."""
SCREENS = [(theme, width) for theme in ("light", "dark") for width in (1280, 390)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    stage = make_run(folder / "made", extra=[made_rollout("set/hostile", HOSTILE)]) / "grpo"
    tracker = JsonlTracker(stage, start_step=3)
    for step in range(4, 200):
        tracker.track(step, {"learn/lr": 1.0 if step < 100 else 0.0, "learn/grad_norm": 1.0})
    tracker.close()
    make_run(folder / "another-run-with-quite-a-long-name_seed2")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as at:
        yield at


@pytest.mark.parametrize(("theme", "width"), SCREENS)
def test_every_view_fits_the_screen_is_named_and_can_be_read(
    browser: Any, address: str, theme: str, width: int
) -> None:
    with open_page(browser, address, theme, width) as (page, did):
        for view, drawn in VIEWS.items():
            page.goto(f"{address}/#{view}")
            page.wait_for_selector(drawn)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            assert page.evaluate("document.documentElement.dataset.theme") == theme
            assert faint(page) == {}, view
            assert unnamed(page) == [], view
        assert is_quiet(did, address)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_coloured_tokens_can_be_read(browser: Any, address: str, theme: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=made&at=3.2.0", theme) as (page, _):
        for mode in ("log-probability", "advantage"):
            page.click(f"button >> text={mode}")
            page.wait_for_selector(".tokens span")
            assert faint(page) == {}


def test_the_dots_of_a_group_stand_on_the_line_of_its_task(browser: Any, address: str) -> None:
    middle = "one => { const box = one.getBoundingClientRect(); return box.top + box.height / 2; }"
    with open_page(browser, f"{address}/#groups?run=made") as (page, _):
        page.wait_for_selector(".dot")
        task = page.eval_on_selector(".groups tbody td", middle)
        assert abs(page.eval_on_selector(".dot .mark", middle) - task) <= 1


def test_a_learning_rate_is_drawn_as_it_was_set(browser: Any, address: str) -> None:
    fall = """one => {
        const { data, width, height } = one.getContext("2d")
            .getImageData(0, 0, one.width, one.height);
        const columns = new Set();
        for (let y = Math.round(height * 0.3); y < height * 0.6; y += 1)
            for (let x = 60; x < width; x += 1) {
                const [red, , blue] = data.slice(4 * (y * width + x), 4 * (y * width + x) + 3);
                if (blue - red > 60) columns.add(x);
            }
        return columns.size;
    }"""
    with open_page(browser, f"{address}/#run?run=made") as (page, _):
        plot = ".plot:has(.title:text-is('learning rate')) canvas"
        page.wait_for_selector(plot)
        page.wait_for_timeout(300)
        assert 0 < page.eval_on_selector(plot, fall) < 6, "the rate falls within one step"
