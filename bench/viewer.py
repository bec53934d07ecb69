"""A run of 100,000 rollouts beside 19 others: seconds until it opens, for each filter and view.

    python -m bench.viewer

Asks the server over HTTP, as the page does. With Playwright and Chromium, the page itself is timed
too: until rows, the list of tasks, and the curves of all runs are drawn.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
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

STEPS, GROUPS, SIZE = 391, 32, 8
ROUNDS = 5
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
VIEWS: dict[str, tuple[str, dict[str, str]]] = {
    "the list of runs": ("runs", {}),
    "tasks over the steps": ("tasks", FILES),
    "a curve of 20 runs": ("curves", {"metric": "reward/metric_1"}),
    "suspects": ("suspects", FILES),
}
OTHERS = 19
DRAWN = {
    "rows": ("rollouts?run=large", ".list .row .mark"),
    "tasks": ("tasks?run=large", "main .spark"),
    "curves of 20 runs": ("curves?metric=reward/metric_1", ".plot canvas"),
}
"""What is timed in the browser: the address, and what is there once it is drawn."""
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
            "verdict": pa.array(["pass" if one > 0.4 else "wrong" for one in rewards]),
        }.items():
            table = table.set_column(table.column_names.index(name), name, values)
        file = first.with_name(f"step_{step:06d}.parquet")
        parquet.write_table(table, file, compression="zstd")
        metrics.track(step, {f"reward/metric_{n}": chance.random() for n in range(40)})
    metrics.close()


def make_others(folder: Path) -> None:
    """Runs with as many metrics and steps, of six recipes with about three seeds each."""
    for number in range(OTHERS):
        chance, stage = random.Random(number), folder / f"other_seed{number}" / "grpo"
        stage.mkdir(parents=True)
        settings = f'name = "other_seed{number}"\nseed = {number}\nsteps = {number % 6}\n'
        (stage / "config.toml").write_text(settings)
        lines = [
            json.dumps({"step": step} | {f"reward/metric_{n}": chance.random() for n in range(40)})
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
def serving(folder: Path) -> Iterator[str]:
    """The address of a server over the folder."""
    command = [sys.executable, "-m", "assay", "view", str(folder), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split(" on ")[1].split(";")[0]
        finally:
            process.terminate()


def ask(address: str, name: str, asked: dict[str, str]) -> Any:
    """The answer to a question."""
    with urlopen(f"{address}/api/{name}?{urlencode(asked)}") as answer:
        return json.load(answer)


def in_browser(address: str) -> dict[str, float]:
    """Seconds until each of DRAWN is drawn; empty without a browser."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        print(f"no browser: {error}")
        return {}
    try:
        with sync_playwright() as tools:
            flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
            browser = tools.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
            page = browser.new_page()
            page.goto(f"{address}/#run?run=large")
            page.wait_for_selector("main h1")
            took = {}
            for name, (view, drawn) in DRAWN.items():
                start = time.perf_counter()
                page.goto(f"{address}/#{view}")
                page.wait_for_selector(drawn)
                took[name] = time.perf_counter() - start
            browser.close()
            return took
    except Error as error:
        print(f"no browser: {str(error).splitlines()[0]}")
        return {}


def main() -> None:
    """Make the run, and time it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    opened: list[float] = []
    drawn: dict[str, list[float]] = {name: [] for name in DRAWN}
    filtered: dict[str, list[float]] = {name: [] for name in (*QUESTIONS, *VIEWS)}
    with TemporaryDirectory() as folder:
        make_run(Path(folder) / "large")
        make_others(Path(folder))
        for _ in range(rounds):
            with serving(Path(folder)) as address:
                ask(address, "runs", {})
                asked = FILES | {"count": "200"}
                start = time.perf_counter()
                ask(address, "run", {"run": "large"})
                ask(address, "rollouts", asked)
                opened.append(time.perf_counter() - start)
                for name, more in QUESTIONS.items():
                    start = time.perf_counter()
                    ask(address, "rollouts", asked | more)
                    filtered[name].append(time.perf_counter() - start)
                for name, (question, parameters) in VIEWS.items():
                    start = time.perf_counter()
                    ask(address, question, parameters)
                    filtered[name].append(time.perf_counter() - start)
            with serving(Path(folder)) as address:
                for name, took in in_browser(address).items():
                    drawn[name].append(took)
    total = STEPS * GROUPS * SIZE
    print(f"{total:,} rollouts, median and largest of {rounds} rounds")
    print(row("a fresh server opens the run and its rollouts", opened))
    for name, times in filtered.items():
        print(row(name, times))
    for name, times in drawn.items():
        if times:
            print(row(f"in Chromium, until drawn: {name}", times))


def row(name: str, times: list[float]) -> str:
    """A line of the table."""
    return f"{name:48} {median(times):6.2f} s {max(times):6.2f} s"


if __name__ == "__main__":
    main()
