"""The page in a browser, on a run that is trained here, with rollouts that attack it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.trackers.jsonl import JsonlTracker
from assay.trackers.rollouts import RolloutTracker, write_rollouts
from assay.types import Verdict
from tests.end_to_end.recipes import TINY, assay, write
from tests.viewer.chromium import BROWSER, is_quiet, open_page, served, unnamed
from tests.viewer.made import HOSTILE, WRONG, made_rollout, make_run

pytestmark = BROWSER
SETTINGS = TINY.replace("[rollout]", """[evaluate]
tasks = "drills:test"
limit = 6
samples = 2
max_tokens = 48
before = true
[rollout]""") + """[stages.repair]
steps = 2
algorithm.name = "grpo"
environment = { name = "repair", turns = 2 }
"""  # fmt: skip
VIEWS = ("run", "rollouts", "groups", "tasks", "evaluations", "changes", "suspects", "settings")
LINES = 100_000
ATTACKS = 9
"""The step with the rollouts that attack."""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    done = assay("train", write(folder, SETTINGS), folder=folder)
    assert done.returncode == 0, done.stderr
    before, after = ("\n".join(f"x{n * step}" for n in range(LINES)) for step in (1, 3))
    groups = [
        [made_rollout("set/hostile", HOSTILE, output=HOSTILE)],
        [made_rollout("set/long", output="A" * 5_000_000)],
        [made_rollout("set/lines", before), made_rollout("set/lines", after)],
        [made_rollout("set/hacked", held_out=Verdict.WRONG)],
    ]
    file = folder / "runs" / "small" / "grpo" / "rollouts" / f"step_{ATTACKS:06d}.parquet"
    write_rollouts(file, ATTACKS, groups)
    return folder / "runs"


@pytest.fixture(scope="session")
def address(runs: Path) -> Iterator[str]:
    with served(runs) as at:
        yield at


@pytest.fixture
def hacked(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A run that is paid for short programs, and one that is not; and where they are shown."""
    tidy = [made_rollout(f"set/tidy{n}", WRONG, reward=0.9) for n in range(3)]
    make_run(tmp_path / "honest")
    stage = make_run(tmp_path / "hacked", extra=tidy) / "grpo"
    event = {"step": 3, "event": "held_out_gap/set", "text": "a gap of 30 %", "time": 0.0}
    (stage / "events.jsonl").write_text(json.dumps(event) + "\n")
    groups = [[made_rollout("set/a", WRONG)], [made_rollout("set/c")]]
    write_rollouts(stage / "evaluations" / "step_000003.parquet", 3, groups)
    with served(tmp_path) as at:
        yield stage, at


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_opens_is_named_and_fits(browser: Any, address: str, theme: str) -> None:
    with open_page(browser, address, theme) as (page, did):
        page.click("text=small")
        for view in VIEWS:
            page.click(f"header nav >> css=a[href^='#{view}?']")
            page.wait_for_selector("main h1, main .list .row")
            page.wait_for_load_state("networkidle")
            assert unnamed(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280, view
            assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert is_quiet(did, address)


def test_curves_and_evaluations_stand_stage_by_stage(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#run?run=small") as (page, did):
        page.wait_for_selector("section[aria-label='stage repair'] canvas")
        stages = page.eval_on_selector_all("section h2", "all => all.map(one => one.innerText)")
        assert [one.split()[0] for one in stages] == ["Evaluations", "sft", "grpo", "repair"]
        assert page.locator("text=pass rate").count() >= 2
        assert page.locator("table .interval").count() == 4
        page.click("section[aria-label='stage grpo'] >> text=more metrics")
        page.wait_for_selector("text=engine/occupancy")
        assert is_quiet(did, address)


def test_keys_walk_through_rollouts(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=small&stage=repair") as (page, did):
        page.wait_for_selector(".list .row")
        page.keyboard.press("j")
        page.wait_for_selector("article h3 >> text=prompt, as the model read it")
        first = page.inner_text("article h2")
        page.keyboard.press("j")
        page.wait_for_function("old => document.querySelector('article h2').innerText != old",
                               arg=first)  # fmt: skip
        page.keyboard.press("k")
        page.wait_for_function("old => document.querySelector('article h2').innerText == old",
                               arg=first)  # fmt: skip
        page.keyboard.press("c")
        page.wait_for_selector(".tokens span[title*='log p']")
        page.keyboard.press("?")
        assert "next rollout" in page.inner_text("dialog")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.type") == "search"
        page.keyboard.press("Escape")
        page.keyboard.press("t")
        page.keyboard.press("Escape")
        page.wait_for_selector("section[aria-label='stage repair']")
        assert is_quiet(did, address)


PRESS = """async (keys) => {
    for (const key of keys) {
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        for (let n = 0; n < 3; n += 1) await Promise.resolve();
    }
}"""


def test_a_quick_escape_closes_the_keys_and_nothing_else(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=small&stage=grpo") as (page, did):
        page.wait_for_selector(".list .row")
        for again in ("Escape", "?"):
            page.evaluate(PRESS, ["?", again])
            assert page.locator("dialog").count() == 0
            assert "#rollouts" in page.url
        assert is_quiet(did, address)


def test_filters_and_search_change_the_list(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=small&stage=grpo") as (page, did):
        page.wait_for_selector("text=53 rollouts")
        page.fill("[aria-label='search texts']", "ESREVER")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=1 rollouts")
        page.fill("[aria-label='search texts']", "")
        page.keyboard.press("Enter")
        page.select_option("[aria-label='verdict']", "pass")
        page.wait_for_selector("text=/^[0-9] rollouts/")
        page.select_option("[aria-label='verdict']", "")
        page.fill("label:has-text('step') input", str(ATTACKS))
        page.keyboard.press("Enter")
        page.wait_for_selector("text=5 rollouts")
        assert is_quiet(did, address)


def test_a_hostile_rollout_is_text(browser: Any, address: str) -> None:
    place = f"rollouts?run=small&stage=grpo&at={ATTACKS}.0.0"
    with open_page(browser, f"{address}/#{place}") as (page, did):
        page.wait_for_selector("article .escape")
        escapes = page.eval_on_selector_all(".escape", "all => all.map(one => one.innerText)")
        assert {"\\x1b", "\\u202e", "\\u200b", "\\x00", "\\x0d"} <= set(escapes)
        for mode in ("log-probability", "advantage", "text"):
            page.click(f"button >> text={mode}")
            assert (
                page.locator("article script, article img, article b:has-text('owned')").count()
                == 0
            )
        assert "<script>document.title" in page.inner_text("article")
        assert page.title() == "small · assay"
        assert is_quiet(did, address)


def test_a_program_that_is_paid_and_wrong_is_two_clicks_away(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#run?run=small") as (page, did):
        page.click("header >> text=suspects")
        page.click("section[aria-label='suspects of grpo'] >> text=set/hacked")
        page.wait_for_selector("article >> text=held-out checks: wrong")
        assert is_quiet(did, address)


def test_a_reward_that_pays_for_something_else_is_found(
    browser: Any, hacked: tuple[Path, str]
) -> None:
    tracker = RolloutTracker(hacked[0], start_step=3)
    with open_page(browser, hacked[1]) as (page, did):
        page.click("main >> text=hacked")
        page.click("section[aria-label='alerts'] >> text=suspects")
        page.wait_for_selector("h3 >> text=3 fail, and get 50% of a pass's reward or more")
        tracker.rollouts(4, [[made_rollout("set/tidy3", WRONG, reward=0.9)]])
        page.wait_for_selector("h3 >> text=4 fail, and get 50% of a pass's reward or more")
        page.click("text=set/tidy1")
        facts = page.inner_text("article .facts").replace("\n", " ")
        for fact in ("wrong", "0 of 2 checks", "reward 0.900", "tests 0.000", "length 0.900"):
            assert fact in facts
        page.click("header >> text=curves")
        page.wait_for_selector(".plot:has-text('reward parts') >> text=tests")
        assert is_quiet(did, hacked[1])


def test_two_runs_are_compared_task_by_task(browser: Any, hacked: tuple[Path, str]) -> None:
    with open_page(browser, f"{hacked[1]}/#run?run=honest") as (page, did):
        page.click("header >> text=solved and lost")
        page.wait_for_selector("section:has-text('newly solved') >> text=set/a")
        page.select_option("[aria-label='run']", "hacked")
        page.wait_for_selector("section:has-text('newly lost') >> text=set/a")
        for side in "ab":
            assert page.input_value(f"[aria-label='{side}']") == "grpo|evaluations|3"
            box = f"document.querySelector('select[aria-label={side}]')"
            assert page.evaluate(f"{box}.clientWidth") > 150, "its words can be read"
        page.click("[aria-label='set/a side by side']")
        page.wait_for_selector(".diff .added, .diff .removed")
        titles = page.eval_on_selector_all(".sides h2", "all => all.map(one => one.innerText)")
        assert ["honest · grpo step 3" in titles[0], "hacked · grpo step 3" in titles[1]] == [
            True, True,
        ]  # fmt: skip
        marks = page.eval_on_selector_all(".sides .facts .mark", "all => all.map(x => x.innerText)")
        assert marks == ["pass", "wrong"]
        assert is_quiet(did, hacked[1])


def test_new_rollouts_come_without_moving_the_one_that_is_read(
    browser: Any, hacked: tuple[Path, str]
) -> None:
    stage, at = hacked
    tracker = RolloutTracker(stage, start_step=3)
    with open_page(browser, f"{at}/#rollouts?run=hacked&stage=grpo") as (page, did):
        page.wait_for_selector("text=12 rollouts")
        tracker.rollouts(4, [[made_rollout("set/d")]])
        page.wait_for_selector("text=13 rollouts")
        page.keyboard.press("j")
        page.wait_for_selector("article >> text=set/d")
        tracker.rollouts(5, [[made_rollout("set/e")]])
        page.wait_for_selector("button >> text=1 new step: show")
        assert page.inner_text("article h2").startswith("set/d")
        page.click("text=1 new step: show")
        page.wait_for_selector("text=14 rollouts")
        assert "set/e" in page.inner_text(".list .row")
        assert is_quiet(did, at)


def test_columns_stand_below_their_heads_and_axes_hold_their_labels(
    browser: Any, hacked: tuple[Path, str]
) -> None:
    stage, at = hacked
    rows = [[made_rollout(f"set/{n}") for n in range(99)]]
    RolloutTracker(stage, start_step=3).rollouts(4, rows)
    tracker = JsonlTracker(stage, start_step=3)
    tracker.track(4, {"loss": 123456.5, "learn/grad_norm": 2.5})
    tracker.close()
    right = "all => all.map(one => one.lastElementChild.getBoundingClientRect().right)"
    with open_page(browser, f"{at}/#rollouts?run=hacked&stage=grpo") as (page, did):
        page.wait_for_selector("text=111 rollouts")
        assert len(set(page.eval_on_selector_all(".row", right))) == 1
        page.click("header >> text=curves")
        drawn = "[...document.querySelectorAll('.plot')].every(one => one.querySelector('.u-axis'))"
        page.wait_for_selector(".plot .title:text-is('gradient norm')")
        page.wait_for_function(drawn)
        widths = [
            page.evaluate("one => one.querySelectorAll('.u-axis')[1].clientWidth", plot)
            for title in ("loss", "gradient norm")
            for plot in page.query_selector_all(f".plot:has(.title:text-is('{title}'))")
        ]
        assert widths[0] > widths[1] == 44
        assert is_quiet(did, at)


def test_a_line_of_five_megabytes_comes_in_pieces(browser: Any, address: str) -> None:
    place = f"rollouts?run=small&stage=grpo&at={ATTACKS}.1.0"
    with open_page(browser, f"{address}/#{place}") as (page, did):
        start = time.monotonic()
        page.click("text=show more: 4,980,000 characters")
        page.wait_for_selector("text=show more: 4,780,000 characters")
        assert time.monotonic() - start < 20, "a generous bound on a busy machine"
        assert is_quiet(did, address)


def test_two_programs_of_many_lines_are_compared_at_once(browser: Any, address: str) -> None:
    place = f"rollouts?run=small&stage=grpo&at={ATTACKS}.2.0"
    with open_page(browser, f"{address}/#{place}") as (page, did):
        page.click("article >> text=compare")
        page.wait_for_selector("option[value$='|2|1']", state="attached")
        other = page.get_attribute("option[value$='|2|1']", "value")
        start = time.monotonic()
        page.select_option("[aria-label='the other rollout']", other)
        page.wait_for_selector(".diff .added, .diff .removed")
        assert time.monotonic() - start < 20, "a generous bound on a busy machine"
        assert page.locator(".diff span").count() <= 2_000
        assert is_quiet(did, address)


def test_a_run_is_followed_while_it_trains(browser: Any, address: str, runs: Path) -> None:
    with open_page(browser, f"{address}/#run?run=small") as (page, did):
        page.wait_for_selector("section[aria-label='stage repair'] >> text=step 2")
        tracker = JsonlTracker(runs / "small" / "repair", start_step=2)
        tracker.track(3, {"reward/pass_rate": 0.5})
        page.wait_for_selector("section[aria-label='stage repair'] h2 >> text=step 3")
        tracker.track(4, {"reward/pass_rate": 0.5})
        page.wait_for_selector("section[aria-label='stage repair'] h2 >> text=step 4")
        tracker.close()
        assert is_quiet(did, address)


def test_the_list_of_runs_answers_keys(browser: Any, address: str) -> None:
    with open_page(browser, address) as (page, did):
        page.wait_for_selector("tr.chosen")
        page.keyboard.press("Enter")
        page.wait_for_selector("section[aria-label='stage sft']")
        assert is_quiet(did, address)


def test_an_exported_page_works_alone(browser: Any, runs: Path, tmp_path: Path) -> None:
    done = assay("view", runs, "--export", tmp_path / "page.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    address = f"file://{tmp_path}/page.html"
    with open_page(browser, address, "dark") as (page, did):
        page.click("text=small")
        for view in VIEWS:
            page.click(f"header nav >> css=a[href^='#{view}?']")
            page.wait_for_selector("main h1, main .list .row")
        page.goto(f"{address}#rollouts?run=small&stage=grpo&verdict=&at={ATTACKS}.0.0")
        page.wait_for_selector("article .escape")
        page.fill("[aria-label='search texts']", "esrever")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=1 rollouts")
        assert page.title() == "small · assay"
        assert is_quiet(did, address)
