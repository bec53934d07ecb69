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


def lines_shown(written: str, columns: int) -> list[str]:
    """The lines of a terminal of so many columns in the end, those scrolled away too."""
    lines: list[list[str]] = [[]]
    row = column = 0
    for code in CODE.finditer(written):
        number, letter, text = code[1], code[2], code[0]
        if letter == "A":
            row = max(0, row - int(number or 1))
        elif letter == "K":
            del lines[row][0 if number == "2" else column :]
        elif letter == "J":
            del lines[row + 1 :], lines[row][column:]
        elif text == "\r":
            column = 0
        elif text == "\n":
            row += 1
        elif not text.startswith("\x1b"):
            row, column = (row + 1, 0) if column == columns else (row, column)
            lines += [[] for _ in range(row + 1 - len(lines))]
            lines[row] += " " * (column + 1 - len(lines[row]))
            lines[row][column] = text
            column += 1
        lines += [[] for _ in range(row + 1 - len(lines))]
    return ["".join(line).rstrip() for line in lines]


def run_in_terminal(
    command: Sequence[str], columns: int, folder: Path, variables: Mapping[str, str] | None = None
) -> tuple[list[str], int]:
    """The lines that a command leaves in a terminal of so many columns, and its exit code."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command, cwd=folder, stdin=writer, stdout=writer, stderr=writer,
        env={**environment, "TERM": "xterm-256color", **(variables or {})},
    )  # fmt: skip
    os.close(writer)
    written = everything_written(reader)
    return lines_shown(written, columns), process.wait()
