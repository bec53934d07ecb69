"""Runs whose rollouts go on while the policy learns: what they note, how they go on, and that
nothing survives them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.end_to_end.nursery import finish, start
from tests.end_to_end.test_resume import is_tracked, kill_when
from tests.judge.processes import alive, descendants

pytestmark = pytest.mark.long

SETTINGS = """
name = "small"
plugins = ["plugin.py"]
algorithm.name = "grpo"
stage = "grpo"
steps = {steps}
policy.tiny = {{ vocabulary = 320, width = 64, layers = 2, heads = 2, context = 256 }}
tasks.train = "tasks.jsonl"
rollout = {{ max_staleness = 1, tasks_per_step = 4, group_size = {group}, max_tokens = {tokens} }}
judge.slots = 2
save.every = 1
[rewards]
tests = {{}}
length = {{ alpha = 1.0, on_failure = true }}
"""
EVALUATE = """
[evaluate]
tasks = "tasks.jsonl"
limit = 4
samples = 4
max_tokens = 60
every = 2
"""
GRPO = Path("runs/small/grpo")
PLUGIN = """
from assay.rewards import reward

@reward
def nothing(rollout):
    return 0.0
"""
BROKEN_ENGINE = """
from assay.engines.torch import TorchEngine
from assay.errors import MachineError
write, calls = TorchEngine.generate, []

async def broken(self, request, sampling):
    calls.append(request)
    if len(calls) > 70:
        raise MachineError("the engine gave out")
    return await write(self, request, sampling)

TorchEngine.generate = broken
"""


def prepare(folder: Path, plugin: str = "", more: str = "", **changes: Any) -> None:
    rows = [
        {
            "id": str(n),
            "prompt": f"# {n}\ndef f(xs):\n    return xs  # ",
            "entry_point": "f",
            "tests": ["assert f(1) == 1"],
        }
        for n in range(200)
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shape = {"steps": 6, "group": 4, "tokens": 48} | changes
    (folder / "small.toml").write_text(SETTINGS.format(**shape) + more)
    (folder / "plugin.py").write_text(PLUGIN + plugin)


def numbers(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / GRPO / "metrics.jsonl").read_text().splitlines()]


def asked(folder: Path, steps: int) -> list[str]:
    """The task of each group that was learned from; what a step learned from is what its file
    holds.
    """
    found = []
    for step in range(1, steps + 1):
        rows = parquet.read_table(folder / GRPO / f"rollouts/step_{step:06d}.parquet").to_pylist()
        assert len(rows) == 16
        found += [
            next(row["task_id"] for row in rows if row["group"] == group) for group in range(4)
        ]
    return found


def check_that_each_group_counts_once(folder: Path, steps: int) -> None:
    """There are more tasks than groups, so a task that comes twice is a group that comes twice."""
    groups = asked(folder, steps)
    assert len(set(groups)) == len(groups) == 4 * steps
    saved = folder / GRPO / f"checkpoints/step_{steps:06d}/assay/source.json"
    position = json.loads(saved.read_text())
    assert position["next"] == len(groups) + len(position["open"])
    assert len(position["open"]) >= 4


def test_a_run_with_lag_tells_of_its_time_its_engine_and_its_lag_and_is_evaluated_on_its_way(
    tmp_path: Path,
) -> None:
    prepare(tmp_path, more=EVALUATE)
    code, said = finish(tmp_path, "train", "small.toml")
    assert code == 0, said
    rows = [row for row in numbers(tmp_path) if "loss" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in numbers(tmp_path) if "evaluate/pass@1" in row] == [2, 4, 6]
    for row in rows:
        for part in ("generate", "judge", "learn", "sync", "wait"):
            assert row[f"time/{part}"] >= 0
        assert 0 <= row["engine/occupancy"] <= 32 / 512, "2 x 4 groups of 4 at most"
        shares = {name: row[name] for name in ("staleness/0", "staleness/1") if name in row}
        assert sum(shares.values()) == pytest.approx(1)
        assert row["staleness/mean"] == pytest.approx(shares.get("staleness/1", 0.0))
        assert row["staleness/max"] == ("staleness/1" in shares)
    assert rows[0]["staleness/mean"] == 0
    assert rows[0]["engine/tokens_per_second"] > 0
    assert rows[0]["engine/occupancy"] > 0
    assert max(row["staleness/mean"] for row in rows) > 0
    check_that_each_group_counts_once(tmp_path, 6)


def test_a_run_with_lag_that_is_killed_and_stopped_goes_on_without_losing_or_repeating_a_group(
    tmp_path: Path,
) -> None:
    prepare(tmp_path, steps=9)
    for step, sign, code in (
        (2, signal.SIGKILL, -signal.SIGKILL),
        (4, signal.SIGTERM, 0),
        (5, signal.SIGINT, 0),
    ):
        assert kill_when(tmp_path, partial(is_tracked, tmp_path, "grpo", step), sign) == code
        assert (
            "stopped; continue with: assay train small.toml" in (tmp_path / "said").read_text()
        ) == (code == 0)
    code, said = finish(tmp_path, "train", "small.toml")  # type: ignore[assignment]
    assert code == 0, said
    assert [row["step"] for row in numbers(tmp_path)] == list(range(1, 10))
    check_that_each_group_counts_once(tmp_path, 9)


def has_ended(processes: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while (left := alive(processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def test_a_second_signal_ends_a_run_at_once_and_its_processes_with_it(tmp_path: Path) -> None:
    prepare(tmp_path, steps=1000, group=32, tokens=200)
    running = start(tmp_path, "train", "small.toml")
    assert running.pid
    while not (tmp_path / GRPO / "checkpoints/step_000001").exists() and running.is_alive():
        time.sleep(0.01)
    time.sleep(0.2)  # the next step, which takes seconds, is under way
    processes = descendants(running.pid)
    assert len(processes) >= 2
    while running.is_alive():
        with suppress(ProcessLookupError):  # it may have ended since
            os.kill(running.pid, signal.SIGINT)
        running.join(0.1)
    assert running.exitcode == -signal.SIGINT
    assert has_ended(processes)
    assert not (tmp_path / GRPO / "checkpoints/step_000003").exists()


def supervisor_of(processes: list[int]) -> int:
    return next(
        pid
        for pid in processes
        if b"sandbox.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


@pytest.mark.parametrize("part", ["judge", "engine", "learner"])
def test_when_a_part_gives_out_the_run_ends_with_exit_code_3_and_nothing_survives(
    tmp_path: Path, part: str
) -> None:
    plugin, more = (
        BROKEN_ENGINE if part == "engine" else "",
        "[optimizer]\nlr = 1e20\n" if part == "learner" else "",
    )
    prepare(tmp_path, plugin, more, steps=1000)
    running = start(tmp_path, "train", "small.toml")
    assert running.pid
    processes: list[int] = []
    while running.is_alive():
        processes = descendants(running.pid) or processes
        if part == "judge" and is_tracked(tmp_path, "grpo", 2):
            os.kill(supervisor_of(processes), signal.SIGKILL)
            break
        time.sleep(0.01)
    running.join(60)
    said = (tmp_path / "said").read_text()
    assert running.exitcode == 3, said
    expected = {
        "judge": "supervisor died",
        "engine": "engine gave out",
        # the engine may meet the spoiled weights first
        "learner": "lower optimizer.lr|a log-probability that is not a finite number",
    }[part]
    assert re.search(expected, said.splitlines()[-1]), said
    assert has_ended(processes)
