"""Exchanges: what a whole program reads and must print. judge/exchange_runner.py runs them."""

from __future__ import annotations

from assay.judge.kinds.asserts import short
from assay.judge.kinds.kind import Kind, ProgramRun
from assay.languages import Language
from assay.types import Exchange, Task


class Exchanges(Kind[Exchange], judges=Exchange):
    """Each is a run of the program."""

    interface = " The program reads standard input and prints to standard output."

    def run(self, check: Exchange, program: str, language: Language) -> ProgramRun:
        """The program with the input, which must print the output."""
        return ProgramRun(program, check.stdin, check.stdout)

    def show(self, check: Exchange, task: Task) -> str:
        """The input and the output."""
        return f"Input:\n{check.stdin.rstrip()}\nOutput:\n{check.stdout.rstrip()}"

    def failure(self, check: Exchange, detail: str, wrong: bool) -> str:
        """The detail, and the input on lines of its own."""
        return f"{detail.removeprefix('test 1: ')}, where the input is\n{short(check.stdin)}"

    def answer(self, check: Exchange, task: Task) -> str:
        """Prints the output."""
        return f"import sys\nsys.stdout.write({check.stdout!r})"
