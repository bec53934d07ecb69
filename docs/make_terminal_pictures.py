"""Make the pictures of commands in a terminal in docs/terminal/, at 80 and at 120 columns.

    python docs/make_terminal_pictures.py runs/demo

The run is one with SFT and RL, such as `make demo` leaves. Each command runs for real, in a folder
with a copy of the run. `assay train` continues from the run's SFT for some steps of GRPO. Its
picture is the terminal in the middle of that. A line that a terminal must break by itself is
refused.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import shutil
import sys
import tempfile
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.check import flawed  # noqa: E402
from tests.terminals import (  # noqa: E402
    Screen,
    require_whole_lines,
    screen_of,
    written_to_terminal,
)

WIDTHS = (80, 120)
COMMANDS = {
    "help": "assay --help",
    "doctor": "assay doctor",
    "check": "assay check tasks.jsonl",
    "show": "assay show runs/{run}",
    "compare": "assay compare runs/{run}/sft runs/{run}/grpo",
    "train": "assay train short.toml",
}
STEPS = 6
RECIPE = f"""
name = "short"
[policy]
model = "{{model}}"
[tasks]
train = "drills:train"
[rollout]
max_tokens = 64
tasks_per_step = 4
group_size = 4
[evaluate]
tasks = "drills:test"
limit = 20
samples = 2
max_tokens = 64
before = true
[stages.grpo]
steps = {STEPS}
algorithm.name = "grpo"
optimizer = {{{{ lr = 3e-4 }}}}
"""
NEXT_FRAME = re.compile(r"\r\x1b\[2?K")
"""How a bar starts to be drawn again."""
FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fonts that an SVG would fetch from the network."""


def draw(run: Path, pictures: Path) -> None:
    """Write a picture of each command at each width."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(run, folder / "runs" / run.name)
        (last,) = sorted((run / "sft" / "checkpoints").iterdir())[-1:]
        model = folder / "runs" / run.name / "sft" / "checkpoints" / last.name
        (folder / "short.toml").write_text(RECIPE.format(model=model))
        flawed.write(folder / "tasks.jsonl")
        pictures.mkdir(exist_ok=True)
        for name, words in COMMANDS.items():
            for width in WIDTHS:
                command = words.format(run=run.name)
                screen = screen_of(written(command, width, folder), width)
                require_whole_lines(screen, width)
                (pictures / f"{name}_{width}.svg").write_text(svg(command, screen, width))
                shutil.rmtree(folder / "runs" / "short", ignore_errors=True)


def written(command: str, width: int, folder: Path) -> str:
    """All that a command writes; of training, what it has written in the middle of it."""
    _, *words = shlex.split(command)
    text, _ = written_to_terminal([sys.executable, "-m", "assay", *words], width, folder)
    if "train" not in words:
        return text
    middle = text.rindex(f"{STEPS // 2}/{STEPS}")
    frame = NEXT_FRAME.search(text, middle)
    return text[: frame.start() if frame else None]


def svg(command: str, screen: Screen, width: int) -> str:
    """A picture of a screen, below the command that was typed."""
    console = Console(record=True, width=width, file=io.StringIO())
    lines = [
        "".join(
            f"\x1b[0m{style}{''.join(text for _, text in cells)}"
            for style, cells in groupby(line, key=itemgetter(0))
        )
        for line in screen.lines
    ]
    while lines and not lines[-1].strip():
        lines.pop()
    console.print(Text.assemble(("$ ", "bold"), command))
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    return FONT.sub("", console.export_svg(title="", unique_id="terminal"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "terminal")
    arguments = parser.parse_args()
    draw(arguments.run, arguments.pictures)
