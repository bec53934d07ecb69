"""Progress on a terminal and in a file, and no output where a command is quick."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time

import pytest

from assay.progress import Progress, UnfailingStream, broken, counted
from tests.terminals import everything_written

WAIT = 60.0
"""Seconds after which something that must happen has failed."""


def until_it_says(text: str, stream: io.StringIO) -> None:
    deadline = time.monotonic() + WAIT
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.01)


def test_in_a_file_a_line_comes_soon_and_again_and_again_with_the_time_left() -> None:
    stream = io.StringIO()
    with Progress(stream, first=0.01, every=0.02) as progress:
        until_it_says("starting, 0 s\n", stream)
        progress.phase("loading model")
        until_it_says("loading model, 0 s\n", stream)
        progress.phase("evaluating", total=4, done=2)
        until_it_says("evaluating 2 of 4\n", stream)
        progress.advance()
        until_it_says("evaluating 3 of 4, 0 s left\n", stream)
        progress.say("max_tokens 512 -> 430")
    assert "max_tokens 512 -> 430\n" in stream.getvalue()


def test_a_phase_that_is_renamed_goes_on() -> None:
    progress = Progress(io.StringIO())
    progress.phase("tasks", total=4, done=2)
    progress.rename("7 bugs tried, tasks")
    assert progress.line() == "7 bugs tried, tasks 2 of 4"


def test_a_run_that_stands_still_says_what_it_waits_for() -> None:
    progress = Progress(io.StringIO())
    progress.waiting = lambda: "waiting for engine since 75 s"
    assert progress.line() == "starting, 0 s; waiting for engine since 75 s"
    progress.phase("evaluating", total=4)
    assert progress.line() == "evaluating 0 of 4; waiting for engine since 75 s"


def test_a_command_that_ends_at_once_prints_no_progress() -> None:
    stream = io.StringIO()
    with Progress(stream, first=WAIT) as progress:
        progress.phase("judging", total=2)
        progress.advance()
    assert stream.getvalue() == ""


def test_the_time_left_follows_from_the_steps_of_this_process_alone() -> None:
    progress = Progress(io.StringIO())
    progress.phase("evaluating", total=110, done=100)
    progress._phase.started -= 50.0  # five steps in 50 seconds leave 50 for the other five
    for _ in range(5):
        progress.advance()
    assert progress.line() == "evaluating 105 of 110, 50 s left"
    progress._phase.started -= 20.0  # nothing ended meanwhile: the time left counts down
    progress._phase.advanced -= 20.0
    assert progress.line() == "evaluating 105 of 110, 30 s left"
    with progress.interrupted():
        progress.phase("evaluating", total=165)
        progress._phase.started -= 1000.0
    assert progress.line() == "evaluating 105 of 110, 30 s left"


def test_the_time_left_is_no_longer_than_the_tokens_that_are_left_take() -> None:
    progress = Progress(io.StringIO())
    progress.tokens = lambda: 1000
    progress.phase("evaluating", total=100, most_tokens=51_000)
    assert progress.line() == "evaluating 0 of 100"
    progress._phase.started -= 60.0  # prefill, which says nothing of the tokens' rate
    progress.tokens = lambda: 1500
    assert progress.line() == "evaluating 0 of 100, 500 tokens"
    progress.tokens = lambda: 2000
    progress._phase.first_tokens = 500, time.monotonic() - 1.0
    said = progress.line()  # 500 tokens a second: the other 50,000 take 100 seconds
    assert said == "evaluating 0 of 100, 1,000 tokens, at most 100 s left"
    progress.advance()
    said = progress.line()
    assert said == "evaluating 1 of 100, 1,000 tokens, at most 100 s left", "a short one came first"
    for _ in range(9):
        progress.advance()
    progress._phase.started = time.monotonic() - 2.0
    assert progress.line() == "evaluating 10 of 100, 1,000 tokens, 18 s left"


def test_one_of_a_thing_is_no_plural() -> None:
    assert [counted(n, "task") for n in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]


def test_a_long_line_breaks_between_words_and_leaves_paths_whole() -> None:
    path = "/" + "long/" * 30
    lines = broken(f"  the whole stage 15 s; see {path} and more", 24).split("\n")
    assert lines == ["  the whole stage 15 s;", "    see", f"    {path}", "    and more"]


def test_a_terminal_has_a_bar_that_is_gone_at_the_end_and_lines_that_stay() -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal, Progress(terminal) as progress:
        progress.phase("judging", total=3)
        progress.advance()
        progress.say("a line that stays")
    shown = everything_written(reader)
    assert "judging" in shown
    assert "1/3" in shown
    assert "a line that stays" in shown


def test_a_phase_that_was_interrupted_continues_where_it_was() -> None:
    progress = Progress(io.StringIO())
    progress.phase("grpo", total=50, done=20)
    progress.advance()
    with progress.interrupted():
        progress.phase("evaluating", total=165)
        progress.advance()
        assert progress.line().startswith("evaluating 1 of 165")
    assert progress.line() == "grpo 21 of 50, 0 s left"


def test_a_stream_whose_reader_is_gone_drops_what_is_written() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = UnfailingStream(os.fdopen(writing, "w"))
    for _ in range(3):
        stream.write("a line\n")
        stream.flush()
    assert not stream.isatty()


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_tracker_and_progress_go_on_when_a_standard_stream_is_a_closed_pipe(closed: str) -> None:
    code = (
        "import sys; from assay.progress import *; from assay.trackers.console import open_console"
        "\nsys.stdout, sys.stderr = UnfailingStream(sys.stdout), UnfailingStream(sys.stderr)"
        "\nwith Progress() as progress:"
        "\n  tracker = open_console(progress, run='demo', start_step=0, total_steps=9)"
        "\n  for step in range(1, 10): tracker.track(step, {'loss': 1.0}); progress.say('a line')"
        "\n  tracker.close()\nsys.exit(7)"
    )
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, closed: writing}
    done = subprocess.run([sys.executable, "-c", code], check=False, **streams)  # type: ignore[call-overload]
    assert done.returncode == 7
