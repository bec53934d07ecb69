"""Shows what a command is doing: a bar with an ETA on a terminal, a line every 10 s in a file."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO

from assay.types import printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.text import Text

LONGEST_CELL = 20_000
"""Characters of a table's cell that are shown."""


@dataclass(slots=True)
class _Phase:
    """A part of a command's work, and how far it is."""

    name: str
    total: int | None
    done: int
    most_tokens: int
    """How many tokens the steps that are not done generate at most; 0 where none are counted."""
    before: int
    """Steps that were done when it started."""
    tokens: int
    """The engine's count then."""
    started: float = field(default_factory=time.monotonic)
    advanced: float = field(default_factory=time.monotonic)
    """When a step ended last."""
    first_tokens: tuple[int, float] | None = None
    """The engine's count when tokens were first seen, and the time: prefill comes before."""


class Progress:
    """The current phase of a command, shown on stderr inside a `with` block.

    Outside the block nothing but `say` prints, so library functions may always use one. In a file
    the first line comes after `first` seconds: a command that ends sooner prints nothing.
    """

    def __init__(
        self, stream: TextIO | None = None, first: float = 1.0, every: float = 10.0
    ) -> None:
        self._stream = stream or sys.stderr
        self._waits = first, every
        self._bar: RichProgress | None = None
        self._closed = threading.Event()
        self.note = ""
        """A line under the bar, cut at the terminal's width; a file does not get it."""
        self.waiting: Callable[[], str] = str
        """Says what a run waits for when it stands still; empty while it moves."""
        self.tokens: Callable[[], int] = int
        """Counts the tokens that an engine has generated since it was opened."""
        self.phase("starting")

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            self._bar = _open_bar(
                self._stream, lambda: self.waiting() or self.note, lambda: self._rest()[2:]
            )
            self._draw()
            self._bar.start()
            self._bar.console.show_cursor()  # a kill could not bring it back
        else:
            threading.Thread(target=self._print_lines, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def phase(
        self, name: str, total: int | None = None, done: int = 0, most_tokens: int = 0
    ) -> None:
        """Start a phase, with the number of its steps if it is known; `done` were done before.
        `most_tokens`: how many tokens the others generate at most.
        """
        self._phase = _Phase(name, total, done, most_tokens, done, self.tokens())
        self._draw()

    def rename(self, name: str) -> None:
        """The phase goes on under another name, which says more of what is done."""
        self._phase.name = name
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=name)

    def _draw(self) -> None:
        if self._bar is not None:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            phase = self._phase
            self._bar.add_task(phase.name, total=phase.total, completed=phase.done)

    def advance(self) -> None:
        """One more step of the phase is done."""
        self._phase.done += 1
        self._phase.advanced = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._phase.done)

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Other phases may start in the block; the current one continues afterwards."""
        phase, start, tokens = self._phase, time.monotonic(), self.tokens()
        try:
            yield
        finally:
            pause = time.monotonic() - start
            phase.started, phase.advanced = phase.started + pause, phase.advanced + pause
            phase.tokens += self.tokens() - tokens
            phase.first_tokens = None
            self._phase = phase
            self._draw()

    def say(self, line: str, result: bool = False) -> None:
        """Print a line that stays, to standard error; a `result` goes to standard output."""
        line = printable_lines(line)
        if self._bar is not None and (not result or sys.stdout.isatty()):
            console = self._bar.console  # its own wrapping would cut paths
            text = broken(line, console.width)
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            stream = sys.stdout if result else self._stream
            stream.write(f"{line}\n")
            stream.flush()

    def line(self) -> str:
        """The phase in one line: `evaluating 12 of 165, 70 s left`."""
        phase = self._phase
        if phase.total is None:
            return f"{phase.name}, {time.monotonic() - phase.started:.0f} s{self._pause()}"
        return f"{phase.name} {phase.done} of {phase.total}{self._rest()}{self._pause()}"

    def _rest(self) -> str:
        """`, 8,200 tokens, 70 s left`: the steps that are left take as long as those before, but no
        longer than the tokens that are left at most. Completions that end first are the short
        ones: until a tenth has ended, those tokens alone tell.
        """
        phase, now = self._phase, time.monotonic()
        new, rest = phase.done - phase.before, (phase.total or 0) - phase.done
        left, words = [], ""
        if new and (not phase.most_tokens or new * 9 >= rest):
            each = (phase.advanced - phase.started) / new
            left.append(max(0.0, each * rest - (now - phase.advanced)))
        elif phase.most_tokens:
            words = "at most "
        tokens = self.tokens() - phase.tokens if phase.most_tokens else 0
        phase.first_tokens = phase.first_tokens or ((tokens, now) if tokens else None)
        if phase.first_tokens and (since := tokens - phase.first_tokens[0]) > 0:
            each = (now - phase.first_tokens[1]) / since
            left.append(each * max(0, phase.most_tokens - tokens))
        count = f", {tokens:,} tokens" if tokens else ""
        return f"{count}, {words}{min(left):.0f} s left" if left else count

    def _pause(self) -> str:
        return f"; {why}" if (why := self.waiting()) else ""

    def _print_lines(self) -> None:
        first, wait = self._waits
        while not self._closed.wait(first):
            self.say(self.line())
            first = wait


def counted(count: int, name: str) -> str:
    """`1 task`, or `2 tasks`."""
    return f"{count} {name}" + "s" * (count != 1)


def cell(text: object) -> Text:
    """A cell of a table that is only read: no markup, nothing that a terminal obeys, and no more
    than a person reads.
    """
    from rich.text import Text

    whole = str(text)
    readable = whole if len(whole) <= LONGEST_CELL else f"{whole[:LONGEST_CELL]} ..."
    return Text(printable_lines(readable))


def broken(line: str, width: int) -> str:
    """The line in lines for a terminal of `width` columns; words and paths stay whole. What is not
    the beginning of a line is indented.
    """
    indent = line[: len(line) - len(line.lstrip())] + "  "
    lines = wrap(line, width - 1, subsequent_indent=indent, break_long_words=False,
                 break_on_hyphens=False)  # fmt: skip
    return "\n".join(lines)


def _open_bar(stream: TextIO, note: Callable[[], str], rest: Callable[[], str]) -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Rest(TextColumn):
        def render(self, task: Any) -> Text:
            return Text(rest(), style="progress.remaining")

    class Bar(RichProgress):
        def get_renderables(self) -> Iterator[Any]:
            yield from super().get_renderables()
            yield Text(note(), no_wrap=True, overflow="ellipsis")

    name = TextColumn("{task.description}", markup=False)
    columns = SpinnerColumn("line"), name, BarColumn(bar_width=30), MofNCompleteColumn(), Rest("")
    console, both = Console(file=stream), sys.stdout.isatty()
    return Bar(*columns, console=console, transient=True, redirect_stdout=both)


class StderrHandler(logging.StreamHandler[TextIO]):
    """Logs to standard error as it is at the time: a bar puts another stream in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """The record as text that no terminal obeys: it may quote a task, a model or a program."""
        return printable_lines(super().format(record))


class UnfailingStream:
    """A standard stream for long runs: when the pipe or the terminal is closed, output is dropped.

    Training goes on after `assay train ... | head`, and under `nohup` when its terminal goes away.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what is buffered."""
        self._try(self._stream.flush)

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError:
            self._stream = Path(os.devnull).open("w")  # noqa: SIM115  open until the end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
