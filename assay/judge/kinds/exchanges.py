"""Exchanges: what a whole program reads and must print. judge/exchange_runner.py runs them."""

from __future__ import annotations

from assay.judge.kinds.asserts import short
from assay.judge.kinds.kind import Kind, ProgramRun
from assay.types import Exchange, Task


def show(check: Exchange, task: Task) -> str:
    """The input and the output."""
    return f"Input:\n{check.stdin.rstrip()}\nOutput:\n{check.stdout.rstrip()}"


def failure(check: Exchange, detail: str, wrong: bool) -> str:
    """The detail, and the input on lines of its own."""
    return f"{detail.removeprefix('test 1: ')}, where the input is\n{short(check.stdin)}"


EXCHANGES: Kind[Exchange] = Kind(
    field="stdin",
    show=show,
    answer=lambda check, task: f"import sys\nsys.stdout.write({check.stdout!r})",
    failure=failure,
    reads_stdin=True,
    run_of=lambda check, program, _: ProgramRun(program, check.stdin, check.stdout),
)
