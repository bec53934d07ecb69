"""Training with a vLLM server from the command line, also when the server is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.end_to_end.recipes import TINY, command, write
from tests.engines.vllm.conftest import SETTINGS
from tests.engines.vllm.test_survival import children_of

pytestmark = pytest.mark.vllm
STEPS = 8
ENGINE = f"""
[stages.grpo.engine]
name = "vllm"
python = "{SETTINGS.python}"
"""


def test_a_run_whose_server_is_killed_continues_with_every_group_once(tmp_path: Path) -> None:
    stages = TINY.split("[stages.grpo]")
    file = write(
        tmp_path,
        stages[0] + "[stages.grpo]" + stages[1].replace("steps = 3", f"steps = {STEPS}") + ENGINE,
    )
    told = (tmp_path / "told").open("w+")
    run = subprocess.Popen(command("train", file), cwd=tmp_path, stdout=told, stderr=told)
    numbers = tmp_path / "runs/small/grpo/metrics.jsonl"
    killed = False
    while run.poll() is None:
        if not killed and numbers.is_file() and len(numbers.read_text().splitlines()) >= 2:
            core = [
                pid
                for pid in children_of(run.pid)
                if "Engine" in Path(f"/proc/{pid}/comm").read_text()
            ]
            os.kill(core[0], signal.SIGKILL)
            killed = True
        time.sleep(0.05)
    said = (tmp_path / "told").read_text()
    assert run.returncode == 0, said[-2000:]
    assert killed
    assert "lost a vLLM server" in said
    for step in range(1, STEPS + 1):
        rows = parquet.read_table(
            tmp_path / f"runs/small/grpo/rollouts/step_{step:06d}.parquet"
        ).to_pylist()
        assert Counter((row["group"], row["index"]) for row in rows) == Counter(
            (g, i) for g in range(4) for i in range(4)
        )
        assert len({row["task_id"] for row in rows}) == 4
    steps = [json.loads(line) for line in numbers.read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert max(step["learn/kl_engine"] for step in steps) < 1e-6
