"""Every view on a wide screen and on a phone's, light and dark, over runs that are written here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.trackers.jsonl import JsonlTracker
from assay.types import Answer, Execution, Verdict
from tests.viewer.chromium import BROWSER, faint, is_quiet, open_page, served, unnamed
from tests.viewer.made import (
    ADVANTAGE,
    HOSTILE,
    RIGHT,
    WRONG,
    made_agent,
    made_chain,
    made_repair,
    made_rollout,
    make_evaluation,
    make_run,
    write_agents,
)

pytestmark = BROWSER
SIDES = "a=made|grpo|rollouts|3|0|0&b=made|grpo|rollouts|3|0|1"
VIEWS = {
    "": "tr.chosen",
    "run?run=made": "canvas",
    "rollouts?run=made": ".list .row.first",
    "rollouts?run=made&at=3.0.1": "article section",
    "groups?run=made": ".groups .dot",
    "changes?run=made": ".changes",
    "curves": ".curves input",
    "tasks?run=made": ".spark",
    "tasks?run=made&task=set/a": ".plot canvas",
    "evaluations?run=made": "section[aria-label='by difficulty'] .interval",
    "evaluations?run=eval-a&with_run=eval-b&with_at=0": ".per-task .worse",
    "rollouts?run=demo_seed1&at=3.2.0": ".call, .diff",
    "rollouts?run=agents&at=4.0.0": ".call-tree li",
    "rollouts?run=agents&at=4.1.0": ".call-tree li:nth-child(400)",
    "suspects?run=made": "h2",
    "settings?run=made": "pre",
    f"compare?run=made&{SIDES}": ".diff .added, .diff .removed",
}
"""Each view's address, and what is there once it is drawn."""
TINTED = """one => {
    const { data } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
    return data.filter((alpha, at) => at % 4 === 3 && alpha > 30 && alpha < 70).length
        / (one.width * one.height);
}"""
"""The share of a plot that a band covers, which is drawn thinner than a line."""
STOP_TIMERS = "for (let timer = setTimeout(() => {}); timer > 0; timer--) clearTimeout(timer)"
SCREENS = [(theme, width) for theme in ("light", "dark") for width in (1280, 390)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    stage = make_run(folder / "made", extra=[made_rollout("set/hostile", HOSTILE)]) / "grpo"
    tracker = JsonlTracker(stage, start_step=3)
    for step in range(4, 200):
        tracker.track(step, {"learn/lr": 1.0 if step < 100 else 0.0, "learn/grad_norm": 1.0})
    tracker.close()
    make_run(folder / "another-run-with-quite-a-long-name")
    for seed in (1, 2):
        extra = [made_repair("repo/stack"), made_rollout("set/half", WRONG, checks_passed=1)]
        stage = make_run(folder / f"demo_seed{seed}", steps=2 + seed, extra=extra) / "grpo"
        settings = f'name = "demo_seed{seed}"\nseed = {seed}\n[algorithm]\nname = "grpo"\nlr = 2\n'
        (stage / "config.toml").write_text(settings)
        tracker = JsonlTracker(stage, start_step=2 + seed)
        for step in range(5, 9):
            tracker.track(step, {"learn/clip_fraction": float(seed)})
        tracker.close()
    agents = [
        made_agent("set/agent", RIGHT, HOSTILE + "y" * 3000),
        made_chain("set/chain", 400, HOSTILE),
    ]
    write_agents(make_run(folder / "agents") / "grpo", 4, *agents)
    make_evaluation(folder / "eval-a")
    make_evaluation(folder / "eval-b", ("set/c",))
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
            cut = "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
            assert page.eval_on_selector_all("table.stack", cut) == 0, view
        assert is_quiet(did, address)


CUT = """all => all.filter((one) => one.scrollWidth > one.clientWidth || one.scrollHeight
    > one.clientHeight + 4).map((one) => one.innerText)"""
"""Texts that do not fit their box."""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_head_and_no_button_is_cut(browser: Any, address: str, width: int) -> None:
    with open_page(browser, address, width=width) as (page, _):
        for view, drawn in VIEWS.items():
            page.goto(f"{address}/#{view}")
            page.wait_for_selector(drawn)
            assert page.eval_on_selector_all(".row.head > *, button:not(.sort)", CUT) == [], view


POINT = """one => {
    const { data, width, height } = one.getContext("2d").getImageData(0, 0, one.width, one.height);
    const rows = [];
    for (let at = 0; at < data.length; at += 4)
        if (data[at + 2] - data[at] > 100 && data[at + 3] > 200)
            rows.push(Math.floor(at / 4 / width) / height);
    return rows.reduce((a, b) => a + b, 0) / rows.length;
}"""
"""How far down a plot its points stand, as a share of its height."""


def test_a_single_value_stands_high_on_an_axis_that_starts_at_0(
    browser: Any, tmp_path: Path
) -> None:
    make_run(tmp_path / "made", steps=1)
    with (
        served(tmp_path) as at,
        open_page(browser, f"{at}/#tasks?run=made&task=set/a") as (page, _),
    ):
        page.wait_for_selector(".plot canvas")
        page.wait_for_timeout(300)
        assert page.eval_on_selector(".plot canvas", POINT) < 0.35, "in the middle it says nothing"


def test_a_view_of_another_run_asks_nothing_of_the_run_before(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#evaluations?run=eval-a") as (page, did):
        page.wait_for_selector("section[aria-label='by difficulty']")
        page.evaluate(STOP_TIMERS)  # the run before is asked for again every three seconds
        before = len(did.requests)
        page.goto(f"{address}/#rollouts?run=demo_seed1&at=3.2.0")
        page.wait_for_selector("article section")
        assert [one for one in did.requests[before:] if "eval" in one] == []


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


def cells(page: Any, table: str) -> list[list[str]]:
    """The texts of a table's rows."""
    found: list[list[str]] = page.eval_on_selector_all(
        f"{table} tbody tr",
        "all => all.map((row) => [...row.cells].map((one) => one.innerText.trim()))",
    )
    return found


def test_each_check_has_its_result_what_was_expected_and_what_came(
    browser: Any, address: str
) -> None:
    with open_page(browser, f"{address}/#rollouts?run=made&at=3.0.1") as (page, did):
        page.wait_for_selector(".checks")
        assert cells(page, ".checks") == [
            ["1", "wrong", "assert f(1) == 2", "2", "1", "shown to the model"],
            ["2", "error", "assert f(5) == 6", "6", "ValueError: no", "hidden from the model"],
        ]
        page.goto(f"{address}/#rollouts?run=made&at=3.0.0")
        page.wait_for_selector(".checks .mark.pass")
        assert [row[1] for row in cells(page, ".checks")] == ["passed", "passed"]
        assert is_quiet(did, address)


def test_the_only_check_of_an_answer_has_the_verdict_as_its_result(
    browser: Any, tmp_path: Path
) -> None:
    rollout = made_rollout("set/sum", WRONG)
    execution = Execution(Verdict.WRONG, passed=0, total=1, detail="'5' is not '6'")
    turn = replace(rollout.turns[0], execution=execution)
    task = replace(rollout.task, checks=(Answer("6", exact=True),))
    make_run(tmp_path / "made", extra=[replace(rollout, task=task, turns=(turn,))])
    with (
        served(tmp_path) as at,
        open_page(browser, f"{at}/#rollouts?run=made&at=3.2.0") as (page, _),
    ):
        page.wait_for_selector(".checks")
        ((_, result, _, expected, came, _),) = cells(page, ".checks")
        assert (result, expected, came) == ("wrong", "6", "'5' is not '6'")


def test_a_check_that_passes_beside_one_that_fails_says_so(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=demo_seed2&task=set/half") as (page, _):
        page.click(".list .row >> nth=0")
        page.wait_for_selector(".checks")
        assert [row[1] for row in cells(page, ".checks")] == ["passed", "error"]


def test_a_repository_shows_calls_results_the_change_and_each_test(
    browser: Any, address: str
) -> None:
    with open_page(browser, f"{address}/#rollouts?run=demo_seed1&at=3.2.0") as (page, did):
        page.wait_for_selector(".diff")
        first, second = page.eval_on_selector_all(".call", "all => all.map((one) => one.innerText)")
        assert "bash" in first
        assert "cat stack.py" in first
        assert "def pop(items):" in first
        assert "the call has no command" in second
        assert page.inner_text(".diff .removed").split() == ["-", "return", "items[0]"]
        assert page.inner_text(".diff .added").split() == ["+", "return", "items.pop()"]
        tests = cells(page, ".checks")
        assert [row[0] for row in tests] == ["failed", "passed", "passed"], "those that fail first"
        assert "IndexError: pop from empty list" in tests[0][1]
        assert "only a right change passes it" in tests[1][1]
        facts = page.inner_text("article .facts")
        assert "difficulty: hard" in facts
        assert page.locator(".alert >> text=forgeable").count() == 1
        assert is_quiet(did, address)


def test_an_agents_calls_are_a_tree_with_what_became_of_their_tokens(
    browser: Any, address: str
) -> None:
    with open_page(browser, f"{address}/#rollouts?run=agents&at=4.0.0") as (page, did):
        page.wait_for_selector(".call-tree")
        rows = page.eval_on_selector_all(
            ".call-tree li",
            "all => all.map((one) => [one.dataset.level, one.querySelector('.mark').innerText,"
            " one.querySelector('.number').innerText])",
        )
        each = f"{len(RIGHT)} tokens"
        assert rows == [
            ["1", "learned", each], ["2", "machine", "4 tokens"], ["2", "learned", each],
            ["1", "auxiliary", "9 tokens"], ["1", "foreign root", "30 tokens"],
            ["2", "foreign root", "5 tokens"],
        ]  # fmt: skip
        left = "all => all.map((one) => one.getBoundingClientRect().left)"
        starts = page.eval_on_selector_all(".call-tree .name", left)
        assert starts[0] == starts[3] < starts[1] == starts[2]
        names = page.eval_on_selector_all(".call-tree .name", "all => all.map((x) => x.innerText)")
        assert "begins, sent 2 times" in names[0]
        assert "continues call 1" in names[1]
        total = 2 * len(RIGHT) + 48
        words = " ".join(page.inner_text("[aria-label='sum of the calls']").split())
        assert words == (
            f"{total} tokens in 6 calls learned {2 * len(RIGHT)} foreign root 35 auxiliary 9"
            " machine 4"
        )
        assert is_quiet(did, address)


def test_a_call_opens_its_text_by_a_click_and_by_a_key(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=agents&at=4.0.0") as (page, did):
        page.wait_for_selector(".call-tree")
        assert page.locator(".call-tree pre").count() == 0
        page.click(".call-tree li:nth-child(1) summary")
        page.wait_for_selector("[aria-label='reply of call 1'] >> text=return x + 1")
        assert "turn 1, in sample 1" in page.inner_text(".call-tree li:nth-child(1) .note")
        page.focus(".call-tree li:nth-child(5) summary")
        page.keyboard.press("Enter")
        page.wait_for_selector("[aria-label='reply of call 3'] .escape >> text=\\u202e")
        text = page.inner_text(".call-tree li:nth-child(5)")
        assert "<script>document.title" in text
        assert f"the beginning of {len(HOSTILE) + 3000:,} characters" in text
        page.click(".call-tree li:nth-child(2) summary")
        page.wait_for_selector(".call-tree li:nth-child(2) >> text=no text of a reply")
        assert page.locator(".call-tree script, .call-tree img").count() == 0
        assert page.title() == "agents \u00b7 assay"
        page.keyboard.press("Enter")
        page.wait_for_selector(".call-tree li:nth-child(2) .note", state="detached")
        assert is_quiet(did, address)


def test_a_call_that_is_open_fits_a_phone(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=agents&at=4.1.0", width=390) as (page, _):
        page.wait_for_selector(".call-tree")
        page.click(".call-tree li:nth-child(400) summary")
        page.wait_for_selector(".call-tree li:nth-child(400) pre")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wide = "all => all.filter((one) => one.getBoundingClientRect().right > 390).length"
        assert page.eval_on_selector_all(".call-tree summary > *, .call-tree pre", wide) == 0


def test_the_advantage_is_the_one_that_the_learner_used(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#rollouts?run=made&at=3.0.1") as (page, _):
        page.wait_for_selector(f"article .facts >> text=\u2212{ADVANTAGE:.3f}")
        page.click("button >> text=advantage")
        page.wait_for_selector(f".tokens span[title*='advantage -{ADVANTAGE:.3f}']")
        page.goto(f"{address}/#rollouts?run=made&at=3.1.0")
        page.wait_for_selector("text=no advantage was recorded")
        assert "advantage" not in page.inner_text("article .facts")


def test_runs_that_differ_in_the_seed_alone_are_one_line_with_a_band(
    browser: Any, address: str
) -> None:
    with open_page(browser, address) as (page, did):
        page.click("header >> text=curves of all runs")
        page.wait_for_selector(".curves >> text=demo_seed1")
        rows = {row[1].split(" ")[0]: row for row in cells(page, ".curves")}
        assert "2 runs" in rows["demo"][1]
        assert rows["demo"][2:] == ["4", "100.0 %", "100.0 % to 100.0 %"]
        assert page.locator(".curves .swatch").count() == len(rows)
        page.click("[aria-label='show demo']")
        page.wait_for_function(f"document.querySelectorAll('.swatch').length == {len(rows) - 1}")
        page.select_option("[aria-label='metric']", "loss")
        page.wait_for_selector(".plot .title:text-is('loss')")
        assert "without=demo" in page.url
        page.click("[aria-label='show demo']")
        page.select_option("[aria-label='metric']", "learn/clip_fraction")
        page.wait_for_selector(".plot .title:text-is('learn/clip_fraction')")
        page.wait_for_timeout(300)
        assert page.eval_on_selector(".plot canvas", TINTED) > 0.3, "from 1 to 2 lies the band"
        assert is_quiet(did, address)


def test_a_tasks_history_is_told_step_by_step(browser: Any, address: str) -> None:
    with open_page(browser, f"{address}/#tasks?run=made") as (page, did):
        page.wait_for_selector("main .spark")
        rows = {row[0]: row[3:] for row in cells(page, "main table")}
        assert rows["set/a"] == ["50.0 %", "50.0 %", "3/6", "3"]
        titles = page.eval_on_selector_all(".strip", "all => all.map(it => it.title)")
        assert sorted(titles) == [
            "0 of 1 steps taught", "0 of 3 steps taught", "3 of 3 steps taught"
        ]  # fmt: skip
        assert page.eval_on_selector_all(".strip .taught", "all => all.length") == 3
        page.fill("[aria-label='find a task']", "SET/B")
        page.wait_for_selector("text=1 tasks")
        page.click("main table a")
        page.wait_for_selector(".plot .title:text-is('mean reward')")
        history = cells(page, "main table")
        assert history == [[str(step), "0/1", "0.000"] for step in (3, 2, 1)]
        page.click("main table a >> nth=0")
        page.wait_for_selector(".list .row.first")
        assert "step=3" in page.url
        assert is_quiet(did, address)


def test_two_evaluations_are_told_task_by_task_with_tags_and_protocol(
    browser: Any, address: str
) -> None:
    with open_page(browser, f"{address}/#run?run=eval-a") as (page, did):
        page.click("main table a >> text=model")
        page.wait_for_selector("pre >> text=seed: 7")
        assert [row[0] for row in cells(page, "section[aria-label='by difficulty'] table")] == [
            "easy", "hard",
        ]  # fmt: skip
        page.select_option("[aria-label='other run']", "eval-b")
        page.wait_for_selector(".per-task .better")
        assert cells(page, ".per-task") == [
            ["set/a", "language: python, difficulty: easy", "1/1", "0/1", "\u2212100.0 %"],
            ["set/c", "language: python, difficulty: easy", "0/1", "1/1", "+100.0 %"],
        ]
        assert "better on 1, worse on 1 of 2 tasks" in page.inner_text("[aria-label='difference']")
        page.click(".per-task tbody tr:first-child td:nth-child(4) a")
        page.wait_for_selector(".list .row.first .mark.fail")
        assert "run=eval-b" in page.url
        page.click(".list .row.first")
        page.wait_for_selector("article .checks")
        assert is_quiet(did, address)
