"""What a pseudo-terminal got, and what a person sees of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CODE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b.|[\s\S]")


def everything_written(reader: int) -> str:
    """All that came to a terminal whose writer is closed: it arrives in pieces, and its end is an
    error. Closes the reader.
    """
    pieces = []
    with os.fdopen(reader, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while piece := terminal.read(65536):
            pieces.append(piece)
    return b"".join(pieces).decode()


@dataclass
class Screen:
    """A terminal in the end, with the lines that scrolled away."""

    lines: list[list[tuple[str, str]]] = field(default_factory=lambda: [[]])
    """The cells of each line: the codes of a cell's colours, and its character."""
    broken: set[int] = field(default_factory=set)
    """Numbers of lines that were too long, so that the terminal went on in the next."""


def screen_of(written: str, columns: int) -> Screen:
    """What a terminal of so many columns makes of all that was written to it."""
    screen, row, column, style = Screen(), 0, 0, ""
    lines = screen.lines
    for code in CODE.finditer(written):
        number, letter, text = code[1], code[2], code[0]
        if letter == "A":
            row = max(0, row - int(number or 1))
        elif letter == "K":
            del lines[row][0 if number == "2" else column :]
        elif letter == "J":
            del lines[row + 1 :], lines[row][column:]
        elif letter == "m":
            style = "" if number in ("", "0") else style + text
        elif text == "\r":
            column = 0
        elif text == "\n":
            row += 1
        elif not text.startswith("\x1b"):
            if column == columns:
                screen.broken.add(row)
                row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
            lines[row] += [("", " ")] * (column + 1 - len(lines[row]))
            lines[row][column] = style, text
            column += 1
        lines += [[] for _ in range(row + 1 - len(lines))]
    return screen


def require_whole_lines(screen: Screen, columns: int) -> None:
    """Raises ValueError for a line that is longer than the terminal is wide."""
    for number in sorted(screen.broken):
        line = "".join(text for _, text in screen.lines[number])
        raise ValueError(f"a line is longer than {columns} columns: {line}")


def lines_shown(written: str, columns: int) -> list[str]:
    """The lines of a terminal of so many columns in the end, those scrolled away too."""
    lines = screen_of(written, columns).lines
    return ["".join(text for _, text in line).rstrip() for line in lines]


def run_in_terminal(
    command: Sequence[str], columns: int, folder: Path, variables: Mapping[str, str] | None = None
) -> tuple[list[str], int]:
    """The lines that a command leaves in a terminal of so many columns, and its exit code."""
    written, code = written_to_terminal(command, columns, folder, variables)
    return lines_shown(written, columns), code


def written_to_terminal(
    command: Sequence[str], columns: int, folder: Path, variables: Mapping[str, str] | None = None
) -> tuple[str, int]:
    """All that a command writes to a terminal of so many columns, and its exit code."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command, cwd=folder, stdin=writer, stdout=writer, stderr=writer,
        env={**environment, "TERM": "xterm-256color", **(variables or {})},
    )  # fmt: skip
    os.close(writer)
    return everything_written(reader), process.wait()
