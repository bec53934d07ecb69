"""The suite itself: it ends, whoever starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.long
def test_tests_that_interrupt_a_process_pass_where_sigint_starts_out_ignored() -> None:
    interrupting = ["tests/engines/test_vllm_parts.py", "-k", "interrupted"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-o",
            "timeout=60",
            *interrupting,
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "TEST_PART"},
        capture_output=True,
        text=True,
        preexec_fn=ignore_interrupts,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_a_test_that_hangs_fails_at_its_limit_and_shows_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(
        "import time\n\ndef test_waits():\n    time.sleep(600)  # the culprit\n"
    )
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-o", "timeout=1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *settings, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "Timeout" in done.stdout
    assert "the culprit" in done.stdout
