"""Exchanges: what a whole program reads and must print."""

from __future__ import annotations

from assay.judge.kinds.asserts import short
from assay.judge.kinds.kind import EachCheck
from assay.judge.kinds.workbench import Workbench
from assay.types import Exchange, Execution, Task


class Exchanges(EachCheck[Exchange], judges=Exchange):
    """Each is a run of the program."""

    async def judge_check(
        self, workbench: Workbench, check: Exchange, task: Task, program: str
    ) -> Execution:
        """The program with the input, which must print the output."""
        ran = await workbench.run(program, check.stdin)
        return await workbench.compare(ran, check.stdout, check.stdin)

    def interface(self, check: Exchange) -> str:
        """How the program gets its input."""
        return " The program reads standard input and prints to standard output."

    def show(self, check: Exchange, task: Task) -> str:
        """The input and the output."""
        return f"Input:\n{check.stdin.rstrip()}\nOutput:\n{check.stdout.rstrip()}"

    def failure(self, check: Exchange, detail: str, wrong: bool) -> str:
        """The detail, and the input on lines of its own."""
        return f"{detail.removeprefix('test 1: ')}, where the input is\n{short(check.stdin)}"

    def answer(self, check: Exchange, task: Task) -> str:
        """Prints the output."""
        return f"import sys\nsys.stdout.write({check.stdout!r})"
