"""The soak of bench/hostile.py in short: hostile programs by the hundred leave nothing and disturb
no one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


def test_hostile_programs_by_the_hundred_leave_nothing_and_disturb_no_one() -> None:
    command = [sys.executable, "-m", "bench.hostile", "--runs", "300"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 left" in done.stdout
    assert "0 verdicts not as promised" in done.stdout
