"""A run of 100,000 rollouts beside 19 others: seconds of each answer and each click.

    python -m bench.viewer

Asks the server over HTTP, as the page does. With Playwright and Chromium, the page is timed too:
until a click is answered, the longest task of its thread (while one runs, the page does not
answer), and the CPU time that the thread took. The load of the machine is printed beside.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pyarrow as pa
from pyarrow import parquet

from assay.trackers.jsonl import JsonlTracker
from assay.trackers.rollouts import write_rollouts, write_vocabulary
from assay.types import Check, Completion, Execution, Rollout, Score, Task, Turn, Verdict

STEPS, GROUPS, SIZE = int(os.environ.get("STEPS", "391")), 32, 8
ROUNDS = 5
SETTLED = 300
"""Milliseconds in which the page ends what a click began."""
FILES = {"run": "large", "stage": "grpo", "kind": "rollouts"}
QUESTIONS: dict[str, dict[str, str]] = {
    "verdict": {"verdict": "wrong"},
    "reward range": {"low": "0.5", "high": "0.9"},
    "task": {"task": "~task/17"},
    "highest reward first": {"order": "-reward"},
    "far down the list": {"start": "99000"},
    "full text, rare": {"search": "needle"},
    "full text, in all": {"search": "return"},
}
COUNTED = ".count:not(:text-is('…'))"
SIDES = f"a=large|grpo|rollouts|{STEPS}|0|0&b=large|grpo|rollouts|{STEPS}|0|1"
VIEWS: dict[str, tuple[str, dict[str, str]]] = {
    "the list of runs": ("runs", {}),
    "tasks over the steps": ("tasks", FILES),
    "a curve of 20 runs": ("curves", {"metric": "reward/mean"}),
    "suspects": ("suspects", FILES),
    "a rollout": ("rollout", FILES | {"step": str(STEPS // 2 + 1), "group": "3", "index": "4"}),
    "a run that the page has": ("run", {"run": "large"}),
}
OTHERS = 19
METRICS = (
    "reward/pass_rate", "reward/mean", "reward/tests", "reward/length", "rollout/length",
    "rollout/truncated", "learn/entropy", "learn/kl", "learn/ratio_max", "learn/grad_norm",
    "learn/lr", "staleness/mean", "time/learn", "time/judge", "loss",
    *(f"more/metric_{number}" for number in range(25)),
)  # fmt: skip
Action = Callable[[Any], Any]
CLICKS: dict[str, tuple[Action, str]] = {
    "a run's curves": (lambda page: page.click("main a >> text=large"), "canvas"),
    "all its metrics": (lambda page: page.click(".more"), ".plot >> nth=35"),
    "its rollouts": (lambda page: view(page, "rollouts"), ".list .row .mark"),
    "a rollout": (lambda page: page.keyboard.press("j"), "article section"),
    "its tokens coloured": (lambda page: page.keyboard.press("c"), ".tokens span[title]"),
    "rollouts far down the list": (
        lambda page: page.eval_on_selector(".list", "one => { one.scrollTop = 2e6; }"),
        ".row[style*='e+06']",
    ),
    "rollouts of a verdict": (
        lambda page: page.select_option("[aria-label=verdict]", "wrong"), COUNTED,
    ),
    "full text, rare": (lambda page: search(page, "needle"), COUNTED),
    "full text, in all": (lambda page: search(page, "return"), COUNTED),
    "groups of a step": (lambda page: view(page, "groups"), ".dot"),
    "tasks over the steps": (lambda page: view(page, "tasks"), "main .spark"),
    "tasks found by name": (
        lambda page: page.fill("[aria-label='find a task']", "task/17"), "text=1 tasks",
    ),
    "solved and lost": (lambda page: view(page, "changes"), "table.changes"),
    "suspects": (lambda page: view(page, "suspects"), "h3"),
    "two rollouts side by side": (
        lambda page: page.goto(f"{page.url.split('#')[0]}#compare?run=large&{SIDES}"), ".sides pre",
    ),
    "curves of 20 runs": (
        lambda page: page.goto(f"{page.url.split('#')[0]}#curves"), ".curves .swatch",
    ),
    "the list of runs": (lambda page: page.click(".brand"), "tr.chosen"),
}  # fmt: skip
"""What is done on the page, one after another, and what is there once it is answered."""
WATCH = """window.longest = 0;
new PerformanceObserver((list) => list.getEntries().forEach((one) => {
    window.longest = Math.max(window.longest, one.duration);
})).observe({ type: "longtask", buffered: true });"""
WORDS = ("value", "total", "index", "left", "right", "node", "items", "count", "result", "queue")


def program(chance: random.Random) -> str:
    """About 600 characters that look like a program."""
    lines = [
        f"    {chance.choice(WORDS)}_{chance.randrange(99)} = {chance.choice(WORDS)} + {number}"
        for number in range(18)
    ]
    return "\n".join(["def solve(items):", *lines, "    return result"])


def make_run(folder: Path) -> None:
    """A stage of STEPS files; each is one made step with other rewards and verdicts."""
    chance, stage = random.Random(0), folder / "grpo"
    stage.mkdir(parents=True)
    (stage / "config.toml").write_text('name = "large"\n')
    write_vocabulary(stage, [bytes([byte]) for byte in range(256)])
    groups = [[rollout(group, chance) for _ in range(SIZE)] for group in range(GROUPS)]
    first = stage / "rollouts" / "step_000001.parquet"
    write_rollouts(first, 1, groups)
    table, metrics = parquet.read_table(first), JsonlTracker(stage, start_step=0)
    for step in range(1, STEPS + 1):
        rewards = [chance.random() for _ in range(len(table))]
        texts = [program(chance) + ("# needle" if chance.random() < 1e-3 else "") for _ in rewards]
        for name, values in {
            "step": pa.array([step] * len(table), pa.int32()),
            "reward": pa.array(rewards),
            "completion": pa.array(texts),
            "program": pa.array(texts),
            "verdict": pa.array(["pass" if value > 0.4 else "wrong" for value in rewards]),
            "passed": pa.array([3 * (value > 0.4) for value in rewards], pa.int32()),
            "forgeable": pa.array([value > 0.99 for value in rewards]),
        }.items():
            table = table.set_column(table.column_names.index(name), name, values)
        file = first.with_name(f"step_{step:06d}.parquet")
        parquet.write_table(table, file, compression="zstd")
        metrics.track(step, {name: chance.random() for name in METRICS})
    metrics.close()


def make_others(folder: Path) -> None:
    """Runs with as many metrics and steps, of six recipes with about three seeds each."""
    for number in range(OTHERS):
        chance, stage = random.Random(number), folder / f"other_seed{number}" / "grpo"
        stage.mkdir(parents=True)
        settings = f'name = "other_seed{number}"\nseed = {number}\nsteps = {number % 6}\n'
        (stage / "config.toml").write_text(settings)
        lines = [
            json.dumps({"step": step} | {name: chance.random() for name in METRICS})
            for step in range(1, STEPS + 1)
        ]
        (stage / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def rollout(group: int, chance: random.Random) -> Rollout:
    """A rollout of about 600 tokens."""
    text = program(chance)
    tokens = tuple(text.encode())
    logprobs = tuple(-chance.random() for _ in tokens)
    execution = Execution(Verdict.PASS, passed=3, total=3)
    turn = Turn(tokens[:90], Completion(text, tokens, logprobs, "stop", (1,) * len(tokens)), text,
                execution)  # fmt: skip
    task = Task(f"bench/task/{group}", "Solve it.", (Check("assert solve([1]) == 1"),), "solve")
    return Rollout(task, (turn,), Score(1.0, {"tests": 1.0}))


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a server over the folder, and the server."""
    command = [sys.executable, "-m", "assay", "view", str(folder), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split(" on ")[1].split(";")[0], process
        finally:
            process.terminate()


def ask(address: str, name: str, query: dict[str, str]) -> Any:
    """The answer to a question."""
    with urlopen(f"{address}/api/{name}?{urlencode(query)}") as answer:
        return json.load(answer)


def view(page: Any, name: str) -> None:
    """Go to a view of the run."""
    page.click(f"header nav >> css=a[href^='#{name}?']")


def search(page: Any, text: str) -> None:
    """Search the texts of all rollouts."""
    page.select_option("[aria-label=verdict]", "")
    page.fill("[aria-label='search texts']", text)
    page.keyboard.press("Enter")


def in_browser(address: str) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Of each of CLICKS: seconds until it is answered, of the thread's longest task, and of its
    CPU time; nothing without a browser.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        print(f"no browser: {error}")
        return
    try:
        with sync_playwright() as tools:
            flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = tools.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
            page = browser.new_page()
            page.set_default_timeout(300_000)  # on a busy machine
            page.add_init_script(WATCH)
            tool = page.context.new_cdp_session(page)
            tool.send("Performance.enable")
            first: Action = lambda page: page.goto(address)  # noqa: E731
            for name, (act, selector) in ({"first content": (first, "tr.chosen")} | CLICKS).items():
                busy = thread_seconds(tool)
                page.evaluate("window.longest = 0")
                start = time.perf_counter()
                act(page)
                page.wait_for_selector(selector)
                took = time.perf_counter() - start
                page.wait_for_timeout(SETTLED)
                longest = page.evaluate("window.longest") / 1000
                yield name, (took, longest, thread_seconds(tool) - busy)
            browser.close()
    except Error as error:
        print(f"no browser: {str(error).splitlines()[0]}")


def thread_seconds(tool: Any) -> float:
    """CPU time of the page's thread, in seconds."""
    metrics = tool.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime"))


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Make the run, and time it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-browser", action="store_true", help="leave out the clicks")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    answered: dict[str, list[tuple[float, ...]]] = {}
    by_click: dict[str, list[tuple[float, ...]]] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_run(folder / "large")
        make_others(folder)
        for _ in range(rounds):
            for question, seconds in answers(folder):
                answered.setdefault(question, []).append(seconds)
            if arguments.no_browser:
                continue
            with serving(folder) as (address, _):
                for click, times in in_browser(address):
                    by_click.setdefault(click, []).append(times)
    total, load = STEPS * GROUPS * SIZE, os.getloadavg()[0]
    print(f"{total:,} rollouts, {rounds} rounds, load {load:.1f} on {os.cpu_count()} cores")
    table("request", ("seconds", "slowest", "CPU"), answered)
    table("in Chromium", ("seconds", "slowest", "longest task", "CPU of the page"), by_click)


def answers(folder: Path) -> Iterator[tuple[str, tuple[float, float]]]:
    """Seconds until a fresh server answers each question, and CPU seconds of the server."""
    query = FILES | {"count": "200"}
    questions: dict[str, tuple[str, dict[str, str]]] = {
        "start until the first run is told": ("runs", {}),
        "opens the run": ("run", {"run": "large"}),
        "reads all rollouts, once": ("rollouts", query),
        **{name: ("rollouts", query | more) for name, more in QUESTIONS.items()},
        **VIEWS,
    }
    start = time.perf_counter()
    with serving(folder) as (address, server):
        before = 0.0
        for name, (question, parameters) in questions.items():
            ask(address, question, parameters)
            now, busy = time.perf_counter(), cpu_seconds(server)
            yield name, (now - start, busy - before)
            start, before = time.perf_counter(), busy


def table(title: str, columns: tuple[str, ...], rows: dict[str, list[tuple[float, ...]]]) -> None:
    """Medians, and of the first column the largest too."""
    print(f"\n{title:34}", *(f"{column:>16}" for column in columns))
    for name, times in rows.items():
        wall, *more = zip(*times, strict=True)
        numbers = [median(wall), max(wall), *map(median, more)]
        print(f"{name:34}", *(f"{number:16.3f}" for number in numbers))


if __name__ == "__main__":
    main()
