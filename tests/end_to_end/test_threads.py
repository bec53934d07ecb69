"""OpenMP's threads in a run: one team at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.recipes import TINY, write

COUNTING = """
import json, sys, threading, time
from pathlib import Path
import torch
from typer.testing import CliRunner
from assay.cli import app
from assay.engines.torch import TorchEngine
from assay.train.learner import Learner

torch.set_num_threads(2)
found = []

def comm(task):
    try:
        return (task / "comm").read_text()
    except OSError:  # it has ended
        return "jemalloc"

def others():
    own = {thread.native_id for thread in threading.enumerate()}
    tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) not in own]
    return sum("jemalloc" not in comm(task) for task in tasks)

def ended():
    deadline, least = time.monotonic() + 2, others()
    while least > first and time.monotonic() < deadline:
        time.sleep(0.01)
        least = min(least, others())  # other threads come and go
    return least

def counted(method):
    def call(*arguments):
        before = ended()
        result = method(*arguments)
        found.append((method.__name__, before, others()))
        return result
    return call

Learner.step, TorchEngine._decode = counted(Learner.step), counted(TorchEngine._decode)
first = others()
done = CliRunner().invoke(app, ["train", sys.argv[1]])
assert done.exit_code == 0, done.output
print(json.dumps([(name, before - first, after - first) for name, before, after in found]))
"""
LARGER = TINY.replace("vocabulary = 320\nwidth = 64", "vocabulary = 2048\nwidth = 256")
LARGER = LARGER.replace("steps = 4", "steps = 1").replace("steps = 3", "steps = 2")
LARGER = LARGER.replace("group_size = 4", "group_size = 2").replace("tokens = 48", "tokens = 12")
"""Of a model whose loading and learning two threads share."""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads in /proc")
def test_decoding_and_learning_have_one_team_of_threads_that_ends_with_each(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, write(tmp_path, LARGER)],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, _, _ in found} == {"step", "_decode"}
    assert {before for _, before, _ in found} == {0}, "no other team waits"
    assert 1 in {after for _, _, after in found}, "two threads compute"
