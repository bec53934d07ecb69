"""Tests that print: code that runs after the program, and the text that must come of it. The text
is compared here, so only a program that gets the right text printed passes.
"""

from __future__ import annotations

from assay.judge.kinds.kind import EachCheck
from assay.judge.kinds.workbench import Workbench
from assay.types import Execution, PrintTest, Task


class PrintTests(EachCheck[PrintTest], judges=PrintTest):
    """Each is a run of the program and its code."""

    async def judge_check(
        self, workbench: Workbench, check: PrintTest, task: Task, program: str
    ) -> Execution:
        """The program without what ends it, then the code."""
        source = workbench.language.without_exit(program)
        ran = await workbench.run(f"{source}\n\n{check.code}\n")
        return await workbench.compare(ran, check.prints)

    def show(self, check: PrintTest, task: Task) -> str:
        """The code and the output."""
        return f"Test:\n{check.code.rstrip()}\nOutput:\n{check.prints.rstrip()}"
