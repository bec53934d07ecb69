"""What ends a run, what does not, and what the user reads then: locks, pipes, disks and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.end_to_end.nursery import finish, start
from tests.end_to_end.recipes import command
from tests.end_to_end.test_resume import COMMON, RUN, is_saved, prepare
from tests.train.test_folder import disk_of

SFT = COMMON.partition("[stages.grpo]")[0]
LONG = SFT.replace("steps = 8", "steps = 4000").replace("every = 1", "every = 2")


def until_saved(folder: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while not is_saved(folder, "sft", step):
        assert time.monotonic() < deadline, (folder / "said").read_text()
        time.sleep(0.01)


@pytest.mark.long
def test_a_second_trainer_is_told_who_holds_the_folder_until_that_one_is_killed(
    tmp_path: Path,
) -> None:
    prepare(tmp_path, LONG)
    first = start(tmp_path, "train", "small.toml")
    until_saved(tmp_path, 2)
    (tmp_path / "second").mkdir()
    os.link(tmp_path / "tasks.jsonl", tmp_path / "second/tasks.jsonl")
    os.link(tmp_path / "small.toml", tmp_path / "second/small.toml")
    again = ("train", "small.toml", "--folder", str(tmp_path / "runs"), "--steps", "2")
    for more in ((), ("--fresh",)):
        code, said = finish(tmp_path / "second", *again, *more)
        assert code == 2, said
        (line,) = [line for line in said.splitlines() if line.startswith("assay: ")]
        assert f"runs/small is in use by pid {first.pid} on {os.uname().nodename} since 20" in line
    assert first.is_alive()
    assert first.pid
    os.kill(first.pid, signal.SIGKILL)
    first.join(timeout=60)
    code, said = finish(tmp_path / "second", *again, "--fresh")
    assert code == 0, said
    assert [path.name for path in (tmp_path / RUN / "sft/checkpoints").iterdir()] == ["step_000002"]


@pytest.mark.long
def test_training_goes_on_to_its_end_when_nobody_reads_its_output_any_more(tmp_path: Path) -> None:
    prepare(tmp_path, SFT)
    reading, writing = os.pipe()
    os.close(reading)
    words = command("train", "small.toml")
    done = subprocess.run(words, cwd=tmp_path, stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert (tmp_path / RUN / "sft/checkpoints/step_000008/model.safetensors").is_file()


@pytest.mark.long
def test_a_disk_that_fills_up_ends_training_with_one_line_that_names_the_last_good_checkpoint(
    tmp_path: Path,
) -> None:
    prepare(tmp_path, LONG.replace("every = 2", "every = 1"))
    with disk_of("2500k", tmp_path / "runs"):
        code, said = finish(tmp_path, "train", "small.toml")
        line = said.splitlines()[-1]
        assert code == 3, said
        assert line.startswith("assay: step ")
        assert "o space left on device" in line
        checkpoint = Path(line.rpartition("the last good checkpoint is ")[2])
        assert (tmp_path / checkpoint / "model.safetensors").is_file()


@pytest.mark.long
def test_ctrl_c_is_answered_at_once_and_the_hint_is_a_command_that_goes_on(tmp_path: Path) -> None:
    prepare(tmp_path, LONG)
    running = start(tmp_path, "train", "small.toml", "--seed", "3")
    until_saved(tmp_path, 2)
    assert running.pid
    os.kill(running.pid, signal.SIGINT)
    running.join(timeout=120)
    assert running.exitcode == 0
    said = (tmp_path / "said").read_text()
    answer, hint = "finishing this step, then saving", "stopped; continue with: "
    assert said.index(answer) < said.index(hint)
    words = said.partition(hint)[2].split()
    assert words == ["assay", "train", "small.toml", "--seed", "3"]
    code, said = finish(tmp_path, *words[1:], "--steps", "4")
    assert code == 0, said
    assert "model    runs/small/sft/checkpoints/step_00" in said
