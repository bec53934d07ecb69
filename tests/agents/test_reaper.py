"""What runs an agent ends all its processes, whatever becomes of assay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

REAPER = f"{sys.executable} -m assay.agents.reaper"


def run(command: str, folder: Path) -> int:
    line = f"{REAPER} $$ {folder} 100000 /bin/sh -c '{command}'; exit $?"
    return subprocess.run(["/bin/sh", "-c", line], check=False).returncode


def test_an_agents_exit_status_is_passed_on_and_a_signals_as_a_shell_says_it(
    tmp_path: Path,
) -> None:
    assert run("exit 7", tmp_path) == 7
    assert run("kill -USR1 $$", tmp_path) == 128 + signal.SIGUSR1
    assert run("test $PWD = " + str(tmp_path), tmp_path) == 0


def test_an_agent_and_its_daemons_end_when_assay_is_killed(tmp_path: Path) -> None:
    agent = "setsid sleep 600 & echo $! > daemon; echo $$ > agent; sleep 600"
    line = f"{REAPER} $$ {tmp_path} 100000 /bin/sh -c '{agent}' & wait"
    owner = subprocess.Popen(["/bin/sh", "-c", line])
    notes = [tmp_path / "daemon", tmp_path / "agent"]
    while not all(note.exists() and note.read_text().strip() for note in notes):
        time.sleep(0.02)
    pids = [int(note.read_text()) for note in notes]
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    while any(map(runs, pids)):
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
