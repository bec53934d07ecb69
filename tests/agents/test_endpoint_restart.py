"""The endpoint goes down with its trainer in the middle of agents' calls, and comes up again."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.end_to_end.nursery import finish
from tests.end_to_end.test_resume import RUN, kill_when, numbers, prepare

AGENT = """
import json, os, sys, time, urllib.request
log = sys.argv[1]
def note(word):
    with open(log, "a") as file:
        file.write(f"{word} {os.getpid()}\\n")
def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "policy", "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]
with open(os.environ["ASSAY_TASK"]) as file:
    messages = [{"role": "user", "content": file.read()}]
note("begins")
for _ in range(3):
    messages += [ask(messages), {"role": "user", "content": "# Again\\n"}]
    note("called")
    time.sleep(0.2)
print(messages[-2]["content"])
"""
SETTINGS = """
name = "small"
steps = 3
algorithm.name = "grpo"
[policy.tiny]
vocabulary = 320
width = 64
layers = 2
heads = 2
[tasks]
train = "tasks.jsonl"
[rollout]
tasks_per_step = 1
group_size = 2
max_tokens = 12
[judge]
slots = 2
[save]
every = 1
[environment]
name = "program"
command = ["python", "agent.py", "%s"]
"""
CALLS, ROLLOUTS = 3, 2


def folder_of(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    prepare(folder, SETTINGS % (folder / "log"))
    (folder / "agent.py").write_text(AGENT)
    return folder


def noted(folder: Path, word: str) -> list[int]:
    """The processes of agents that wrote the word."""
    log = folder / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(word)]


def lives(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


@pytest.mark.long
def test_a_trainer_killed_while_agents_call_goes_on_and_no_call_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    whole, killed = folder_of(tmp_path, "whole"), folder_of(tmp_path, "killed")
    assert finish(whole, "train", "small.toml")[0] == 0
    of_step = ROLLOUTS * CALLS

    def is_in_mid_step() -> bool:
        return len(noted(killed, "called")) > of_step

    assert kill_when(killed, is_in_mid_step, signal.SIGKILL) == -signal.SIGKILL
    agents = noted(killed, "begins")
    assert len(noted(killed, "called")) < 2 * of_step, "it was killed before its step was over"
    deadline = time.monotonic() + 30
    while any(map(lives, agents)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(lives, agents)), "agents end with their trainer"
    code, said = finish(killed, "train", "small.toml")
    assert code == 0, said
    rows = numbers(killed, "grpo")
    assert [row["step"] for row in rows] == [1, 2, 3]
    # which calls share a batch is chance, and with it the last digits of log-probabilities
    for row, other in zip(rows, numbers(whole, "grpo"), strict=True):
        assert row == pytest.approx(other, rel=1e-6)
    files = sorted((killed / RUN / "grpo/rollouts").glob("*.parquet"))
    assert len(files) == 3
    for file, row in zip(files, rows, strict=True):
        calls = [each for each in parquet.read_table(file)["agent_calls"].to_pylist() if each]
        assert len(calls) == ROLLOUTS
        learned = [call for tree in calls for call in tree if not call["reason"]]
        assert len(learned) == of_step
        assert sum(call["tokens"] for call in learned) == row["tokens/learned"]
