"""Tests that print: code that runs after the program, and the text that must come of it. The text
is compared here, so only a program that gets the right text printed passes.
"""

from __future__ import annotations

from assay.judge.kinds.kind import Kind, ProgramRun
from assay.languages import Language
from assay.types import PrintTest, Task


class PrintTests(Kind[PrintTest], judges=PrintTest):
    """Each is a run of the program and its code."""

    def run(self, check: PrintTest, program: str, language: Language) -> ProgramRun:
        """The program without what ends it, then the code."""
        source = language.without_exit(program)
        return ProgramRun(f"{source}\n\n{check.code}\n", stdout=check.prints)

    def show(self, check: PrintTest, task: Task) -> str:
        """The code and the output."""
        return f"Test:\n{check.code.rstrip()}\nOutput:\n{check.prints.rstrip()}"
