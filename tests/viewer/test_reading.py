"""What a reader of the page relies on: order, settings, axes, colours, roundings and hints."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.trackers.jsonl import JsonlTracker
from assay.types import Verdict
from tests.viewer.chromium import BROWSER, is_quiet, open_page, served
from tests.viewer.made import EVALUATION, RIGHT, made_rollout, make_run

pytestmark = BROWSER
RATES = {"tie": 0.9625, "low": 0.5, "high": 0.975}
PROSE = "It doesn't print.\n\n```python\nreturn 'text'\n```\nDon't worry, it's right."
SETTINGS = '[algorithm]\nname = "grpo"\n[optimizer]\nlr = {}\n'


def completed(reply: str) -> Any:
    """A rollout whose program was cut from a reply."""
    from dataclasses import replace

    rollout = made_rollout("set/chat")
    (turn,) = rollout.turns
    return replace(rollout, turns=(replace(turn, completion=replace(turn.completion, text=reply)),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs that differ in the learning rate, of which one has taken all its steps."""
    folder = tmp_path_factory.mktemp("reading")
    hacked = made_rollout("set/hacked", held_out=Verdict.WRONG)
    for number, (name, rate) in enumerate(RATES.items()):
        run = make_run(folder / name, extra=[completed(PROSE), hacked])
        made = EVALUATION | {"pass_at": {"1": rate}}
        (run / "report.json").write_text(json.dumps({"evaluations": [made]}))
        top = f'name = "{name}"\n' + ("steps = 3\n" if name == "tie" else "steps = 100\n")
        (run / "grpo" / "config.toml").write_text(top + SETTINGS.format(f"{number + 1}e-4"))
    tracker = JsonlTracker(folder / "low" / "grpo", start_step=3)
    for step in range(4, 100):
        tracker.track(
            step, {"reward/pass_rate": 0.5 + 0.4 * (step % 2), "loss": 10.0 ** (step % 4)}
        )
    tracker.close()
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as at:
        yield at


def column(page: Any, number: int) -> list[str]:
    """The texts of a column of the first table."""
    texts: list[str] = page.eval_on_selector_all(
        f"table tbody tr td:nth-child({number})", "all => all.map((one) => one.innerText.trim())"
    )
    return texts


def test_a_click_on_a_head_orders_the_table_and_a_second_one_turns_it(
    browser: Any, address: str
) -> None:
    with open_page(browser, address) as (page, did):
        page.wait_for_selector("tr.chosen")
        page.click("th >> text=last evaluation")
        assert column(page, 1) == ["low", "tie", "high"]
        assert page.get_attribute("th:has-text('last evaluation')", "aria-sort") == "ascending"
        page.click("th >> text=last evaluation")
        assert column(page, 1) == ["high", "tie", "low"]
        page.goto(f"{address}/#tasks?run=low")
        page.wait_for_selector("th >> text=passed")
        page.click("th >> text=passed")
        assert column(page, 1) == ["set/b", "set/a", "set/chat", "set/hacked"]
        assert is_quiet(did, address)


def test_settings_that_differ_between_runs_can_be_columns(browser: Any, address: str) -> None:
    with open_page(browser, address) as (page, did):
        page.wait_for_selector("tr.chosen")
        assert "algorithm.name" not in page.inner_text("[aria-label='a setting as a column']")
        page.select_option("[aria-label='a setting as a column']", "optimizer.lr")
        page.wait_for_selector("th >> text=optimizer.lr")
        page.click("th >> text=optimizer.lr")
        assert column(page, 3) == ["0.0001", "0.0002", "0.0003"]
        assert column(page, 1) == list(RATES)
        page.click("[aria-label='without optimizer.lr']")
        page.wait_for_selector("th >> text=optimizer.lr", state="detached")
        assert is_quiet(did, address)


def test_a_share_is_rounded_as_in_reports(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#run?run=tie") as (page, _):
        page.wait_for_selector("td[data-label='pass@1']")
        shown = page.inner_text("td[data-label='pass@1']").replace(" ", "")
        assert shown == f"{RATES['tie']:.1%}" == "96.2%"


def test_a_run_that_has_taken_all_its_steps_does_not_look_alive(
    browser: Any, address: str, folder: Path
) -> None:
    for name in RATES:
        os.utime(folder / name / "report.json", (time.time() + 600,) * 2)  # no test takes longer
    with open_page(browser, address) as (page, _):
        page.wait_for_selector("tr.chosen")
        assert page.locator("tr:has-text('tie') .live").count() == 0
        assert "finished" in page.inner_text("tr:has-text('tie')")
        assert page.locator("tr:has-text('low') .live").count() == 1


def test_prose_of_a_reply_has_no_colours_and_its_blocks_have(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=low&at=3.2.0") as (page, did):
        page.wait_for_selector("[aria-label='completion'] .hl-string")
        reply = page.locator("[aria-label='completion']")
        assert reply.inner_text().split() == PROSE.split()
        assert reply.locator(".hl-string").all_inner_texts() == ["'text'"]
        assert "tokens read" in page.inner_text(".usage")
        assert f"{len(RIGHT)} written in 1 turn, 2.5 s, 0.010 s CPU" in page.inner_text(".usage")
        assert is_quiet(did, address)


LEVEL = """one => {
    const { data, width, height } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
    let sum = 0;
    for (let at = 3; at < data.length; at += 4) sum += (data[at] > 60) * Math.floor(at / 4 / width);
    return sum / height;
}"""
"""A number that a curve's picture decides."""


def test_curves_can_be_smoothed_and_have_logarithmic_axes(browser: Any, address: str) -> None:
    loss = "figure:has(.title:text-is('loss')) canvas"
    with open_page(browser, f"{address}/#run?run=low") as (page, did):
        levels = []
        for smooth, log in (("0.1", ""), ("0", ""), ("0", "1")):
            page.goto(f"{address}/#run?run=low&smooth={smooth}&log={log}")
            page.wait_for_selector(loss)
            page.wait_for_timeout(500)
            levels.append(page.eval_on_selector(loss, LEVEL))
        assert len(set(levels)) == 3, "each is drawn in another way"
        page.goto(f"{address}/#run?run=low")
        page.select_option("[aria-label='smoothing']", label="mean of 30 %")
        page.check("text=log axes")
        assert "smooth=0.3" in page.url
        assert "log=1" in page.url
        assert is_quiet(did, address)


def test_on_a_phone_a_shadow_shows_that_a_table_goes_on(browser: Any, address: str) -> None:
    from PIL import Image

    def edge(page: Any, selector: str) -> int:
        """How much darker a table is at its right edge than before it."""
        box = page.locator(selector).first.bounding_box()
        pixels = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("L"), int)
        row, right = pixels[int(box["y"] + 3)], int(box["x"] + box["width"])
        return int(row[right - 60] - row[right - 2])

    with open_page(browser, f"{address}/#suspects?run=low", width=390) as (page, _):
        page.wait_for_selector("table")
        overflows = "one => one.scrollWidth > one.clientWidth"
        assert page.eval_on_selector("table", overflows)
        assert edge(page, "table") > 20
        page.eval_on_selector("table", "one => { one.scrollLeft = one.scrollWidth }")
        page.wait_for_timeout(300)
        assert edge(page, "table") < 20, "nothing is left to the right"
        assert page.inner_text(".advice").endswith(".")
