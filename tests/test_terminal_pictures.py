"""The script that makes the pictures of commands in a terminal."""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.recipes import TINY, assay, write
from tests.terminals import require_whole_lines, screen_of

SCRIPT = Path(__file__).parent.parent / "docs" / "make_terminal_pictures.py"
EVALUATED = '[evaluate]\ntasks = "drills:test"\nlimit = 4\nsamples = 1\nmax_tokens = 48\n[rollout]'
NAMES = ("help", "doctor", "check", "show", "compare", "train")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_command_fits_a_terminal_of_80_and_of_120_columns(tmp_path: Path) -> None:
    settings = write(tmp_path, TINY.replace("[rollout]", EVALUATED))
    trained = assay("train", settings, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    run, pictures_folder = tmp_path / "runs" / "small", tmp_path / "pictures"
    words: list[str | Path] = [sys.executable, SCRIPT, run, "--pictures", pictures_folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pictures = {file.name: html.unescape(file.read_text()).replace("\xa0", " ")
                for file in pictures_folder.iterdir()}  # fmt: skip
    assert pictures.keys() == {f"{name}_{width}.svg" for name in NAMES for width in (80, 120)}
    assert "assay compare runs/small/sft runs/small/grpo" in pictures["compare_80.svg"]
    assert "pass@1" in pictures["show_80.svg"]
    assert ">3/6<" in pictures["train_120.svg"], "in the middle of training"
    for name, picture in pictures.items():
        assert "@font-face" not in picture, f"{name} asks the network for a font"


def test_a_line_that_a_terminal_must_break_by_itself_is_refused() -> None:
    require_whole_lines(screen_of("x" * 20 + "\r\n", 20), 20)
    with pytest.raises(ValueError, match="longer than 20 columns"):
        require_whole_lines(screen_of("x" * 21 + "\r\n", 20), 20)
